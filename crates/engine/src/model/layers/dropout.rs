//! Dropout: while training, some numbers become zero and the others grow so that the mean stays.

use crate::kernel::vectorised;
use crate::model::columns::Columns;
use crate::model::layer::{Backward, Context, Keeps, Layer, Mode, Scratch};
use crate::rng::mix;

/// Drops each number with this probability.
///
/// What is dropped is a function of the step's seed, the sample's number in the batch and the place in the sample. So it
/// does not depend on how the batch is cut among threads, and the backward pass need not remember it.
pub struct Dropout {
    /// The probability to be dropped.
    pub rate: f32,
    /// Numbers per sample.
    pub len: usize,
    /// Which of the network's layers this is, so that two of them drop different things.
    pub index: usize,
    /// Which of the whole layer's numbers these are, if not all: what is dropped is what the whole layer would drop.
    pub columns: Option<Columns>,
}

impl Dropout {
    fn apply(&self, context: &Context<'_>, from: &[f32], to: &mut [f32]) {
        if context.mode == Mode::Test {
            to.copy_from_slice(from);
            return;
        }
        // A whole sample is one row; of a column, each pixel is one, and the next begins where all columns' pixels do.
        let (width, step, start) = match &self.columns {
            None => (self.len, self.len, 0),
            Some(columns) => (columns.channels.len(), columns.n_channels, columns.channels.start),
        };
        let samples = from.chunks_exact(self.len).zip(to.chunks_exact_mut(self.len));
        for (sample, (from, to)) in samples.enumerate() {
            let mask = DropMask::new(context, self.index, context.first + sample, self.rate);
            vectorised(
                #[inline(always)]
                || {
                    let rows = from.chunks_exact(width).zip(to.chunks_exact_mut(width));
                    for (row, (from, to)) in rows.enumerate() {
                        let first = row * step + start;
                        let places = from.iter().zip(to).enumerate();
                        places.for_each(|(i, (from, to))| *to = from * mask.factor(first + i));
                    }
                },
            );
        }
    }
}

/// What a layer drops of one sample: a function of the step's seed, the layer and the sample.
#[derive(Clone, Copy)]
pub(super) struct DropMask {
    keys: [u32; 2],
    threshold: u32,
    scale: f32,
}

impl DropMask {
    /// Drops numbers with this probability; none outside of training.
    pub(super) fn new(context: &Context<'_>, index: usize, sample: usize, rate: f32) -> Self {
        let Mode::Train { seed } = context.mode else { return Self { keys: [0, 1], threshold: 0, scale: 1.0 } };
        let key = mix(seed ^ mix((index as u64) << 32 | sample as u64));
        let threshold = (f64::from(rate) * 2_f64.powi(32)) as u32;
        Self { keys: [key as u32, (key >> 32) as u32 | 1], threshold, scale: 1.0 / (1.0 - rate) }
    }

    /// What the number at this place is multiplied with.
    #[inline(always)]
    fn factor(&self, place: usize) -> f32 {
        let kept = hash(place as u32, self.keys[0], self.keys[1]) >= self.threshold;
        if kept { self.scale } else { 0.0 }
    }

    /// Drops some of the numbers of neighbouring rows: the first `width` of `whole_width` in each, from row `first` on.
    pub(super) fn apply(&self, first: usize, whole_width: usize, width: usize, numbers: &mut [f32]) {
        if self.threshold == 0 {
            return;
        }
        vectorised(
            #[inline(always)]
            || {
                for (row, numbers) in numbers.chunks_exact_mut(width).enumerate() {
                    let start = (first + row) * whole_width;
                    numbers.iter_mut().enumerate().for_each(|(i, number)| *number *= self.factor(start + i));
                }
            },
        );
    }
}

/// 32 random bits for a place: two rounds of multiply and fold, enough for a mask and cheap on vectors.
#[inline(always)]
fn hash(place: u32, key_a: u32, key_b: u32) -> u32 {
    let x = place.wrapping_mul(key_b) ^ key_a;
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

impl Layer for Dropout {
    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        self.apply(context, x, y);
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        self.apply(context, back.dy, dx);
    }
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn drops_the_right_share_everywhere() {
        for key in 0..50_u32 {
            let (a, b) = (key.wrapping_mul(0x9e37_79b9), key.wrapping_mul(0x85eb_ca6b) | 1);
            let below = (0..10_000).filter(|&i| hash(i, a, b) < u32::MAX / 4).count();
            assert!((2_250..2_750).contains(&below), "{below} of 10000 at key {key}");
        }
    }
}
