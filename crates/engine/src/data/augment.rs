//! Pictures shifted and mirrored at random, so that a network does not learn the pixels by heart.

use super::Batch;
use crate::rng::Rng;

/// Whether pictures may be mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flip {
    /// Half of them, left to right. Not for digits or letters, which mean something else in the mirror.
    Horizontal,
    /// None.
    Never,
}

/// Shifts each picture by up to `padding` pixels each way, and mirrors it as `flip` says.
///
/// It is as if each picture got a border of `padding` zeros and a piece of the old size were cut out at random. The samples
/// are normalised already, so zero is the mean colour. `shape` is `[height, width, channels]`.
///
/// # Panics
/// If the batch does not consist of pictures of this shape.
pub(crate) fn crop_flip(batch: &mut Batch, shape: [usize; 3], padding: usize, flip: Flip, rng: &mut Rng) {
    let [height, width, n_channels] = shape;
    let per_sample = height * width * n_channels;
    assert_eq!(batch.inputs.len(), batch.len() * per_sample, "the batch does not hold pictures of shape {shape:?}");
    if per_sample == 0 {
        return;
    }
    let mut original = vec![0.0; per_sample];
    for picture in batch.inputs.chunks_exact_mut(per_sample) {
        let down = rng.below(2 * padding + 1) as isize - padding as isize;
        let right = rng.below(2 * padding + 1) as isize - padding as isize;
        // Drawn even where it is not used, so that the crops are the same with and without mirroring.
        let mirrored = rng.below(2) == 1 && flip == Flip::Horizontal;
        original.copy_from_slice(picture);
        for (y, row) in picture.chunks_exact_mut(width * n_channels).enumerate() {
            match inside(y, down, height) {
                Some(from) => {
                    let source = &original[from * width * n_channels..][..width * n_channels];
                    shift_row(row, source, right, n_channels);
                }
                None => row.fill(0.0),
            }
            if mirrored {
                mirror_row(row, n_channels);
            }
        }
    }
}

/// Where a row or column comes from, if it is inside the picture.
fn inside(at: usize, offset: isize, length: usize) -> Option<usize> {
    at.checked_add_signed(offset).filter(|&from| from < length)
}

/// `row[x] = source[x + offset]` in pixels, zero where there is no such pixel.
fn shift_row(row: &mut [f32], source: &[f32], offset: isize, n_channels: usize) {
    row.fill(0.0);
    let n_shifted = (offset.unsigned_abs() * n_channels).min(row.len());
    let n_kept = row.len() - n_shifted;
    if offset >= 0 {
        row[..n_kept].copy_from_slice(&source[n_shifted..]);
    } else {
        row[n_shifted..].copy_from_slice(&source[..n_kept]);
    }
}

fn mirror_row(row: &mut [f32], n_channels: usize) {
    let width = row.len() / n_channels;
    for x in 0..width / 2 {
        for channel in 0..n_channels {
            row.swap(x * n_channels + channel, (width - 1 - x) * n_channels + channel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Flip, crop_flip};
    use crate::data::Batch;
    use crate::rng::Rng;

    fn batch(n_samples: usize, shape: [usize; 3]) -> Batch {
        let n = n_samples * shape.iter().product::<usize>();
        Batch::labelled((1..=n).map(|x| x as f32).collect(), vec![0; n_samples])
    }

    #[test]
    fn every_result_is_a_shift_perhaps_mirrored_and_all_occur() {
        let shape = [3, 4, 2];
        let before = batch(1, shape);
        let pixel = |y: isize, x: isize, c: usize| {
            let inside = (0..3).contains(&y) && (0..4).contains(&x);
            if inside { before.inputs[(y * 8 + x * 2) as usize + c] } else { 0.0 }
        };
        let mut possible = Vec::new();
        for (down, right, mirrored) in (-1..=1).flat_map(|y| (-1..=1).flat_map(move |x| [(y, x, false), (y, x, true)]))
        {
            let picture = (0..24).map(|i| {
                let (y, x, c) = (i / 8, i / 2 % 4, i % 2);
                let x = if mirrored { 3 - x } else { x };
                pixel(y as isize + down, x as isize + right, c)
            });
            possible.push(picture.collect::<Vec<f32>>());
        }
        let mut rng = Rng::new(1);
        let mut seen = vec![false; possible.len()];
        for _ in 0..500 {
            let mut after = before.clone();
            crop_flip(&mut after, shape, 1, Flip::Horizontal, &mut rng);
            seen[possible.iter().position(|picture| *picture == after.inputs).expect("a shift of the picture")] = true;
        }
        assert!(seen.iter().all(|&seen| seen));
    }

    #[test]
    fn the_same_seed_gives_the_same_pictures() {
        let shape = [5, 5, 3];
        let run = |seed, padding, flip| {
            let mut batch = batch(7, shape);
            crop_flip(&mut batch, shape, padding, flip, &mut Rng::new(seed));
            batch
        };
        assert_eq!(run(1, 2, Flip::Horizontal), run(1, 2, Flip::Horizontal));
        assert_ne!(run(1, 2, Flip::Horizontal), run(2, 2, Flip::Horizontal));
        assert_eq!(run(1, 0, Flip::Never), batch(7, shape));
        // More padding than picture: it may be shifted out of sight altogether, which must not panic.
        run(3, 20, Flip::Horizontal);
    }
}
