//! A window that slides over an image (or a sequence, or a volume): its size, its steps, the border around the image, and the
//! sizes that follow.

/// How a filter or a pool moves over an image with channels last. An image is one plane deep, a sequence one row high too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Planes, rows and columns of the image.
    pub size: [usize; 3],
    /// How many of these axes the window slides along: the last ones.
    pub n_axes: usize,
    /// Channels of the image.
    pub channels: usize,
    /// Planes, rows and columns of the window.
    pub kernel: [usize; 3],
    /// Steps between neighbouring windows.
    pub stride: usize,
    /// Width of the border around the image, along each axis.
    pub padding: [usize; 3],
}

impl Window {
    /// A window that is equally long along all axes of an image whose shape ends with the channels.
    ///
    /// # Panics
    /// If the shape has no axis beside the channels, or more than three.
    pub fn new(shape: &[usize], kernel: usize, stride: usize, padding: usize) -> Self {
        let (channels, size) = shape.split_last().expect("a shape has channels");
        let n_axes = size.len();
        let from = |lengths: &[usize], other: usize| {
            let mut all = [other; 3];
            all[3 - n_axes..].copy_from_slice(lengths);
            all
        };
        Self {
            size: from(size, 1),
            n_axes,
            channels: *channels,
            kernel: from(&[kernel; 3][..n_axes], 1),
            stride,
            padding: from(&[padding; 3][..n_axes], 0),
        }
    }

    /// How many windows fit along each axis; `None` when the image is too small for even one.
    pub fn output(&self) -> Option<[usize; 3]> {
        let fit = |axis: usize| {
            let padded = self.size[axis].checked_add(self.padding[axis].checked_mul(2)?)?;
            Some(padded.checked_sub(self.kernel[axis])? / self.stride + 1)
        };
        Some([fit(0)?, fit(1)?, fit(2)?])
    }

    /// How many numbers of a channel a window sees.
    pub fn n_taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Planes, rows and columns of the image with its border.
    pub fn padded(&self) -> [usize; 3] {
        std::array::from_fn(|axis| self.size[axis] + 2 * self.padding[axis])
    }

    /// How many numbers an image has without its border.
    pub fn image_len(&self) -> usize {
        self.size.iter().product::<usize>() * self.channels
    }

    /// How many numbers an image has with its border.
    pub fn padded_len(&self) -> usize {
        self.padded().iter().product::<usize>() * self.channels
    }

    /// Copies images into larger ones with a border of this value.
    pub fn pad(&self, images: &[f32], border: f32, padded: &mut [f32]) {
        let [_, padded_height, padded_width] = self.padded();
        let [depth, height, width] = self.size;
        let (line, padded_line) = (width * self.channels, padded_width * self.channels);
        let margin = self.padding[2] * self.channels;
        for (image, padded) in images.chunks_exact(self.image_len()).zip(padded.chunks_exact_mut(self.padded_len())) {
            for (i, padded) in padded.chunks_exact_mut(padded_line).enumerate() {
                let plane = (i / padded_height).wrapping_sub(self.padding[0]);
                let row = (i % padded_height).wrapping_sub(self.padding[1]);
                if plane >= depth || row >= height {
                    padded.fill(border);
                    continue;
                }
                padded[..margin].fill(border);
                padded[margin..margin + line].copy_from_slice(&image[(plane * height + row) * line..][..line]);
                padded[margin + line..].fill(border);
            }
        }
    }

    /// The part of the window row `y`, column `x` that lies inside an image of one plane: rows and columns of the image, and for
    /// each the row and column within the window.
    pub fn inside(&self, y: usize, x: usize) -> impl Iterator<Item = Tap> + use<> {
        let Self {
            size: [_, height, width], kernel: [_, n_rows, n_columns], stride, padding: [_, above, left], ..
        } = *self;
        (0..n_rows).flat_map(move |ky| (0..n_columns).map(move |kx| (ky, kx))).filter_map(move |(ky, kx)| {
            let row = (y * stride + ky).checked_sub(above).filter(|&row| row < height)?;
            let column = (x * stride + kx).checked_sub(left).filter(|&column| column < width)?;
            Some(Tap { pixel: row * width + column, weight: ky * n_columns + kx })
        })
    }
}

/// One place of a window that lies inside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tap {
    /// The pixel, counted row by row.
    pub pixel: usize,
    /// The place in the window, counted row by row.
    pub weight: usize,
}
