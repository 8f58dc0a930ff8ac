//! Some samples of a set, as a set of their own.

use std::path::Path;

use super::{Batch, DataError, Dataset, OutsideSample, TargetKind, TextCodec, Tone, check_indices};
use crate::rng::Rng;

/// A random part of a set. Shape, classes and preparation of the samples stay those of the whole.
pub(crate) struct Subset {
    whole: Box<dyn Dataset>,
    /// Which samples of the whole, in ascending order.
    indices: Vec<usize>,
    labels: Vec<u32>,
}

impl Subset {
    /// So many samples of a set, drawn by the seed: the same on every machine.
    pub(crate) fn draw(whole: Box<dyn Dataset>, n_samples: usize, seed: u64) -> Result<Self, DataError> {
        if n_samples > whole.len() {
            return Err(DataError::Setting(format!(
                "`take` is {n_samples} and the training set has {} samples; take at most that many, or 0 for all",
                whole.len()
            )));
        }
        let mut indices: Vec<usize> = (0..whole.len()).collect();
        Rng::stream(seed, "take", 0).shuffle(&mut indices);
        indices.truncate(n_samples);
        indices.sort_unstable();
        let labels = indices.iter().map(|&index| whole.labels()[index]).collect();
        Ok(Self { whole, indices, labels })
    }
}

impl Dataset for Subset {
    fn shape(&self) -> &[usize] {
        self.whole.shape()
    }

    fn classes(&self) -> &[String] {
        self.whole.classes()
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn target(&self) -> TargetKind {
        self.whole.target()
    }

    fn tokenizer(&self) -> Option<&TextCodec> {
        self.whole.tokenizer()
    }

    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError> {
        check_indices(indices, self.indices.len())?;
        let indices: Vec<usize> = indices.iter().map(|&index| self.indices[index]).collect();
        self.whole.batch(&indices)
    }

    fn prefetch(&self, indices: &[usize]) {
        let indices: Vec<usize> = indices.iter().filter_map(|&index| self.indices.get(index)).copied().collect();
        self.whole.prefetch(&indices);
    }

    fn origin(&self, index: usize) -> Option<String> {
        let index = *self.indices.get(index)?;
        self.whole.origin(index).or_else(|| Some(format!("sample {index} of the whole set")))
    }

    fn read_samples(&self, path: &Path, tone: Tone) -> Result<Vec<OutsideSample>, DataError> {
        self.whole.read_samples(path, tone)
    }

    fn restore(&self, numbers: &mut [f32]) {
        self.whole.restore(numbers);
    }
}

#[cfg(test)]
mod tests {
    use super::Subset;
    use crate::data::in_memory::{InMemory, Samples};
    use crate::data::{DataError, Dataset};

    fn hundred() -> Box<dyn Dataset> {
        let (names, labels) = (vec!["even".to_owned(), "odd".to_owned()], (0..100).map(|i| i % 2).collect());
        Box::new(InMemory::new(vec![1], names, labels, Samples::Bytes((0..100).collect())).unwrap())
    }

    fn drawn(n_samples: usize, seed: u64) -> Vec<f32> {
        let set = Subset::draw(hundred(), n_samples, seed).unwrap();
        let batch = set.batch(&(0..set.len()).collect::<Vec<usize>>()).unwrap();
        assert_eq!(batch.classes(), set.labels());
        assert!(batch.inputs.iter().zip(batch.classes()).all(|(&x, &label)| x as u32 % 2 == label));
        batch.inputs
    }

    #[test]
    fn the_seed_draws_different_samples_once_each() {
        let first = drawn(30, 1);
        assert_eq!(first.len(), 30);
        assert!(first.windows(2).all(|pair| pair[0] < pair[1]), "each once, in order");
        assert_eq!(first, drawn(30, 1));
        assert_ne!(first, drawn(30, 2));
        assert_eq!(drawn(100, 1), (0..100).map(|i| i as f32).collect::<Vec<f32>>());
        // Not simply the beginning of the set, which may hold one class alone.
        assert!(first[29] > 50.0);
    }

    #[test]
    fn what_is_drawn_is_frozen() {
        // A run that is resumed must go on with the same samples: a change here breaks runs that were saved.
        assert_eq!(drawn(5, 42), [6.0, 48.0, 56.0, 57.0, 64.0]);
    }

    #[test]
    fn more_than_there_is_cannot_be_drawn() {
        let error = Subset::draw(hundred(), 101, 1).err().unwrap().to_string();
        assert_eq!(error, "`take` is 101 and the training set has 100 samples; take at most that many, or 0 for all");
        let set = Subset::draw(hundred(), 7, 1).unwrap();
        assert!(matches!(set.batch(&[7]), Err(DataError::NoSuchSample { index: 7, n_samples: 7 })));
        assert_eq!(set.origin(7), None);
        let place = format!("sample {} of the whole set", set.batch(&[3]).unwrap().inputs[0]);
        assert_eq!(set.origin(3), Some(place));
    }
}
