//! Pooling: a window of pixels becomes one, by its largest or its mean value, for each channel.

use serde::{Deserialize, Serialize};

use crate::kernel::vectorised;
use crate::model::layer::{Backward, Context, Keeps, Layer, Scratch};

use super::window::Window;

/// What a window becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PoolKind {
    /// The mean of its values; a border counts as zeros, as in PyTorch.
    Average,
    /// The largest of its values; a border does not count.
    Max,
}

/// Pools with a sliding window.
pub struct Pool {
    /// Which value.
    pub kind: PoolKind,
    /// How the window slides.
    pub window: Window,
}

impl Pool {
    fn output(&self) -> (usize, usize) {
        let [_, height, width] = self.window.output().expect("checked when the network was built");
        (height, width)
    }

    fn output_len(&self) -> usize {
        let (height, width) = self.output();
        height * width * self.window.channels
    }

    /// Calls `visit(output pixel, pixels of its window)` for every output.
    #[inline(always)]
    fn for_each_window(&self, mut visit: impl FnMut(usize, &[usize])) {
        let (height, width) = self.output();
        let mut pixels = Vec::with_capacity(self.window.n_taps());
        for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
            pixels.clear();
            pixels.extend(self.window.inside(y, x).map(|tap| tap.pixel));
            visit(y * width + x, &pixels);
        }
    }

    fn mean_factor(&self) -> f32 {
        1.0 / self.window.n_taps() as f32
    }

    #[inline(always)]
    fn forward_one(&self, x: &[f32], y: &mut [f32]) {
        let c = self.window.channels;
        self.for_each_window(|output, pixels| {
            let y = &mut y[output * c..][..c];
            y.fill(if self.kind == PoolKind::Max { f32::NEG_INFINITY } else { 0.0 });
            for &pixel in pixels {
                let x = &x[pixel * c..][..c];
                match self.kind {
                    // Not `f32::max`, which would lose a NaN that should end the run with a clear word.
                    PoolKind::Max => {
                        y.iter_mut().zip(x).for_each(|(y, &x)| *y = if x > *y || x.is_nan() { x } else { *y });
                    }
                    PoolKind::Average => y.iter_mut().zip(x).for_each(|(y, x)| *y += x * self.mean_factor()),
                }
            }
        });
    }

    #[inline(always)]
    fn backward_one(&self, x: &[f32], y: &[f32], dy: &[f32], dx: &mut [f32], left: &mut [f32]) {
        let c = self.window.channels;
        dx.fill(0.0);
        self.for_each_window(|output, pixels| {
            let dy = &dy[output * c..][..c];
            left.copy_from_slice(dy);
            for &pixel in pixels {
                let dx = &mut dx[pixel * c..][..c];
                match self.kind {
                    PoolKind::Average => dx.iter_mut().zip(dy).for_each(|(dx, dy)| *dx += dy * self.mean_factor()),
                    PoolKind::Max => {
                        // The first of several equal values takes the whole gradient: `left` is zero after it.
                        let inputs = x[pixel * c..][..c].iter().zip(&y[output * c..][..c]);
                        for (((x, y), dx), left) in inputs.zip(dx).zip(left.iter_mut()) {
                            let taken = if x == y { *left } else { 0.0 };
                            *dx += taken;
                            *left -= taken;
                        }
                    }
                }
            }
        });
    }
}

impl Layer for Pool {
    fn keeps(&self) -> Keeps {
        let needed = self.kind == PoolKind::Max;
        Keeps { input: needed, output: needed, ..Keeps::NOTHING }
    }

    fn forward(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let images = x.chunks_exact(self.window.image_len()).zip(y.chunks_exact_mut(self.output_len()));
        vectorised(
            #[inline(always)]
            || images.for_each(|(x, y)| self.forward_one(x, y)),
        );
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch) {
        let (image_len, output_len) = (self.window.image_len(), self.output_len());
        let left = scratch.take(self.window.channels);
        vectorised(
            #[inline(always)]
            || {
                for sample in 0..context.n {
                    // An average keeps neither input nor output, so those slices are empty.
                    let x = back.x.get(sample * image_len..(sample + 1) * image_len).unwrap_or_default();
                    let y = back.y.get(sample * output_len..(sample + 1) * output_len).unwrap_or_default();
                    let dy = &back.dy[sample * output_len..][..output_len];
                    self.backward_one(x, y, dy, &mut dx[sample * image_len..][..image_len], left);
                }
            },
        );
    }
}

/// The mean of each channel over the whole image.
pub struct GlobalPool {
    /// Pixels of the image.
    pub n_pixels: usize,
    /// Channels of the image.
    pub channels: usize,
}

impl Layer for GlobalPool {
    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let factor = 1.0 / self.n_pixels as f32;
        vectorised(
            #[inline(always)]
            || {
                for (x, y) in x.chunks_exact(self.n_pixels * self.channels).zip(y.chunks_exact_mut(self.channels)) {
                    y.fill(0.0);
                    for pixel in x.chunks_exact(self.channels) {
                        y.iter_mut().zip(pixel).for_each(|(y, x)| *y += x * factor);
                    }
                }
            },
        );
    }

    fn input_gradient(&self, _: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        let factor = 1.0 / self.n_pixels as f32;
        vectorised(
            #[inline(always)]
            || {
                for (dx, dy) in
                    dx.chunks_exact_mut(self.n_pixels * self.channels).zip(back.dy.chunks_exact(self.channels))
                {
                    for pixel in dx.chunks_exact_mut(self.channels) {
                        pixel.iter_mut().zip(dy).for_each(|(dx, dy)| *dx = dy * factor);
                    }
                }
            },
        );
    }
}
