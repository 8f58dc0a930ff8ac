//! Layer norm: every row gets mean 0 and deviation 1 over its features, then a scale and a shift that are learnt.

use crate::kernel::vectorised;
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

/// Normalises the last axis of each row by itself.
pub struct LayerNorm {
    /// Length of the last axis.
    pub features: usize,
    /// The features' order in a checkpoint (see [`Tensor::axes`]).
    pub axes: Vec<(usize, usize)>,
}

const EPSILON: f32 = 1e-5;

/// A row's mean and one over its deviation.
#[inline(always)]
fn moments(row: &[f32]) -> (f32, f32) {
    let n = row.len() as f32;
    let mean = row.iter().sum::<f32>() / n;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / n;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

impl Layer for LayerNorm {
    fn tensors(&self) -> Vec<Tensor> {
        let tensor =
            |name, value| Tensor::plain(name, &[self.features], Init::Constant(value)).laid_out(self.axes.clone());
        vec![tensor("weight", 1.0), tensor("bias", 0.0)]
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let (weight, bias) = context.params.split_at(self.features);
        vectorised(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(self.features).zip(y.chunks_exact_mut(self.features)) {
                    let (mean, inverse) = moments(x);
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = (x[i] - mean) * inverse * weight[i] + bias[i];
                    }
                }
            },
        );
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        let n = self.features as f32;
        let weight = &context.params[..self.features];
        vectorised(
            #[inline(always)]
            || {
                let rows = back.x.chunks_exact(self.features).zip(back.dy.chunks_exact(self.features));
                for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(self.features)) {
                    let (mean, inverse) = moments(x);
                    let (mut sum, mut projection) = (0.0, 0.0);
                    for i in 0..x.len() {
                        sum += dy[i] * weight[i];
                        projection += dy[i] * weight[i] * (x[i] - mean) * inverse;
                    }
                    for (i, dx) in dx.iter_mut().enumerate() {
                        let normal = (x[i] - mean) * inverse;
                        *dx = inverse * (dy[i] * weight[i] - sum / n - normal * projection / n);
                    }
                }
            },
        );
    }

    fn weight_gradient(&self, _: &Context<'_>, back: Backward<'_>, dw: &mut [f32], _: &mut Scratch) {
        let (weight, bias) = dw.split_at_mut(self.features);
        vectorised(
            #[inline(always)]
            || {
                for (x, dy) in back.x.chunks_exact(self.features).zip(back.dy.chunks_exact(self.features)) {
                    let (mean, inverse) = moments(x);
                    for i in 0..x.len() {
                        weight[i] += dy[i] * (x[i] - mean) * inverse;
                        bias[i] += dy[i];
                    }
                }
            },
        );
    }
}
