//! Convolution over images, sequences or volumes with channels last.

use crate::kernel::{ConvShape, correlate, correlate_transposed, pack, packed_len, vectorised};
use crate::model::layer::{Backward, Context, Init, Keeps, Layer, Scratch, Tensor};

use super::rows::add_rows;
use super::window::Window;

/// A filter that slides over an image. Weights lie as `[plane][row][column][in][out]`.
pub struct Conv {
    /// How it slides.
    pub window: Window,
    /// Channels of the output.
    pub out_channels: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Conv {
    pub(super) fn n_weights(&self) -> usize {
        self.window.n_taps() * self.window.channels * self.out_channels
    }

    /// A convolution from images with their border to an output of this size.
    fn shape(window: &Window, [out_depth, out_height, out_width]: [usize; 3], out_channels: usize) -> ConvShape {
        let ([depth, height, width], [kernel_depth, kernel_height, kernel_width]) = (window.padded(), window.kernel);
        ConvShape {
            depth,
            height,
            width,
            in_channels: window.channels,
            kernel_depth,
            kernel_height,
            kernel_width,
            stride: window.stride,
            out_depth,
            out_height,
            out_width,
            out_channels,
        }
    }

    fn output(&self) -> [usize; 3] {
        self.window.output().expect("checked when the network was built")
    }

    /// The forward pass: from the padded image to the output.
    fn up(&self) -> ConvShape {
        Self::shape(&self.window, self.output(), self.out_channels)
    }

    /// The backward pass is a convolution too, with the filter turned round, over the output's gradient with this border.
    fn down_window(&self) -> Window {
        let padding = std::array::from_fn(|axis| self.window.kernel[axis] - 1 - self.window.padding[axis]);
        Window { size: self.output(), channels: self.out_channels, stride: 1, padding, ..self.window }
    }

    fn down(&self) -> ConvShape {
        Self::shape(&self.down_window(), self.window.size, self.window.channels)
    }

    /// With steps of more than one pixel, the backward pass goes tap by tap: each is a product of its own, spread over the image.
    fn down_one_tap(&self) -> ConvShape {
        let window = Window { kernel: [1; 3], padding: [0; 3], ..self.down_window() };
        Self::shape(&window, self.output(), self.window.channels)
    }

    fn n_packed_up(&self) -> usize {
        packed_len(self.up().n_inputs(), self.out_channels)
    }

    fn n_packed_tap(&self) -> usize {
        packed_len(self.out_channels, self.window.channels)
    }

    /// The images with their border: as they are when there is none.
    fn padded<'a>(window: &Window, images: &'a [f32], scratch: &'a mut Scratch) -> &'a [f32] {
        if window.padding == [0; 3] {
            return images;
        }
        let padded = scratch.take(images.len() / window.image_len() * window.padded_len());
        window.pad(images, 0.0, padded);
        padded
    }

    fn input_gradient_by_taps(&self, filter: &[f32], dy: &[f32], dx: &mut [f32], scratch: &mut Scratch) {
        let shape = self.down_one_tap();
        let Window { size, channels, kernel, stride, padding, .. } = self.window;
        dx.fill(0.0);
        let image_len = self.window.image_len();
        for (dy, dx) in dy.chunks_exact(shape.image_len()).zip(dx.chunks_exact_mut(image_len)) {
            for (tap, filter) in filter.chunks_exact(self.n_packed_tap()).enumerate() {
                let part = scratch.take(shape.output_len());
                correlate(&shape, dy, filter, None, part);
                let tap = place(tap, kernel);
                vectorised(
                    #[inline(always)]
                    || {
                        for (output, part) in part.chunks_exact(channels).enumerate() {
                            let output = place(output, [shape.out_depth, shape.out_height, shape.out_width]);
                            let at = |axis: usize| (output[axis] * stride + tap[axis]).wrapping_sub(padding[axis]);
                            let [z, y, x] = [at(0), at(1), at(2)];
                            if z < size[0] && y < size[1] && x < size[2] {
                                let pixel = &mut dx[((z * size[1] + y) * size[2] + x) * channels..][..channels];
                                pixel.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
                            }
                        }
                    },
                );
            }
        }
    }
}

/// Plane, row and column of a pixel, counted row by row in an image of this size.
#[inline(always)]
fn place(pixel: usize, [_, height, width]: [usize; 3]) -> [usize; 3] {
    [pixel / width / height, pixel / width % height, pixel % width]
}

impl Layer for Conv {
    fn tensors(&self) -> Vec<Tensor> {
        let Window { kernel, channels, n_axes, .. } = self.window;
        let out = self.out_channels;
        let fan_in = (self.window.n_taps() * channels) as f32;
        let fan_out = (self.window.n_taps() * out) as f32;
        // Without a bias a norm follows, and what is customary then is He's deviation over the outputs.
        let init = if self.bias { Init::Uniform(1.0 / fan_in.sqrt()) } else { Init::Normal((2.0 / fan_out).sqrt()) };
        let mut shape = vec![out, channels];
        let mut axes = vec![(out, 1), (channels, out)];
        for axis in 3 - n_axes..3 {
            shape.push(kernel[axis]);
            axes.push((kernel[axis], kernel[axis + 1..].iter().product::<usize>() * channels * out));
        }
        let weight = Tensor::plain("weight", &shape, init).laid_out(axes);
        let bias = self.bias.then(|| Tensor::plain("bias", &[out], Init::Uniform(1.0 / fan_in.sqrt())));
        [Some(weight), bias].into_iter().flatten().collect()
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn n_multiplications(&self) -> usize {
        let up = self.up();
        up.output_len() * up.n_inputs()
    }

    fn n_prepared(&self) -> usize {
        self.n_packed_up() + self.window.n_taps() * self.n_packed_tap()
    }

    fn prepare(&self, params: &[f32], prepared: &mut [f32]) {
        let (channels, out, taps) = (self.window.channels, self.out_channels, self.window.n_taps());
        let (up, down) = prepared.split_at_mut(self.n_packed_up());
        pack(self.up().n_inputs(), out, up, |input, channel| params[input * out + channel]);
        let weight = |tap: usize, o: usize, i: usize| params[(tap * channels + i) * out + o];
        if self.window.stride == 1 {
            pack(taps * out, channels, down, |input, i| weight(taps - 1 - input / out, input % out, i));
        } else {
            for (tap, down) in down.chunks_exact_mut(self.n_packed_tap()).enumerate() {
                pack(out, channels, down, |o, i| weight(tap, o, i));
            }
        }
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], scratch: &mut Scratch) {
        let bias = self.bias.then(|| &context.params[self.n_weights()..]);
        let images = Self::padded(&self.window, x, scratch);
        let filter = &context.prepared[..self.n_packed_up()];
        correlate(&self.up(), images, filter, bias, y);
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], scratch: &mut Scratch) {
        let filter = &context.prepared[self.n_packed_up()..];
        if self.window.stride == 1 {
            let images = Self::padded(&self.down_window(), back.dy, scratch);
            correlate(&self.down(), images, filter, None, dx);
        } else {
            self.input_gradient_by_taps(filter, back.dy, dx, scratch);
        }
    }

    fn overwrites(&self) -> bool {
        true
    }

    fn weight_gradient(&self, context: &Context<'_>, back: Backward<'_>, dw: &mut [f32], scratch: &mut Scratch) {
        let (weights, bias) = dw.split_at_mut(self.n_weights());
        let images = Self::padded(&self.window, back.x, scratch);
        correlate_transposed(&self.up(), images, back.dy, context.before, weights);
        if self.bias {
            add_rows(back.dy, context.before, bias);
        }
    }
}
