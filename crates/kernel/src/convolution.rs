//! Convolution without unfolding: tiles of output are summed up in registers straight from the (padded) image.
//!
//! Images lie channels last, so for one row of the filter the inputs that an output pixel needs are one contiguous run of
//! `kernel_width * in_channels` numbers, and neighbouring pixels' runs start `stride * in_channels` apart. That makes a
//! convolution a sum of `kernel_height` matrix products whose left side is the image itself.

use pulp::{Simd, WithSimd};

use super::tiles::{At, Tiled, WIDEST, add_products, for_each_tile, panels};
use super::vectors::{load, store};

/// The sizes of a convolution over images that already have their padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvShape {
    /// Planes of a padded image: 1, unless it is a volume.
    pub depth: usize,
    /// Rows of a padded image.
    pub height: usize,
    /// Columns of a padded image.
    pub width: usize,
    /// Channels of an image.
    pub in_channels: usize,
    /// Planes of the filter.
    pub kernel_depth: usize,
    /// Rows of the filter.
    pub kernel_height: usize,
    /// Columns of the filter.
    pub kernel_width: usize,
    /// Steps between neighbouring outputs, in all directions.
    pub stride: usize,
    /// Planes of the output.
    pub out_depth: usize,
    /// Rows of the output.
    pub out_height: usize,
    /// Columns of the output.
    pub out_width: usize,
    /// Channels of the output.
    pub out_channels: usize,
}

impl ConvShape {
    /// One pixel with one channel becomes another; for all that a convolution does not have.
    pub const POINT: Self = Self {
        depth: 1,
        height: 1,
        width: 1,
        in_channels: 1,
        kernel_depth: 1,
        kernel_height: 1,
        kernel_width: 1,
        stride: 1,
        out_depth: 1,
        out_height: 1,
        out_width: 1,
        out_channels: 1,
    };

    /// The inputs that one output needs from one row of the image: they lie next to each other.
    fn run(&self) -> usize {
        self.kernel_width * self.in_channels
    }

    /// How many numbers one padded image holds.
    pub fn image_len(&self) -> usize {
        self.depth * self.height * self.width * self.in_channels
    }

    /// How many numbers one output holds.
    pub fn output_len(&self) -> usize {
        self.out_depth * self.out_height * self.out_width * self.out_channels
    }

    /// How many inputs each output is made of.
    pub fn n_inputs(&self) -> usize {
        self.kernel_depth * self.kernel_height * self.run()
    }

    /// The rows of the filter: which plane, and which row of it.
    #[inline(always)]
    fn rows(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Self { kernel_depth, kernel_height, .. } = *self;
        (0..kernel_depth).flat_map(move |plane| (0..kernel_height).map(move |row| (plane, row)))
    }

    /// Where the inputs begin that one row of the filter needs for a line of the output, the lines counted over all images.
    #[inline(always)]
    fn start(&self, out_line: usize, plane: usize, row: usize) -> usize {
        let (out_plane, y) = (out_line / self.out_height, out_line % self.out_height);
        let (image, z) = (out_plane / self.out_depth, out_plane % self.out_depth);
        let line = (image * self.depth + z * self.stride + plane) * self.height + y * self.stride + row;
        line * self.width * self.in_channels
    }

    fn check(&self, images: &[f32], outputs: &[f32]) {
        let reach = |out: usize, kernel: usize| (out - 1) * self.stride + kernel;
        assert!(reach(self.out_depth, self.kernel_depth) <= self.depth, "too few planes for {self:?}");
        assert!(reach(self.out_height, self.kernel_height) <= self.height, "too few rows for {self:?}");
        assert!(reach(self.out_width, self.kernel_width) <= self.width, "too few columns for {self:?}");
        let n_images = outputs.len() / self.output_len();
        assert_eq!(outputs.len(), n_images * self.output_len(), "the outputs must be whole");
        assert_eq!(images.len(), n_images * self.image_len(), "as many images as outputs");
    }
}

