//! A folder of JPEG and PNG pictures for each class, decoded as they are asked for and never held in memory.
//!
//! The shorter side of a picture is brought to `resize` pixels and the middle `size` by `size` is kept. The first bytes of
//! a file decide how it is decoded, not its name.

use std::ffi::OsStr;
use std::path::Path;

use super::folders::{self, Layout, Listing};
use super::normalisation::Normalisation;
use super::pictures::{PictureFiles, Pictures};
use super::preparation::{Framing, Preparation};
use super::{DataError, Split, files};

/// Files that lie beside pictures and are none. Anything else in a class folder is taken for a picture, and named when
/// it turns out not to be one.
const NOT_IMAGES: [&str; 14] =
    ["csv", "db", "gz", "html", "ini", "json", "log", "md", "py", "tar", "txt", "xml", "yaml", "zip"];

/// Pictures on disk.
#[derive(Clone, Debug)]
pub(crate) struct ImageFiles {
    listing: Listing,
    preparation: Preparation,
}

/// A folder of pictures for each class.
pub(crate) type ImageFolder = Pictures<ImageFiles>;

impl ImageFiles {
    /// The pictures of a listing.
    pub(crate) fn new(listing: Listing, framing: Framing, normalisation: &Normalisation) -> Result<Self, DataError> {
        Ok(Self { listing, preparation: Preparation::new(framing, normalisation)? })
    }
}

impl PictureFiles for ImageFiles {
    fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    fn classes(&self) -> &[String] {
        &self.listing.classes
    }

    fn labels(&self) -> &[u32] {
        &self.listing.labels
    }

    fn origin(&self, index: usize) -> String {
        self.listing.path(index).display().to_string()
    }

    fn pixels(&self, index: usize) -> Result<Vec<u8>, DataError> {
        let path = self.listing.path(index);
        self.preparation.pixels(&path, &files::read(&path)?)
    }
}

/// The pictures of one part of a set; all of them where the set has no parts.
pub(crate) fn list(root: &Path, split: Split) -> Result<Listing, DataError> {
    folders::list_part(root, split, |_| Ok(Layout::Folders), may_be_image)
}

fn may_be_image(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    path.is_file() && NOT_IMAGES.binary_search(&extension.as_str()).is_err()
}

