//! What is done to every picture of a set: its middle is brought to the wanted size, and its values are normalised.

use std::path::Path;

use image::imageops::{self, FilterType};
use image::{DynamicImage, GenericImageView};

use super::normalisation::{ByteTable, Normalisation};
use super::picture::{MAX_SIDE, N_CHANNELS, decode, toned};
use super::{DataError, Tone, files};

/// The size that pictures are brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framing {
    /// The shorter side after resizing.
    pub resize: usize,
    /// The side of the square that is cut out of the middle.
    pub size: usize,
}

/// What is done to every picture of a set.
#[derive(Clone, Debug)]
pub(crate) struct Preparation {
    framing: Framing,
    shape: [usize; 3],
    table: ByteTable,
}

impl Preparation {
    /// Framed and normalised so.
    pub(crate) fn new(framing: Framing, normalisation: &Normalisation) -> Result<Self, DataError> {
        let Framing { resize, size } = framing;
        if size == 0 || size > resize || resize > MAX_SIDE as usize {
            return Err(DataError::Setting(format!(
                "pictures cannot be cut to {size} pixels after resizing to {resize}; `size` must be at least 1 and at \
                 most `resize`, and that at most {MAX_SIDE}"
            )));
        }
        normalisation.check(N_CHANNELS)?;
        let table = ByteTable::new(normalisation, N_CHANNELS);
        Ok(Self { framing, shape: [size, size, N_CHANNELS], table })
    }

    /// The shape of a picture when this is done.
    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Decodes the bytes of a picture and frames it; `path` is for the messages only.
    pub(crate) fn pixels(&self, path: &Path, bytes: &[u8]) -> Result<Vec<u8>, DataError> {
        Ok(frame(&decode(path, bytes)?, self.framing))
    }

    /// The values of pixels, normalised.
    pub(crate) fn values(&self, pixels: &[u8]) -> Vec<f32> {
        let mut values = Vec::with_capacity(pixels.len());
        self.table.extend(&mut values, pixels);
        values
    }

    /// Reads a picture from a file and does all of it.
    pub(crate) fn read(&self, path: &Path, tone: Tone) -> Result<Vec<f32>, DataError> {
        Ok(self.values(&toned(self.pixels(path, &files::read(path)?)?, tone)))
    }
}

/// The middle of a picture at the wanted size, three bytes a pixel.
///
/// The middle is cut out before resizing, not after: the result is the same but for rounding, it is less work, and a
/// picture of one pixel by many thousands does not become enormous on the way.
pub(super) fn frame(picture: &DynamicImage, Framing { resize, size }: Framing) -> Vec<u8> {
    let (width, height) = picture.dimensions();
    let shorter = width.min(height);
    let side = (f64::from(shorter) * size as f64 / resize as f64).round().clamp(1.0, f64::from(shorter)) as u32;
    let middle = picture.crop_imm((width - side) / 2, (height - side) / 2, side, side).into_rgb8();
    if side as usize == size {
        return middle.into_raw();
    }
    imageops::resize(&middle, size as u32, size as u32, FilterType::Triangle).into_raw()
}