/// How many numbers a packed filter of `n_inputs` by `n_channels` takes: the channels are rounded up to whole vectors.
pub fn packed_len(n_inputs: usize, n_channels: usize) -> usize {
    n_inputs * n_channels.next_multiple_of(WIDEST)
}

/// Lays a filter out as [`correlate`] reads it: for a few channels at a time, all inputs one after the other.
///
/// `weight(input, channel)` tells the filter's numbers.
pub fn pack(n_inputs: usize, n_channels: usize, packed: &mut [f32], weight: impl Fn(usize, usize) -> f32) {
    assert_eq!(packed.len(), packed_len(n_inputs, n_channels));
    for (channel, width) in panels(n_channels) {
        let panel = &mut packed[channel * n_inputs..][..width * n_inputs];
        for (input, row) in panel.chunks_exact_mut(width).enumerate() {
            for (c, number) in row.iter_mut().enumerate() {
                *number = if channel + c < n_channels { weight(input, channel + c) } else { 0.0 };
            }
        }
    }
}

/// `outputs = bias + images * filter`. The filter is one that [`pack`] laid out, its inputs counted as `[plane][row][column][channel]`.
pub fn correlate(shape: &ConvShape, images: &[f32], filter: &[f32], bias: Option<&[f32]>, outputs: &mut [f32]) {
    shape.check(images, outputs);
    assert_eq!(filter.len(), packed_len(shape.n_inputs(), shape.out_channels));
    assert!(bias.is_none_or(|bias| bias.len() == shape.out_channels));
    pulp::Arch::new().dispatch(Correlate { shape: *shape, images, filter, bias, outputs });
}

/// What becomes of numbers that are already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// They are added to.
    Kept,
    /// They are overwritten.
    Lost,
}

/// `filter_gradient (+)= images^T * output_gradients`; the filter's gradient lies as `[plane][row][column][in][out]`.
pub fn correlate_transposed(
    shape: &ConvShape,
    images: &[f32],
    output_gradients: &[f32],
    before: Before,
    filter_gradient: &mut [f32],
) {
    shape.check(images, output_gradients);
    assert_eq!(filter_gradient.len(), shape.n_inputs() * shape.out_channels);
    let n_lines = output_gradients.len() / (shape.out_width * shape.out_channels);
    for start in (0..n_lines).step_by(strip(shape)) {
        let lines = start..n_lines.min(start + strip(shape));
        let keeps = start > 0 || before == Before::Kept;
        let shape = *shape;
        pulp::Arch::new().dispatch(CorrelateTransposed {
            shape,
            images,
            output_gradients,
            lines,
            keeps,
            filter_gradient,
        });
    }
}

/// How many lines of output [`correlate_transposed`] goes through at a time.
///
/// Every tile of the filter's gradient goes through all of them, so they should stay in the first-level cache; but each time
/// the whole gradient is read and written, so there should be pixels enough to make up for that, most of all where it is too
/// large for the second-level cache.
fn strip(shape: &ConvShape) -> usize {
    const FIRST_LEVEL: usize = 32 * 1024 / size_of::<f32>();
    const SECOND_LEVEL: usize = 1024 * 1024 / size_of::<f32>();
    let line = shape.stride * shape.width * shape.in_channels + shape.out_width * shape.out_channels;
    let is_large = shape.n_inputs() * shape.out_channels > SECOND_LEVEL;
    let fewest_pixels: usize = if is_large { 512 } else { 96 };
    (FIRST_LEVEL / line).max(fewest_pixels.div_ceil(shape.out_width))
}

struct Correlate<'a> {
    shape: ConvShape,
    images: &'a [f32],
    filter: &'a [f32],
    bias: Option<&'a [f32]>,
    outputs: &'a mut [f32],
}

impl WithSimd for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for_each_tile(simd, &mut self);
    }
}