/// Whether a name ends like a picture that can be decoded.
pub(crate) fn has_image_name(path: &Path) -> bool {
    let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_ascii_lowercase();
    ["jpeg", "jpg", "png"].contains(&extension.as_str())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use image::{GrayImage, Rgb, RgbImage};

    use super::{Framing, ImageFiles, ImageFolder, NOT_IMAGES, list};
    use crate::data::in_memory::Normalisation;
    use crate::data::picture::decode;
    use crate::data::pictures::Pictures;
    use crate::data::preparation::frame;
    use crate::data::{Dataset, Split};
    use crate::rng::Rng;

    fn make() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for folder in ["train/cat", "train/dog", "val/cat", "val/dog"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let picture = |width, height| RgbImage::from_fn(width, height, |x, y| Rgb([x as u8, y as u8, 200]));
        let path = |name: &str| root.path().join(name);
        picture(8, 8).save(path("train/cat/a.png")).unwrap();
        picture(20, 10).save(path("train/cat/b.jpg")).unwrap();
        // A PNG that calls itself JPEG, and a grey one without a name.
        picture(12, 8).save(path("x.png")).unwrap();
        std::fs::rename(path("x.png"), path("train/dog/c.JPEG")).unwrap();
        GrayImage::from_pixel(9, 30, image::Luma([51])).save(path("x.png")).unwrap();
        std::fs::rename(path("x.png"), path("val/dog/d")).unwrap();
        picture(8, 8).save(path("val/cat/e.png")).unwrap();
        std::fs::write(path("train/cat/notes.TXT"), "not a picture").unwrap();
        std::fs::write(path("train/cat/.DS_Store"), "not a picture").unwrap();
        root
    }

    fn open(root: &Path, split: Split, resize: usize, size: usize) -> ImageFolder {
        let listing = list(root, split).unwrap();
        Pictures::new(ImageFiles::new(listing, Framing { resize, size }, &Normalisation::scaled(255.0)).unwrap())
    }

    #[test]
    fn pictures_of_all_kinds_are_framed_alike() {
        let root = make();
        let train = open(root.path(), Split::Train, 8, 4);
        assert_eq!((train.labels(), train.classes()), ([0, 0, 1].as_slice(), ["cat".into(), "dog".into()].as_slice()));
        let batch = train.batch(&[2, 0]).unwrap();
        assert_eq!((batch.classes(), batch.inputs.len()), ([1, 0].as_slice(), 2 * 4 * 4 * 3));
        // No resizing is needed for these two, so the middle is exact: it starts at (4, 2) of 12 by 8, at (2, 2) of 8 by 8.
        let scaled = |values: [u8; 3]| values.map(|x| f32::from(x) / 255.0);
        assert_eq!(batch.inputs[..3], scaled([4, 2, 200]));
        assert_eq!(batch.inputs[48..51], scaled([2, 2, 200]));
        let test = open(root.path(), Split::Test, 6, 6);
        assert_eq!(test.labels(), [0, 1]);
        assert!(test.batch(&[1]).unwrap().inputs.iter().all(|&x| x == 0.2));
    }

    #[test]
    fn resizing_keeps_the_middle() {
        let root = make();
        let train = open(root.path(), Split::Train, 4, 4);
        let first = train.batch(&[0]).unwrap().inputs;
        // Each new pixel covers two old ones; the left one of the row is about the mean of columns 0 and 1.
        assert!((first[0] * 255.0 - 0.5).abs() <= 1.0, "{}", first[0] * 255.0);
        assert!((first[9] * 255.0 - 6.5).abs() <= 1.0, "{}", first[9] * 255.0);
    }

    #[test]
    fn a_bad_picture_is_named() {
        let root = make();
        let path = root.path().join("train/cat/a.png");
        let whole = std::fs::read(&path).unwrap();
        let error = || open(root.path(), Split::Train, 8, 8).batch(&[1, 0]).unwrap_err().to_string();
        for (bytes, answer) in [
            (whole[..whole.len() / 2].to_vec(), "cannot be decoded"),
            (b"GIF89a, or so it says".to_vec(), "Gif picture"),
            (b"<html>".to_vec(), "going by its first bytes"),
            (Vec::new(), "going by its first bytes"),
            (huge_png(&whole), "cannot be decoded"),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(error().contains(answer) && error().contains("a.png"), "{}", error());
        }
        std::fs::remove_file(&path).unwrap();
        let listed = open(root.path(), Split::Train, 8, 8);
        std::fs::remove_file(root.path().join("train/cat/b.jpg")).unwrap();
        assert!(listed.batch(&[0]).unwrap_err().to_string().contains("b.jpg"));
        assert!(listed.batch(&[9]).is_err());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let root = make();
        for name in ["train/cat/a.png", "train/cat/b.jpg"] {
            let whole = std::fs::read(root.path().join(name)).unwrap();
            for seed in 0..300 {
                let mut rng = Rng::new(seed);
                let mut bytes = whole.clone();
                for _ in 0..rng.below(6) {
                    let at = rng.below(bytes.len());
                    bytes[at] = rng.next_u64() as u8;
                }
                bytes.truncate(rng.below(bytes.len() * 2) + 1);
                if let Ok(picture) = decode(Path::new(name), &bytes) {
                    assert_eq!(frame(&picture, Framing { resize: 5, size: 4 }).len(), 48, "{name}, seed {seed}");
                }
            }
        }
    }

    /// The same file, claiming a width and height of 100,000.
    fn huge_png(whole: &[u8]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        bytes[16..24].copy_from_slice(&[0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0]);
        bytes
    }

    #[test]
    fn settings_that_cannot_be_are_refused() {
        let root = make();
        let listing = list(root.path(), Split::Train).unwrap();
        for (resize, size) in [(8, 9), (8, 0), (1 << 20, 8)] {
            let framing = Framing { resize, size };
            assert!(ImageFiles::new(listing.clone(), framing, &Normalisation::scaled(1.0)).is_err());
        }
        let two = Normalisation::pixels(&[0.1, 0.2], &[1.0]);
        assert!(ImageFiles::new(listing, Framing { resize: 8, size: 8 }, &two).is_err());
        assert!(NOT_IMAGES.is_sorted());
    }
}
