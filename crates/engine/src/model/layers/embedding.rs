//! Embedding: a learnt vector for every symbol.

use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

/// Looks each number of the input up in a table of vectors.
pub struct Embedding {
    /// How many different symbols there are; inputs are whole numbers below it.
    pub n_symbols: usize,
    /// Length of a vector.
    pub features: usize,
    /// The deviation of the normal numbers that it starts as.
    pub deviation: f32,
}

impl Embedding {
    /// Inputs are numbers like any other until here; one that names no symbol counts as the nearest that is one.
    fn symbol(&self, x: f32) -> usize {
        (x.max(0.0) as usize).min(self.n_symbols - 1)
    }
}

impl Layer for Embedding {
    fn tensors(&self) -> Vec<Tensor> {
        vec![Tensor::plain("weight", &[self.n_symbols, self.features], Init::Normal(self.deviation))]
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        for (&x, y) in x.iter().zip(y.chunks_exact_mut(self.features)) {
            y.copy_from_slice(&context.params[self.symbol(x) * self.features..][..self.features]);
        }
    }

    fn input_gradient(&self, _: &Context<'_>, _: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        // A symbol has no neighbours to move to.
        dx.fill(0.0);
    }

    fn weight_gradient(&self, _: &Context<'_>, back: Backward<'_>, dw: &mut [f32], _: &mut Scratch) {
        for (&x, dy) in back.x.iter().zip(back.dy.chunks_exact(self.features)) {
            let row = &mut dw[self.symbol(x) * self.features..][..self.features];
            row.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
        }
    }
}
