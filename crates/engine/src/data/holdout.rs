//! Test samples held back from a set that has no test part of its own.

use super::split::indices_by_class;
use super::{DataError, Split};
use crate::rng::Rng;

/// The indices of one part: of each class, `test_fraction` of the samples are for the test, and the rest for training.
///
/// It depends on nothing but its arguments, so peers with the same seed hold back the same samples; peers with different
/// seeds would train on each other's test samples. A class of two or more samples has at least one in each part.
pub(crate) fn split(labels: &[u32], split: Split, test_fraction: f64, seed: u64) -> Result<Vec<usize>, DataError> {
    if !(test_fraction > 0.0 && test_fraction < 1.0) {
        let problem = format!("`test_fraction` is {test_fraction}; it must lie between 0 and 1, as 0.1 does");
        return Err(DataError::Setting(problem));
    }
    let mut chosen = Vec::new();
    for (class, mut samples) in indices_by_class(0..labels.len(), labels) {
        Rng::stream(seed, "holdout", u64::from(class)).shuffle(&mut samples);
        let wanted = (samples.len() as f64 * test_fraction).round() as usize;
        let n_test = wanted.max(1).min(samples.len() - 1);
        chosen.extend_from_slice(match split {
            Split::Test => &samples[..n_test],
            Split::Train => &samples[n_test..],
        });
    }
    chosen.sort_unstable();
    if chosen.is_empty() {
        let n_samples = labels.len();
        return Err(DataError::Setting(format!(
            "{n_samples} samples are too few to hold some of each class back; give each class at least two, or the set a \
             test split"
        )));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::split;
    use crate::data::Split;
    use crate::rng::Rng;

    #[test]
    fn parts_are_disjoint_whole_and_fair_to_each_class() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let labels: Vec<u32> = (0..rng.below(300) + 20).map(|_| rng.below(4) as u32).collect();
            let train = split(&labels, Split::Train, 0.2, seed).unwrap();
            let test = split(&labels, Split::Test, 0.2, seed).unwrap();
            let mut all = [train.as_slice(), &test].concat();
            all.sort_unstable();
            assert!(all.iter().copied().eq(0..labels.len()), "seed {seed}");
            for class in 0..4 {
                let count = |indices: &[usize]| indices.iter().filter(|&&index| labels[index] == class).count() as f64;
                let whole = count(&all);
                assert!(whole < 2.0 || (count(&test) - whole * 0.2).abs() <= 0.8, "seed {seed}");
                assert!(whole == 0.0 || count(&train) >= 1.0, "seed {seed}");
            }
        }
        let labels = [0; 100];
        assert_ne!(split(&labels, Split::Test, 0.2, 1).unwrap(), split(&labels, Split::Test, 0.2, 2).unwrap());
    }

    #[test]
    fn what_is_held_back_is_frozen() {
        // A model that is resumed must not be tested on what it has learned from: a change here breaks saved runs.
        let labels: Vec<u32> = (0..20).map(|i| i % 2).collect();
        assert_eq!(split(&labels, Split::Test, 0.2, 42).unwrap(), [3, 6, 12, 15]);
    }

    #[test]
    fn what_cannot_be_held_back_is_refused() {
        for fraction in [0.0, 1.0, -1.0, f64::NAN] {
            assert!(split(&[0; 9], Split::Test, fraction, 0).is_err());
        }
        assert!(split(&[0, 1], Split::Test, 0.5, 0).is_err());
        assert!(split(&[], Split::Train, 0.5, 0).is_err());
    }
}