impl Tiled for Correlate<'_> {
    fn extent(&self) -> (usize, usize, usize) {
        let n_images = self.images.len() / self.shape.image_len();
        (n_images * self.shape.out_depth * self.shape.out_height, self.shape.out_width, self.shape.out_channels)
    }

    /// Neighbouring pixels of one line, summed over the whole filter.
    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(&mut self, simd: S, at: At) {
        let (shape, x, channel) = (&self.shape, at.row, at.channel);
        let (run, pixel_step) = (shape.run(), shape.stride * shape.in_channels);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        if let Some(bias) = self.bias {
            sums = [load::<S, VECTORS, PARTIAL>(simd, bias, channel); ROWS];
        }
        let (mut weights, step) = (&self.filter[channel * shape.n_inputs()..], VECTORS * S::F32_LANES);
        for (plane, row) in shape.rows() {
            let line = shape.start(at.pass, plane, row);
            let pixels = &self.images[line + x * pixel_step..][..(ROWS - 1) * pixel_step + run];
            weights =
                add_products::<S, ROWS, VECTORS, PARTIAL>(simd, &mut sums, pixels, pixel_step, weights, step, run);
        }
        for (r, sums) in sums.iter().enumerate() {
            let at = (at.pass * shape.out_width + x + r) * shape.out_channels;
            store::<S, VECTORS, PARTIAL>(simd, &mut self.outputs[at..at + shape.out_channels], channel, sums);
        }
    }
}

struct CorrelateTransposed<'a> {
    shape: ConvShape,
    images: &'a [f32],
    output_gradients: &'a [f32],
    lines: std::ops::Range<usize>,
    keeps: bool,
    filter_gradient: &'a mut [f32],
}

impl WithSimd for CorrelateTransposed<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for_each_tile(simd, &mut self);
    }
}

