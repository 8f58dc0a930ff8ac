//! Depth-wise convolution: every channel has a filter of its own.

use crate::kernel::{Before, vectorised};
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

use super::rows::add_rows;
use super::window::Window;

/// A filter per channel. Weights lie as `[row][column][channel]`.
pub struct Depthwise {
    /// How the filters slide.
    pub window: Window,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Depthwise {
    fn n_weights(&self) -> usize {
        self.window.n_taps() * self.window.channels
    }

    fn output(&self) -> (usize, usize) {
        let [_, height, width] = self.window.output().expect("checked when the network was built");
        (height, width)
    }

    /// Calls `visit(pixel in the image, pixel in the output, place in the filter)` for each that meet.
    #[inline(always)]
    fn for_each_meeting(&self, mut visit: impl FnMut(usize, usize, usize)) {
        let (height, width) = self.output();
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            for tap in self.window.inside(y, x) {
                visit(tap.pixel, y * width + x, tap.weight);
            }
        }
    }

    fn output_len(&self) -> usize {
        let (height, width) = self.output();
        height * width * self.window.channels
    }
}

/// `sum += a * b`, element by element.
#[inline(always)]
fn add_products(sum: &mut [f32], a: &[f32], b: &[f32]) {
    for ((sum, a), b) in sum.iter_mut().zip(a).zip(b) {
        *sum += a * b;
    }
}

impl Layer for Depthwise {
    fn tensors(&self) -> Vec<Tensor> {
        let Window { kernel: [_, kernel, _], channels, .. } = self.window;
        let bound = Init::Uniform(1.0 / kernel as f32);
        let axes = vec![(channels, 1), (kernel, kernel * channels), (kernel, channels)];
        let weight = Tensor::plain("weight", &[channels, 1, kernel, kernel], bound).laid_out(axes);
        let bias = self.bias.then(|| Tensor::plain("bias", &[channels], bound));
        [Some(weight), bias].into_iter().flatten().collect()
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn n_multiplications(&self) -> usize {
        self.output_len() * self.window.n_taps()
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let (weights, bias) = context.params.split_at(self.n_weights());
        let c = self.window.channels;
        vectorised(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(self.window.image_len()).zip(y.chunks_exact_mut(self.output_len())) {
                    match self.bias {
                        true => y.chunks_exact_mut(c).for_each(|pixel| pixel.copy_from_slice(bias)),
                        false => y.fill(0.0),
                    }
                    self.for_each_meeting(|pixel, output, weight| {
                        add_products(&mut y[output * c..][..c], &x[pixel * c..][..c], &weights[weight * c..][..c]);
                    });
                }
            },
        );
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        let c = self.window.channels;
        let weights = context.params;
        dx.fill(0.0);
        vectorised(
            #[inline(always)]
            || {
                for (dx, dy) in
                    dx.chunks_exact_mut(self.window.image_len()).zip(back.dy.chunks_exact(self.output_len()))
                {
                    self.for_each_meeting(|pixel, output, weight| {
                        add_products(&mut dx[pixel * c..][..c], &dy[output * c..][..c], &weights[weight * c..][..c]);
                    });
                }
            },
        );
    }

    fn weight_gradient(&self, _: &Context<'_>, back: Backward<'_>, dw: &mut [f32], _: &mut Scratch) {
        let (weights, bias) = dw.split_at_mut(self.n_weights());
        let c = self.window.channels;
        vectorised(
            #[inline(always)]
            || {
                for (x, dy) in back.x.chunks_exact(self.window.image_len()).zip(back.dy.chunks_exact(self.output_len()))
                {
                    self.for_each_meeting(|pixel, output, weight| {
                        add_products(&mut weights[weight * c..][..c], &x[pixel * c..][..c], &dy[output * c..][..c]);
                    });
                }
            },
        );
        if self.bias {
            add_rows(back.dy, Before::Kept, bias);
        }
    }
}
