//! A fully connected layer: every output is a weighted sum of every input.

use crate::kernel::{Before, Matrix, MatrixMut, multiply, vectorised};
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

use super::rows::add_rows;

/// `y = W x + b`, for each row of a sample (a flat sample is one row).
pub struct Dense {
    /// Rows per sample: 1, or the steps of a sequence.
    pub n_rows: usize,
    /// Inputs per row.
    pub n_inputs: usize,
    /// Outputs per row.
    pub n_outputs: usize,
    /// Whether there is a `b`.
    pub bias: bool,
    /// The inputs' order in a checkpoint: their axes there and how far apart they are here (see [`Tensor::axes`]).
    pub input_axes: Vec<(usize, usize)>,
}

impl Dense {
    fn n_weights(&self) -> usize {
        self.n_inputs * self.n_outputs
    }
}

impl Layer for Dense {
    fn tensors(&self) -> Vec<Tensor> {
        let bound = 1.0 / (self.n_inputs as f32).sqrt();
        let mut axes = vec![(self.n_outputs, self.n_inputs)];
        axes.extend(&self.input_axes);
        let weight = Tensor::plain("weight", &[self.n_outputs, self.n_inputs], Init::Uniform(bound)).laid_out(axes);
        let bias = self.bias.then(|| Tensor::plain("bias", &[self.n_outputs], Init::Uniform(bound)));
        [Some(weight), bias].into_iter().flatten().collect()
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn wants_whole_batch(&self) -> bool {
        true
    }

    fn n_multiplications(&self) -> usize {
        self.n_rows * self.n_weights()
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let rows = context.n * self.n_rows;
        let (weights, bias) = context.params.split_at(self.n_weights());
        if self.bias {
            vectorised(|| y.chunks_exact_mut(self.n_outputs).for_each(|row| row.copy_from_slice(bias)));
        }
        let weights = Matrix::new(weights, self.n_outputs, self.n_inputs);
        let keep = if self.bias { 1.0 } else { 0.0 };
        let out = &mut MatrixMut::new(y, rows, self.n_outputs);
        multiply(Matrix::new(x, rows, self.n_inputs), weights.transposed(), keep, out);
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        let rows = context.n * self.n_rows;
        let weights = Matrix::new(&context.params[..self.n_weights()], self.n_outputs, self.n_inputs);
        let out = &mut MatrixMut::new(dx, rows, self.n_inputs);
        multiply(Matrix::new(back.dy, rows, self.n_outputs), weights, 0.0, out);
    }

    fn overwrites(&self) -> bool {
        true
    }

    fn weight_gradient(&self, context: &Context<'_>, back: Backward<'_>, dw: &mut [f32], _: &mut Scratch) {
        let rows = context.n * self.n_rows;
        let (weights, bias) = dw.split_at_mut(self.n_weights());
        let dy = Matrix::new(back.dy, rows, self.n_outputs).transposed();
        let out = &mut MatrixMut::new(weights, self.n_outputs, self.n_inputs);
        let keep = if context.before == Before::Kept { 1.0 } else { 0.0 };
        multiply(dy, Matrix::new(back.x, rows, self.n_inputs), keep, out);
        if self.bias {
            add_rows(back.dy, context.before, bias);
        }
    }
}
