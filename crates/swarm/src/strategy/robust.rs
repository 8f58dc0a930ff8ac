//! Rules by which the many outvote the few: each coordinate without its extremes, or the one vector that is nearest to most.
//!
//! Coordinates are handled a block at a time, and a block's rows are sorted by a network: the same exchanges whatever the
//! numbers are, each on as many coordinates as the processor has lanes. All numbers are finite; who sent others was refused.
//! Yin et al. (2018), "Byzantine-robust distributed learning: towards optimal statistical rates" (trimmed mean and median);
//! Blanchard et al. (2017), "Machine learning with adversaries: Byzantine tolerant gradient descent" (Krum);
//! Batcher's network as in Knuth, "The art of computer programming", volume 3, algorithm 5.2.2M.

use nettorrent_engine::kernel::vectorised;

/// How many coordinates are sorted at once.
const COLUMNS: usize = 64;

/// The mean of each coordinate without its `n_trimmed` least and greatest values, of which some must be left.
pub(super) fn trimmed_mean(rows: &[&[f32]], n_trimmed: usize, result: &mut [f32]) {
    let kept = n_trimmed..rows.len() - n_trimmed;
    let share = 1.0 / kept.len() as f32;
    let mut block = vec![[0.0; COLUMNS]; rows.len()];
    vectorised(|| {
        for (k, result) in result.chunks_mut(COLUMNS).enumerate() {
            let columns = k * COLUMNS..k * COLUMNS + result.len();
            for (line, row) in block.iter_mut().zip(rows) {
                line[..result.len()].copy_from_slice(&row[columns.clone()]);
            }
            sort_columns(&mut block);
            result.fill(0.0);
            for line in &block[kept.clone()] {
                // Each is made smaller first, so that no sum of numbers becomes infinite.
                result.iter_mut().zip(line).for_each(|(result, number)| *result += share * number);
            }
        }
    });
}

/// Sorts each column: afterwards, every line is nowhere greater than the next.
#[inline(always)]
fn sort_columns(lines: &mut [[f32; COLUMNS]]) {
    let n = lines.len();
    let top = n.next_power_of_two() / 2;
    let mut p = top;
    while p > 0 {
        let (mut q, mut r, mut d) = (top, 0, p);
        loop {
            for i in (0..n - d).filter(|i| i & p == r) {
                let (before, after) = lines.split_at_mut(i + d);
                exchange(&mut before[i], &mut after[0]);
            }
            if q == p {
                break;
            }
            (d, r) = (q - p, p);
            q /= 2;
        }
        p /= 2;
    }
}

#[inline(always)]
fn exchange(low: &mut [f32; COLUMNS], high: &mut [f32; COLUMNS]) {
    for (low, high) in low.iter_mut().zip(high) {
        // Not `min` and `max`, which do not say what becomes of -0 and 0.
        (*low, *high) = if *high < *low { (*high, *low) } else { (*low, *high) };
    }
}

/// Which of at least three vectors has the least sum of squared distances to its nearest n − `n_bad` − 2 others; of equals the
/// first. That many are surely among the good ones, if no more than `n_bad` are bad.
pub(super) fn krum(vectors: &[&[&[f32]]], n_bad: usize) -> usize {
    let n = vectors.len();
    let mut distances = vec![vec![0.0; n]; n];
    for i in 0..n {
        for k in 0..i {
            let distance = vectors[i].iter().zip(vectors[k]).map(|(a, b)| squared_distance(a, b)).sum();
            (distances[i][k], distances[k][i]) = (distance, distance);
        }
    }
    let score = |mut row: Vec<f64>| -> f64 {
        // The first is its distance from itself.
        row.sort_unstable_by(f64::total_cmp);
        row.iter().skip(1).take(n.saturating_sub(n_bad + 2).max(1)).sum()
    };
    let scores: Vec<f64> = distances.into_iter().map(score).collect();
    (0..n).min_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0)
}

fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 16;
    let square = |a: f32, b: f32| (a - b) * (a - b);
    // In pieces, so that a long vector's sum does not lose the small terms.
    let pieces = a.chunks(1024).zip(b.chunks(1024)).map(|(a, b)| {
        vectorised(|| {
            let mut sums = [0.0_f32; LANES];
            let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
            for (a, b) in a.iter().zip(b) {
                sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += square(*a, *b));
            }
            let rest: f32 = a_rest.iter().zip(b_rest).map(|(a, b)| square(*a, *b)).sum();
            f64::from(sums.iter().sum::<f32>() + rest)
        })
    });
    pieces.sum()
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, krum, squared_distance, trimmed_mean};
    use nettorrent_engine::rng::Rng;

    fn rows(n: usize, len: usize) -> Vec<Vec<f32>> {
        let mut rng = Rng::new(n as u64);
        (0..n).map(|_| (0..len).map(|_| (rng.below(40) as f32 - 20.0) / 7.0).collect()).collect()
    }

    #[test]
    fn a_trimmed_mean_is_that_of_the_sorted_rest() {
        for n in (1..20).chain([33, 64, 100]) {
            for len in [1, COLUMNS - 1, COLUMNS, 3 * COLUMNS + 5] {
                let rows = rows(n, len);
                let slices: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
                for n_trimmed in 0..=(n - 1) / 2 {
                    let mut result = vec![9.0; len];
                    trimmed_mean(&slices, n_trimmed, &mut result);
                    for (k, result) in result.iter().enumerate() {
                        let mut column: Vec<f32> = rows.iter().map(|row| row[k]).collect();
                        column.sort_unstable_by(f32::total_cmp);
                        let kept = &column[n_trimmed..n - n_trimmed];
                        let expected = kept.iter().sum::<f32>() / kept.len() as f32;
                        assert!((result - expected).abs() < 1e-5, "{n} rows without {n_trimmed}: {result}, {expected}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_largest_numbers_stay_numbers() {
        let (most, least) = ([f32::MAX; 3], [-f32::MAX; 3]);
        let mut result = [0.0; 3];
        trimmed_mean(&[&most, &most], 0, &mut result);
        assert_eq!(result, most);
        assert_eq!(krum(&[&[&most], &[&least], &[&most]], 0), 0);
    }

    #[test]
    fn krum_picks_one_of_the_crowd() {
        let crowd: Vec<Vec<f32>> = rows(7, 50).into_iter().map(|row| row.iter().map(|x| x * 0.01).collect()).collect();
        for n_bad in 0..=2 {
            for first_bad in 0..5 {
                let mut all = crowd.clone();
                // Bad ones that agree with each other are still too few.
                all[first_bad..first_bad + n_bad].iter_mut().for_each(|row| row.fill(5.0));
                let halves: Vec<[&[f32]; 2]> = all.iter().map(|row| row.split_at(20).into()).collect();
                let vectors: Vec<&[&[f32]]> = halves.iter().map(<[&[f32]; 2]>::as_slice).collect();
                let picked = krum(&vectors, n_bad);
                assert!(!(first_bad..first_bad + n_bad).contains(&picked), "{n_bad} from {first_bad}: {picked}");
            }
        }
    }

    #[test]
    fn distances_are_those_of_every_coordinate() {
        for len in [0, 1, 15, 16, 17, 1024, 5000] {
            let rows = rows(2, len);
            let expected: f64 = rows[0].iter().zip(&rows[1]).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let distance = squared_distance(&rows[0], &rows[1]);
            assert!((distance - expected).abs() <= 1e-5 * expected, "{len}: {distance}, {expected}");
        }
    }
}
