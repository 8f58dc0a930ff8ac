//! Learnt positions: a vector for every place in a sequence, added to what is there.

use crate::kernel::vectorised;
use crate::model::layer::{Backward, Cache, Context, Init, Keeps, Layer, Scratch, Tensor};

/// Adds a learnt vector to each position.
pub struct Positions {
    /// How many positions there are vectors for.
    pub n_positions: usize,
    /// Positions of a sequence: as many or fewer.
    pub n_steps: usize,
    /// Length of a vector.
    pub features: usize,
    /// The deviation of the normal numbers that it starts as.
    pub deviation: f32,
}

impl Layer for Positions {
    fn tensors(&self) -> Vec<Tensor> {
        vec![Tensor::plain("weight", &[self.n_positions, self.features], Init::Normal(self.deviation))]
    }

    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let len = self.n_steps * self.features;
        let vectors = &context.params[..len];
        for (x, y) in x.chunks_exact(len).zip(y.chunks_exact_mut(len)) {
            vectorised(|| x.iter().zip(vectors).zip(y).for_each(|((x, vector), y)| *y = x + vector));
        }
    }

    fn next(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], cache: &mut Cache, _: &mut Scratch) {
        let vector = &context.params[cache.n_read * self.features..][..self.features];
        x.iter().zip(vector).zip(y).for_each(|((x, vector), y)| *y = x + vector);
    }

    fn input_gradient(&self, _: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        dx.copy_from_slice(back.dy);
    }

    fn weight_gradient(&self, _: &Context<'_>, back: Backward<'_>, dw: &mut [f32], _: &mut Scratch) {
        let len = self.n_steps * self.features;
        for dy in back.dy.chunks_exact(len) {
            vectorised(|| dw[..len].iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy));
        }
    }
}
