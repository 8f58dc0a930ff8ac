//! Layer norm and RMS norm: every row gets deviation 1 over its features (layer norm: and mean 0), then a scale (layer norm:
//! and a shift) that is learnt.

use crate::kernel::{sum, vectorised};
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowNormKind {
    /// Layer norm.
    Layer,
    /// RMS norm, which leaves the mean where it is and has no shift.
    Rms,
}

/// Normalises the last axis of each row by itself.
pub struct RowNorm {
    /// Layer or RMS norm.
    pub kind: RowNormKind,
    /// Length of the last axis.
    pub features: usize,
    /// Added to the mean square.
    pub epsilon: f32,
    /// The features' order in a checkpoint (see [`Tensor::axes`]).
    pub axes: Vec<(usize, usize)>,
}

impl RowNorm {
    /// A row's mean (0 for RMS norm, which does not take it off) and one over its deviation.
    #[inline(always)]
    fn moments(&self, row: &[f32]) -> (f32, f32) {
        let n = row.len() as f32;
        let mean = match self.kind {
            RowNormKind::Layer => sum([row], |[x]| x) / n,
            RowNormKind::Rms => 0.0,
        };
        let variance = sum([row], |[x]| (x - mean) * (x - mean)) / n;
        (mean, 1.0 / (variance + self.epsilon).sqrt())
    }

    #[inline(always)]
    fn input_gradient_of_row(&self, weight: &[f32], x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let n = self.features as f32;
        let (mean, inverse) = self.moments(x);
        // What a common shift of the row would change, and what a common factor.
        let by_shift = match self.kind {
            RowNormKind::Layer => sum([dy, weight], |[dy, w]| dy * w) / n,
            RowNormKind::Rms => 0.0,
        };
        let by_factor = sum([dy, weight, x], |[dy, w, x]| dy * w * (x - mean)) * inverse * inverse / n;
        for (((dx, x), dy), w) in dx.iter_mut().zip(x).zip(dy).zip(weight) {
            *dx = inverse * (dy * w - by_shift - (x - mean) * by_factor);
        }
    }
}

impl Layer for RowNorm {
    fn tensors(&self) -> Vec<Tensor> {
        let tensor =
            |name, value| Tensor::plain(name, &[self.features], Init::Constant(value)).laid_out(self.axes.clone());
        match self.kind {
            RowNormKind::Layer => vec![tensor("weight", 1.0), tensor("bias", 0.0)],
            RowNormKind::Rms => vec![tensor("weight", 1.0)],
        }
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
                    let (mean, inverse) = self.moments(x);
                    for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                        *y = (x - mean) * inverse * w;
                    }
                    // An RMS norm has none.
                    y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
                }
            },
        );
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        let weight = &context.params[..self.features];
        vectorised(
            #[inline(always)]
            || {
                let rows = back.x.chunks_exact(self.features).zip(back.dy.chunks_exact(self.features));
                for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(self.features)) {
                    self.input_gradient_of_row(weight, x, dy, dx);
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
                    let (mean, inverse) = self.moments(x);
                    for ((sum, x), dy) in weight.iter_mut().zip(x).zip(dy) {
                        *sum += dy * (x - mean) * inverse;
                    }
                    bias.iter_mut().zip(dy).for_each(|(sum, dy)| *sum += dy);
                }
            },
        );
    }
}