impl Tiled for CorrelateTransposed<'_> {
    fn extent(&self) -> (usize, usize, usize) {
        (self.shape.kernel_depth * self.shape.kernel_height, self.shape.run(), self.shape.out_channels)
    }

    /// Neighbouring inputs of one row of the filter, summed over all pixels of the lines.
    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(&mut self, simd: S, at: At) {
        let (shape, channel) = (&self.shape, at.channel);
        let (pixel_step, line) = (shape.stride * shape.in_channels, shape.out_width * shape.out_channels);
        let (plane, row) = (at.pass / shape.kernel_height, at.pass % shape.kernel_height);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for out_line in self.lines.clone() {
            let gradient = &self.output_gradients[out_line * line..][..line];
            let start = shape.start(out_line, plane, row) + at.row;
            let pixels = &self.images[start..][..(shape.out_width - 1) * pixel_step + ROWS];
            for x in 0..shape.out_width {
                let delta = load::<S, VECTORS, PARTIAL>(simd, gradient, x * shape.out_channels + channel);
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: x < out_width and r < ROWS, and `pixels` holds (out_width - 1) * pixel_step + ROWS numbers.
                    let pixel = simd.splat_f32s(unsafe { *pixels.get_unchecked(x * pixel_step + r) });
                    for (sum, delta) in sums.iter_mut().zip(delta) {
                        *sum = simd.mul_add_e_f32s(pixel, delta, *sum);
                    }
                }
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            let at = (at.pass * shape.run() + at.row + r) * shape.out_channels;
            let weights = &mut self.filter_gradient[at..at + shape.out_channels];
            let mut sums = *sums;
            if self.keeps {
                let before = load::<S, VECTORS, PARTIAL>(simd, weights, channel);
                sums = std::array::from_fn(|v| simd.add_f32s(before[v], sums[v]));
            }
            store::<S, VECTORS, PARTIAL>(simd, weights, channel, &sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Before, ConvShape, correlate, correlate_transposed, pack, packed_len};
    use crate::random::random;

    fn shapes() -> Vec<ConvShape> {
        let mut shapes = Vec::new();
        for (in_channels, out_channels) in [(1, 1), (3, 5), (4, 16), (2, 32), (5, 39), (1, 70)] {
            for (kernel_depth, kernel_height, kernel_width, stride) in
                [(1, 1, 1, 1), (1, 3, 3, 1), (1, 2, 3, 2), (1, 1, 1, 2), (2, 2, 3, 1), (3, 1, 2, 2)]
            {
                for out_width in [1, 4, 14, 29] {
                    let (out_height, slack) = (3, 1);
                    let out_depth = if kernel_depth == 1 { 1 } else { 2 };
                    let depth = (out_depth - 1) * stride + kernel_depth + slack;
                    let height = (out_height - 1) * stride + kernel_height + slack;
                    let width = (out_width - 1) * stride + kernel_width + slack;
                    shapes.push(ConvShape {
                        depth,
                        height,
                        width,
                        in_channels,
                        kernel_depth,
                        kernel_height,
                        kernel_width,
                        stride,
                        out_depth,
                        out_height,
                        out_width,
                        out_channels,
                    });
                }
            }
        }
        shapes
    }

    /// Calls `visit(image index, filter index, output index)` for each product that a convolution is made of.
    fn products(s: &ConvShape, n_images: usize, mut visit: impl FnMut(usize, usize, usize)) {
        let all = |[a, b, c]: [usize; 3]| {
            (0..a).flat_map(move |a| (0..b).flat_map(move |b| (0..c).map(move |c| [a, b, c]))).collect::<Vec<_>>()
        };
        for image in 0..n_images {
            for [z, y, x] in all([s.out_depth, s.out_height, s.out_width]) {
                for [kz, ky, kx] in all([s.kernel_depth, s.kernel_height, s.kernel_width]) {
                    for [_, i, o] in all([1, s.in_channels, s.out_channels]) {
                        let plane = image * s.depth + z * s.stride + kz;
                        let row = plane * s.height + y * s.stride + ky;
                        let pixel = (row * s.width + x * s.stride + kx) * s.in_channels + i;
                        let tap = (kz * s.kernel_height + ky) * s.kernel_width + kx;
                        let weight = (tap * s.in_channels + i) * s.out_channels + o;
                        let line = (image * s.out_depth + z) * s.out_height + y;
                        visit(pixel, weight, (line * s.out_width + x) * s.out_channels + o);
                    }
                }
            }
        }
    }

    fn assert_close(found: &[f32], expected: &[f32], shape: &ConvShape) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-4, "{found} and not {expected} for {shape:?}");
        }
    }

    #[test]
    fn equals_the_definition() {
        let mut seed = 1;
        for shape in shapes() {
            let n_images = 2;
            let images = random(n_images * shape.image_len(), &mut seed);
            let filter = random(shape.n_inputs() * shape.out_channels, &mut seed);
            let bias = random(shape.out_channels, &mut seed);
            let mut packed = vec![f32::NAN; packed_len(shape.n_inputs(), shape.out_channels)];
            pack(shape.n_inputs(), shape.out_channels, &mut packed, |i, o| filter[i * shape.out_channels + o]);
            let mut found = vec![f32::NAN; n_images * shape.output_len()];
            let mut expected = bias.repeat(found.len() / bias.len());
            products(&shape, n_images, |pixel, weight, output| expected[output] += images[pixel] * filter[weight]);
            correlate(&shape, &images, &packed, Some(&bias), &mut found);
            assert_close(&found, &expected, &shape);

            let deltas = random(found.len(), &mut seed);
            for (before, start) in [(Before::Kept, filter.clone()), (Before::Lost, vec![0.0; filter.len()])] {
                let mut found = filter.clone();
                correlate_transposed(&shape, &images, &deltas, before, &mut found);
                let mut expected = start;
                products(&shape, n_images, |pixel, weight, output| expected[weight] += images[pixel] * deltas[output]);
                assert_close(&found, &expected, &shape);
            }
        }
    }
}
