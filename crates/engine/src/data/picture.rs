//! One picture from a file.

use std::io::Cursor;
use std::path::Path;

use image::imageops::FilterType;
use image::{DynamicImage, GenericImageView, ImageFormat, ImageReader, Limits};

use super::decoders::in_one_line;
use super::{DataError, Tone, files};

/// Pictures beyond this are refused before they are decoded: a small file can claim a picture that fills the memory.
pub(super) const MAX_SIDE: u32 = 1 << 15;
const MAX_DECODED_BYTES: u64 = 1 << 29;

/// Of a picture in colour.
pub(super) const N_CHANNELS: usize = 3;

/// Decodes a file by its content.
pub(super) fn decode(path: &Path, bytes: &[u8]) -> Result<DynamicImage, DataError> {
    let format = match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Jpeg | ImageFormat::Png)) => format,
        Ok(other) => {
            let problem = format!("is a {other:?} picture; only JPEG and PNG are understood: convert it");
            return Err(DataError::malformed(path, problem));
        }
        Err(_) => {
            let problem = "is no JPEG or PNG picture, going by its first bytes; convert it, or leave it out";
            return Err(DataError::malformed(path, problem));
        }
    };
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let decoded = reader.decode().map_err(|error| {
        let said = in_one_line(&error.to_string());
        DataError::malformed(path, format!("cannot be decoded ({said}); fetch it again or remove it"))
    })?;
    match decoded.dimensions() {
        (0, _) | (_, 0) => Err(DataError::malformed(path, "is a picture without pixels; remove it")),
        _ => Ok(decoded),
    }
}

/// One picture at exactly this size: in colour with three channels, in grey with one.
pub(super) fn read_at(path: &Path, [height, width, channels]: [usize; 3], tone: Tone) -> Result<Vec<u8>, DataError> {
    let picture = decode(path, &files::read(path)?)?;
    let (width, height) = (width as u32, height as u32);
    let resized = picture.resize_exact(width, height, FilterType::Triangle);
    match channels {
        1 => Ok(toned(resized.into_luma8().into_raw(), tone)),
        N_CHANNELS => Ok(toned(resized.into_rgb8().into_raw(), tone)),
        _ => Err(DataError::malformed(path, format!("has no {channels} channels, as the samples of this set have"))),
    }
}

pub(super) fn toned(mut pixels: Vec<u8>, tone: Tone) -> Vec<u8> {
    if tone == Tone::Inverted {
        pixels.iter_mut().for_each(|pixel| *pixel = 255 - *pixel);
    }
    pixels
}
