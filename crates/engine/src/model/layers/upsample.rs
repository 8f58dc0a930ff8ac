//! Upsampling: every pixel becomes a square of equal ones.

use crate::kernel::vectorised;
use crate::model::layer::{Backward, Context, Keeps, Layer, Scratch};

/// Repeats every pixel along rows and columns.
pub struct Upsample {
    /// Columns of the image; its rows follow from its length.
    pub width: usize,
    /// Channels of the image.
    pub channels: usize,
    /// How often each pixel is repeated, both ways.
    pub factor: usize,
}

impl Upsample {
    /// Calls `visit(place in the smaller image, place in the larger)` for every pixel of `n` numbers of the larger one.
    #[inline(always)]
    fn for_each_pixel(&self, n: usize, mut visit: impl FnMut(usize, usize)) {
        let wide = self.width * self.factor;
        for pixel in 0..n / self.channels {
            let (row, column) = (pixel / wide / self.factor, pixel % wide / self.factor);
            visit((row * self.width + column) * self.channels, pixel * self.channels);
        }
    }
}

impl Layer for Upsample {
    fn keeps(&self) -> Keeps {
        Keeps::NOTHING
    }

    fn forward(&self, _: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        self.for_each_pixel(y.len(), |small, large| {
            y[large..large + self.channels].copy_from_slice(&x[small..small + self.channels]);
        });
    }

    fn input_gradient(&self, _: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        dx.fill(0.0);
        vectorised(
            #[inline(always)]
            || {
                self.for_each_pixel(back.dy.len(), |small, large| {
                    let pixel = &mut dx[small..small + self.channels];
                    pixel.iter_mut().zip(&back.dy[large..]).for_each(|(sum, dy)| *sum += dy);
                });
            },
        );
    }
}
