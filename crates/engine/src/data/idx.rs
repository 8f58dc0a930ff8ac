//! IDX files, the format of MNIST and its relatives: a folder of four files, compressed or not.
//!
//! An IDX file is `00 00`, a type (08 for bytes), the number of dimensions, each dimension as a big-endian `u32`, and the
//! values. The header is believed only after it has been held against the real length of the file.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::files;
use super::in_memory::{InMemory, Samples};
use super::{DataError, Split};

/// The most that deflate can shrink anything, so the most a compressed file can honestly claim to hold.
const MAX_DEFLATE_RATIO: usize = 1032;

/// What to do about a file that is not whole.
const FETCH_AGAIN: &str = "it is damaged or was cut off: fetch it again";

/// An array of bytes, as an IDX file holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Array {
    /// The dimensions; the first is the number of samples.
    pub dimensions: Vec<usize>,
    /// The values, the last dimension running fastest.
    pub values: Vec<u8>,
}

/// Reads one file, compressed with gzip or not; its first bytes decide, not its name.
pub fn read(path: &Path) -> Result<Array, DataError> {
    parse(path, &files::read(path)?)
}

/// Reads the bytes of one file; `path` is for the messages only.
pub fn parse(path: &Path, bytes: &[u8]) -> Result<Array, DataError> {
    let problem = if bytes.starts_with(&[0x1f, 0x8b]) {
        let most = bytes.len().saturating_mul(MAX_DEFLATE_RATIO);
        match parse_stream(MultiGzDecoder::new(bytes), most) {
            // A compressed stream knows its length only at its end: here it was cut.
            Err(Problem::Io(error)) => format!("cannot be decompressed ({error}); {FETCH_AGAIN}"),
            Err(Problem::Content(text)) => text,
            Ok(array) => return Ok(array),
        }
    } else {
        match parse_stream(bytes, bytes.len()) {
            Err(Problem::Io(error)) => error.to_string(),
            Err(Problem::Content(text)) => text,
            Ok(array) => return Ok(array),
        }
    };
    Err(DataError::malformed(path, problem))
}

/// Whether the folder holds this part: both files of it.
pub(crate) fn has_split(folder: &Path, split: Split) -> bool {
    [Kind::Images, Kind::Labels].iter().all(|&kind| find(folder, split, kind).is_some())
}

/// Reads one part of a folder; the samples are raw bytes, not yet normalised.
///
/// Where the names of the classes are not known they are the numbers up to the largest label of both parts, so that both
/// parts agree.
pub fn open(folder: &Path, split: Split, classes: Option<&[&str]>) -> Result<InMemory, DataError> {
    let images_path = require(folder, split, Kind::Images)?;
    let labels_path = require(folder, split, Kind::Labels)?;
    let labels = read_labels(&labels_path)?;
    let images = read(&images_path)?;
    let classes = match classes {
        Some(names) => names.iter().map(ToString::to_string).collect(),
        None => number_classes(folder, &labels)?,
    };
    assemble(&images_path, images, &labels_path, labels, classes)
}

/// Puts images and labels together, once they are known to fit.
pub(crate) fn assemble(
    images_path: &Path,
    images: Array,
    labels_path: &Path,
    labels: Vec<u8>,
    classes: Vec<String>,
) -> Result<InMemory, DataError> {
    let shape = match *images.dimensions.as_slice() {
        [_, height, width] => vec![height, width, 1],
        [_, height, width, n_channels] => vec![height, width, n_channels],
        _ => {
            let n = images.dimensions.len();
            return Err(DataError::malformed(
                images_path,
                format!("has {n} dimension(s), images have 3 or 4; are images and labels mixed up?"),
            ));
        }
    };
    let n_images = images.dimensions[0];
    if n_images != labels.len() {
        return Err(DataError::malformed(
            images_path,
            format!(
                "holds {n_images} images, but {} holds {} labels; they are not of one set: fetch both again",
                labels_path.display(),
                labels.len()
            ),
        ));
    }
    if let Some(at) = labels.iter().position(|&label| usize::from(label) >= classes.len()) {
        return Err(DataError::malformed(
            labels_path,
            format!("label {} of sample {at} is not below {}, the number of classes", labels[at], classes.len()),
        ));
    }
    InMemory::new(shape, classes, labels.into_iter().map(u32::from).collect(), Samples::Bytes(images.values))
}

/// The labels of one file, at least one.
fn read_labels(path: &Path) -> Result<Vec<u8>, DataError> {
    let array = read(path)?;
    labels_of(path, array)
}

/// The values of an array that must be a list of labels.
pub(crate) fn labels_of(path: &Path, array: Array) -> Result<Vec<u8>, DataError> {
    if array.dimensions.len() != 1 {
        return Err(DataError::malformed(
            path,
            format!("has {} dimensions, labels have 1; are images and labels mixed up?", array.dimensions.len()),
        ));
    }
    Ok(array.values)
}

