//! CIFAR-10 in its binary version: six files of records, each a label and three planes of 32×32 bytes.

use std::path::{Path, PathBuf};

use super::files;
use super::in_memory::{InMemory, Samples};
use super::{DataError, Split};

const SIDE: usize = 32;
const N_CHANNELS: usize = 3;
const N_PIXELS: usize = SIDE * SIDE;
const N_RECORD_BYTES: usize = 1 + N_CHANNELS * N_PIXELS;

/// The classes, in the order of their labels.
pub(crate) const CLASSES: [&str; 10] =
    ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

const TRAIN_FILES: [&str; 5] =
    ["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"];
const TEST_FILES: [&str; 1] = ["test_batch.bin"];

/// The folder that the published archive unpacks to.
const ARCHIVE_FOLDER: &str = "cifar-10-batches-bin";

/// Whether this looks like CIFAR-10: any of its files is there.
pub(crate) fn is_here(folder: &Path) -> bool {
    let folder = inner(folder);
    TRAIN_FILES.iter().chain(&TEST_FILES).any(|name| folder.join(name).is_file())
}

/// Reads one part; the samples are raw bytes, not yet normalised.
pub fn open(folder: &Path, split: Split) -> Result<InMemory, DataError> {
    let folder = inner(folder);
    let names: &[&str] = match split {
        Split::Train => &TRAIN_FILES,
        Split::Test => &TEST_FILES,
    };
    let missing: Vec<&str> = names.iter().copied().filter(|name| !folder.join(name).is_file()).collect();
    if !missing.is_empty() {
        let missing = missing.join(", ");
        return Err(DataError::malformed(&folder, format!("CIFAR-10 is not complete here: {missing} missing")));
    }
    let mut labels = Vec::new();
    let mut pixels = Vec::new();
    for name in names {
        let path = folder.join(name);
        let bytes = files::read(&path)?;
        parse(&path, &bytes, &mut labels, &mut pixels)?;
    }
    pixels.shrink_to_fit();
    let classes = CLASSES.iter().map(ToString::to_string).collect();
    InMemory::new(vec![SIDE, SIDE, N_CHANNELS], classes, labels, Samples::Bytes(pixels))
}

/// Appends the records of one file; `path` is for the messages only.
fn parse(path: &Path, bytes: &[u8], labels: &mut Vec<u32>, pixels: &mut Vec<u8>) -> Result<(), DataError> {
    let (records, rest) = bytes.as_chunks::<N_RECORD_BYTES>();
    if !rest.is_empty() || records.is_empty() {
        return Err(DataError::malformed(
            path,
            format!(
                "has {} bytes, expected a multiple of {N_RECORD_BYTES} (a label and 3 planes of 32 by 32) above zero; \
                 it is damaged, cut off or not the binary version of CIFAR-10: fetch it again",
                bytes.len()
            ),
        ));
    }
    labels.reserve(records.len());
    pixels.reserve(records.len() * (N_RECORD_BYTES - 1));
    for (at, [label, planes @ ..]) in records.iter().enumerate() {
        if usize::from(*label) >= CLASSES.len() {
            return Err(DataError::malformed(
                path,
                format!("label {label} of record {at} is above 9; this is not CIFAR-10 (CIFAR-100 has two labels)"),
            ));
        }
        labels.push(u32::from(*label));
        let (red, rest) = planes.split_at(N_PIXELS);
        let (green, blue) = rest.split_at(N_PIXELS);
        pixels.extend(red.iter().zip(green).zip(blue).flat_map(|((&red, &green), &blue)| [red, green, blue]));
    }
    Ok(())
}

/// The folder with the files: the one given, or the archive's own inside it.
fn inner(folder: &Path) -> PathBuf {
    let inner = folder.join(ARCHIVE_FOLDER);
    if inner.is_dir() { inner } else { folder.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{CLASSES, N_RECORD_BYTES, TEST_FILES, TRAIN_FILES, is_here, open, parse};
    use crate::data::{Dataset, Split};
    use crate::rng::Rng;

    fn record(label: u8) -> Vec<u8> {
        let mut bytes = vec![label];
        for plane in 0..3 {
            bytes.extend((0..1024).map(|at| (at % 60 + plane * 60) as u8));
        }
        bytes
    }

    #[test]
    fn planes_become_pixels_and_files_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_here(folder.path()));
        for (at, name) in TRAIN_FILES.iter().chain(&TEST_FILES).enumerate() {
            std::fs::write(folder.path().join(name), record(at as u8)).unwrap();
        }
        assert!(is_here(folder.path()));
        let train = open(folder.path(), Split::Train).unwrap();
        assert_eq!(train.labels(), [0, 1, 2, 3, 4]);
        assert_eq!((train.shape(), train.classes()[4].as_str()), ([32, 32, 3].as_slice(), "deer"));
        assert_eq!(train.batch(&[2]).unwrap().inputs[..6], [0.0, 60.0, 120.0, 1.0, 61.0, 121.0]);
        assert_eq!(open(folder.path(), Split::Test).unwrap().labels(), [5]);
        assert!(CLASSES.is_sorted());
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = |split| open(folder.path(), split).unwrap_err().to_string();
        std::fs::write(folder.path().join("data_batch_2.bin"), record(0)).unwrap();
        assert!(error(Split::Train).contains("data_batch_1.bin, data_batch_3.bin"));
        let test = folder.path().join("test_batch.bin");
        std::fs::create_dir(&test).unwrap();
        assert!(error(Split::Test).contains("test_batch.bin missing"));
        std::fs::remove_dir(&test).unwrap();
        for (bytes, answer) in [
            (Vec::new(), "has 0 bytes"),
            (record(1)[..3000].to_vec(), "has 3000 bytes"),
            ([record(1), vec![0]].concat(), "has 3074 bytes"),
            ([record(1), record(10)].concat(), "label 10 of record 1"),
        ] {
            std::fs::write(&test, bytes).unwrap();
            assert!(error(Split::Test).contains(answer) && error(Split::Test).contains("test_batch.bin"));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut bytes = [record(1), record(2)].concat();
            let at = rng.below(2) * N_RECORD_BYTES;
            bytes[at] = rng.next_u64() as u8;
            if rng.below(2) == 0 {
                bytes.truncate(rng.below(bytes.len() + 1));
            }
            let (mut labels, mut pixels) = (Vec::new(), Vec::new());
            let fine = parse(Path::new("x"), &bytes, &mut labels, &mut pixels).is_ok();
            assert!(!fine || labels.len() * 3072 == pixels.len(), "seed {seed}");
        }
    }
}
