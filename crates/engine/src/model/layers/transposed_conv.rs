//! Transposed convolution: a convolution run backwards, so that images grow.

use crate::kernel::vectorised;
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

use super::conv::Conv;
use super::rows::add_rows;

/// What a convolution's gradient by its input is to its gradient by its output, with a bias.
pub struct TransposedConv {
    /// The convolution that goes the other way: from this layer's output to its input. It has no bias.
    pub conv: Conv,
    /// Whether a bias is added to the output.
    pub bias: bool,
}

impl Layer for TransposedConv {
    fn tensors(&self) -> Vec<Tensor> {
        let out = self.conv.window.channels;
        let init = Init::Uniform(1.0 / ((self.conv.window.n_taps() * out) as f32).sqrt());
        let weights = self.conv.tensors().into_iter().map(|weight| Tensor { init, ..weight });
        weights.chain(self.bias.then(|| Tensor::plain("bias", &[out], init))).collect()
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn n_multiplications(&self) -> usize {
        self.conv.n_multiplications()
    }

    fn n_prepared(&self) -> usize {
        self.conv.n_prepared()
    }

    fn prepare(&self, params: &[f32], prepared: &mut [f32]) {
        self.conv.prepare(params, prepared);
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], scratch: &mut Scratch) {
        let back = Backward { x: &[], y: &[], dy: x, dx: &[] };
        self.conv.input_gradient(context, back, y, scratch);
        if self.bias {
            let bias = &context.params[self.conv.n_weights()..];
            vectorised(
                #[inline(always)]
                || {
                    for pixel in y.chunks_exact_mut(bias.len()) {
                        pixel.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
                    }
                },
            );
        }
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch) {
        self.conv.forward(context, back.dy, dx, scratch);
    }

    fn overwrites(&self) -> bool {
        true
    }

    fn weight_gradient(&self, context: &Context<'_>, back: Backward<'_>, dw: &mut [f32], scratch: &mut Scratch) {
        let (weights, bias) = dw.split_at_mut(self.conv.n_weights());
        let turned = Backward { x: back.dy, y: &[], dy: back.x, dx: &[] };
        self.conv.weight_gradient(context, turned, weights, scratch);
        if self.bias {
            add_rows(back.dy, context.before, bias);
        }
    }
}