fn number_classes(folder: &Path, labels: &[u8]) -> Result<Vec<String>, DataError> {
    let mut largest = labels.iter().copied().max().unwrap_or(0);
    for split in [Split::Train, Split::Test] {
        if let Some(path) = find(folder, split, Kind::Labels) {
            largest = largest.max(read_labels(&path)?.into_iter().max().unwrap_or(0));
        }
    }
    Ok((0..=largest).map(|class| class.to_string()).collect())
}

#[derive(Clone, Copy)]
enum Kind {
    Images,
    Labels,
}

/// The names a file may have, in the order they are looked for.
fn candidates(split: Split, kind: Kind) -> Vec<String> {
    let prefixes: &[&str] = match split {
        Split::Train => &["train"],
        Split::Test => &["t10k", "test"],
    };
    let kinds: &[&str] = match kind {
        Kind::Images => &["images-idx3", "images.idx3", "images-idx4", "images.idx4"],
        Kind::Labels => &["labels-idx1", "labels.idx1"],
    };
    let names = prefixes.iter().flat_map(|prefix| kinds.iter().map(move |kind| format!("{prefix}-{kind}-ubyte")));
    names.flat_map(|name| [name.clone(), format!("{name}.gz")]).collect()
}

fn find(folder: &Path, split: Split, kind: Kind) -> Option<PathBuf> {
    files::first_file(folder, &candidates(split, kind))
}

fn require(folder: &Path, split: Split, kind: Kind) -> Result<PathBuf, DataError> {
    if !folder.is_dir() {
        return Err(DataError::malformed(folder, "expected a folder of IDX files, and there is no such folder"));
    }
    find(folder, split, kind).ok_or_else(|| {
        let names = candidates(split, kind).join(", ");
        DataError::malformed(folder, format!("an IDX file is missing; looked for {names}"))
    })
}

/// Why a stream is no array.
enum Problem {
    Io(std::io::Error),
    Content(String),
}

