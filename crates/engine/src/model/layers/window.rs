//! A window that slides over an image: its size, its steps, the border around the image, and the sizes that follow.

/// How a filter or a pool moves over an image with channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub width: usize,
    /// Channels of the image.
    pub channels: usize,
    /// Rows and columns of the window.
    pub kernel: usize,
    /// Steps between neighbouring windows.
    pub stride: usize,
    /// Width of the border around the image.
    pub padding: usize,
}

impl Window {
    /// How many windows fit, down and across; `None` when the image is too small for even one.
    pub fn output(&self) -> Option<(usize, usize)> {
        let padded = |n: usize| n.checked_add(self.padding.checked_mul(2)?);
        let fit = |n: usize| Some(padded(n)?.checked_sub(self.kernel)? / self.stride + 1);
        Some((fit(self.height)?, fit(self.width)?))
    }

    /// Rows and columns of the image with its border.
    pub fn padded(&self) -> (usize, usize) {
        (self.height + 2 * self.padding, self.width + 2 * self.padding)
    }

    /// How many numbers an image has without its border.
    pub fn image_len(&self) -> usize {
        self.height * self.width * self.channels
    }

    /// How many numbers an image has with its border.
    pub fn padded_len(&self) -> usize {
        self.padded().0 * self.padded().1 * self.channels
    }

    /// Copies images into larger ones with a border of this value.
    pub fn pad(&self, images: &[f32], border: f32, padded: &mut [f32]) {
        let line = self.width * self.channels;
        let (margin, padded_line) = (self.padding * self.channels, self.padded().1 * self.channels);
        for (image, padded) in images.chunks_exact(self.image_len()).zip(padded.chunks_exact_mut(self.padded_len())) {
            let (above, rest) = padded.split_at_mut(self.padding * padded_line);
            let (middle, below) = rest.split_at_mut(self.height * padded_line);
            above.fill(border);
            below.fill(border);
            for (row, padded) in image.chunks_exact(line).zip(middle.chunks_exact_mut(padded_line)) {
                padded[..margin].fill(border);
                padded[margin..margin + line].copy_from_slice(row);
                padded[margin + line..].fill(border);
            }
        }
    }

    /// The part of each window row `y`, column `x` that lies inside the image: rows and columns of the image, and for each
    /// the row and column within the window.
    pub fn inside(&self, y: usize, x: usize) -> impl Iterator<Item = Tap> + use<> {
        let Self { height, width, kernel, stride, padding, .. } = *self;
        (0..kernel).flat_map(move |ky| (0..kernel).map(move |kx| (ky, kx))).filter_map(move |(ky, kx)| {
            let row = (y * stride + ky).checked_sub(padding).filter(|&row| row < height)?;
            let column = (x * stride + kx).checked_sub(padding).filter(|&column| column < width)?;
            Some(Tap { pixel: row * width + column, weight: ky * kernel + kx })
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