impl From<std::io::Error> for Problem {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Reads header and values from a stream that cannot yield more than `most` bytes.
fn parse_stream(mut stream: impl Read, most: usize) -> Result<Array, Problem> {
    let dimensions = read_header(&mut stream)?;
    let n_values = dimensions.iter().try_fold(1_usize, |product, &n| product.checked_mul(n));
    let Some(n_values) = n_values.filter(|&n| n <= most) else {
        return Err(Problem::Content(format!(
            "claims {dimensions:?} values, more than the file can hold ({most} bytes at most); {FETCH_AGAIN}"
        )));
    };
    if n_values == 0 {
        return Err(Problem::Content(format!("holds no values: its dimensions are {dimensions:?}")));
    }
    // The vector grows with what really comes, and one byte more than claimed shows that something trails.
    let mut values = Vec::new();
    stream.by_ref().take(n_values as u64 + 1).read_to_end(&mut values)?;
    if values.len() < n_values {
        return Err(Problem::Content(format!(
            "claims {dimensions:?} = {n_values} values but holds {}; {FETCH_AGAIN}",
            values.len()
        )));
    }
    if values.len() > n_values {
        return Err(Problem::Content(format!(
            "holds more than the {n_values} values of its dimensions {dimensions:?}: the header or the file is wrong"
        )));
    }
    values.shrink_to_fit();
    Ok(Array { dimensions, values })
}

/// The dimensions that the header claims.
fn read_header(stream: &mut impl Read) -> Result<Vec<usize>, Problem> {
    let mut magic = Vec::new();
    stream.take(4).read_to_end(&mut magic)?;
    let &[zero, zero_too, kind, n_dimensions] = magic.as_slice() else {
        return Err(Problem::Content(format!("has {} bytes, not even a header; {FETCH_AGAIN}", magic.len())));
    };
    if (zero, zero_too) != (0, 0) {
        return Err(Problem::Content(format!("is no IDX file: it starts with {magic:02x?} instead of 00 00")));
    }
    if kind != 8 {
        return Err(Problem::Content(format!("holds values of type {kind:#04x}; only bytes (0x08) are understood")));
    }
    if !(1..=4).contains(&n_dimensions) {
        return Err(Problem::Content(format!("claims {n_dimensions} dimensions; 1 to 4 are understood")));
    }
    let mut sizes = Vec::new();
    stream.take(4 * u64::from(n_dimensions)).read_to_end(&mut sizes)?;
    let (sizes, rest) = sizes.as_chunks::<4>();
    if sizes.len() < usize::from(n_dimensions) || !rest.is_empty() {
        return Err(Problem::Content(format!("ends inside its header; {FETCH_AGAIN}")));
    }
    Ok(sizes.iter().map(|&size| u32::from_be_bytes(size) as usize).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::{Array, has_split, open, parse, read};
    use crate::data::{Dataset, Split};
    use crate::rng::Rng;

    fn idx(dimensions: &[u32], values: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, dimensions.len() as u8];
        dimensions.iter().for_each(|n| bytes.extend(n.to_be_bytes()));
        bytes.extend(values);
        bytes
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn problem(bytes: &[u8]) -> String {
        let text = parse(Path::new("some/file"), bytes).unwrap_err().to_string();
        assert!(text.starts_with("some/file: "), "{text}");
        text
    }

    /// A folder with a whole set, three training and two test images.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        put("train-images-idx3-ubyte", &gz(&idx(&[3, 2, 2], &[1; 12])));
        put("train-labels.idx1-ubyte.gz", &idx(&[3], &[0, 1, 4]));
        put("t10k-images.idx3-ubyte", &idx(&[2, 2, 2], &[7; 8]));
        put("t10k-labels-idx1-ubyte.gz", &gz(&idx(&[2], &[1, 2])));
        folder
    }

    #[test]
    fn both_parts_of_a_folder_are_read_whatever_their_names_say_of_compression() {
        let folder = folder();
        let train = open(folder.path(), Split::Train, None).unwrap();
        let test = open(folder.path(), Split::Test, None).unwrap();
        assert_eq!((train.labels(), test.labels()), ([0, 1, 4].as_slice(), [1, 2].as_slice()));
        assert_eq!(train.shape(), [2, 2, 1]);
        assert_eq!(train.classes().len(), 5);
        assert_eq!(train.classes(), test.classes());
        assert_eq!(test.batch(&[1]).unwrap().inputs, [7.0; 4]);
    }

    #[test]
    fn what_is_missing_or_does_not_fit_is_named() {
        let set = folder();
        let file = |name: &str| set.path().join(name);
        let error = |split| open(set.path(), split, None).unwrap_err().to_string();
        std::fs::remove_file(file("t10k-images.idx3-ubyte")).unwrap();
        assert!(!has_split(set.path(), Split::Test) && has_split(set.path(), Split::Train));
        assert!(error(Split::Test).contains("looked for t10k-images-idx3-ubyte, "), "{}", error(Split::Test));
        std::fs::write(file("train-labels.idx1-ubyte.gz"), idx(&[2], &[0, 1])).unwrap();
        assert!(error(Split::Train).contains("3 images") && error(Split::Train).contains("2 labels"));
        std::fs::write(file("train-labels.idx1-ubyte.gz"), idx(&[3], &[0, 1, 200])).unwrap();
        let ten = ["x"; 10];
        let wrong = open(set.path(), Split::Train, Some(&ten)).unwrap_err().to_string();
        assert!(wrong.contains("label 200 of sample 2"), "{wrong}");
        std::fs::write(file("train-labels.idx1-ubyte.gz"), idx(&[3, 1], &[0, 1, 2])).unwrap();
        assert!(error(Split::Train).contains("mixed up"));
        std::fs::write(file("train-images-idx3-ubyte"), idx(&[3], &[0, 1, 2])).unwrap();
        std::fs::write(file("train-labels.idx1-ubyte.gz"), idx(&[3], &[0, 1, 2])).unwrap();
        assert!(error(Split::Train).contains("mixed up"));
        assert!(open(&file("none"), Split::Train, None).unwrap_err().to_string().contains("no such folder"));
        assert!(read(set.path()).unwrap_err().to_string().contains("found a folder"));
    }

    #[test]
    fn lies_are_found_out() {
        let whole = idx(&[2, 2, 2], &[9; 8]);
        for bytes in [whole.clone(), gz(&whole)] {
            assert_eq!(parse(Path::new("x"), &bytes).unwrap(), Array { dimensions: vec![2, 2, 2], values: vec![9; 8] });
        }
        assert!(problem(&[]).contains("not even a header"));
        assert!(problem(b"<html>").contains("no IDX file"));
        assert!(problem(&[0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0]).contains("only bytes"));
        assert!(problem(&[0, 0, 8, 9]).contains("9 dimensions"));
        assert!(problem(&whole[..9]).contains("inside its header"));
        assert!(
            problem(&whole[..20]).contains("more than the file can hold") || problem(&whole[..20]).contains("holds")
        );
        assert!(problem(&[whole.as_slice(), &[0]].concat()).contains("holds more than"));
        assert!(problem(&gz(&[whole.as_slice(), &[0]].concat())).contains("holds more than"));
        assert!(problem(&gz(&whole[..20])).contains("holds 4"));
        assert!(problem(&idx(&[0, 28, 28], &[])).contains("holds no values"));
        let absurd = idx(&[u32::MAX, u32::MAX, u32::MAX, u32::MAX], &[1; 100]);
        assert!(problem(&absurd).contains("more than the file can hold"));
        assert!(problem(&gz(&absurd)).contains("more than the file can hold"));
        let cut = gz(&whole);
        assert!(problem(&cut[..cut.len() - 3]).contains("cannot be decompressed"));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let whole = idx(&[5, 4, 3], &(0..60).collect::<Vec<u8>>());
        let packed = gz(&whole);
        for seed in 0..2000 {
            let mut rng = Rng::new(seed);
            let mut bytes = if rng.below(2) == 0 { whole.clone() } else { packed.clone() };
            for _ in 0..rng.below(4) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.next_u64() as u8;
            }
            bytes.truncate(rng.below(bytes.len() + 1));
            if let Ok(array) = parse(Path::new("x"), &bytes) {
                assert_eq!(array.dimensions.iter().product::<usize>(), array.values.len(), "seed {seed}");
            }
        }
    }
}
