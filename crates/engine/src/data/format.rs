//! The formats that can be read, and how one is recognised.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::parts::{self, has_extension};
use super::{
    DataError, Split, arrays, cifar, csv, files, folders, idx, images, jsonl, names, parquet, shards, text, wav,
};

/// How much of a file is looked at to tell what it is, in bytes.
const LOOKED_AT: usize = 1 << 16;

/// How a data set is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Format {
    /// Find out.
    #[default]
    Auto,
    /// The binary version of CIFAR-10.
    Cifar10,
    /// A table as text.
    Csv,
    /// The digits embedded in the program.
    Digits,
    /// IDX files, as of MNIST.
    Idx,
    /// A folder of pictures for each class.
    Images,
    /// JSON lines, of text or of features.
    Jsonl,
    /// NumPy arrays.
    Npy,
    /// Parquet files, of text or of features.
    Parquet,
    /// Pictures in tar archives.
    Tar,
    /// Plain text.
    Text,
    /// Recordings.
    Wav,
}

/// All formats by name, sorted.
const FORMATS: [(&str, Format); 12] = [
    ("auto", Format::Auto),
    ("cifar10", Format::Cifar10),
    ("csv", Format::Csv),
    ("digits", Format::Digits),
    ("idx", Format::Idx),
    ("images", Format::Images),
    ("jsonl", Format::Jsonl),
    ("npy", Format::Npy),
    ("parquet", Format::Parquet),
    ("tar", Format::Tar),
    ("text", Format::Text),
    ("wav", Format::Wav),
];

impl FromStr for Format {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let found = FORMATS.iter().find(|(name, _)| *name == text);
        found
            .map(|&(_, format)| format)
            .ok_or_else(|| DataError::Setting(names::unknown("data format", text, &FORMATS.map(|(name, _)| name))))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = FORMATS.iter().find(|(_, format)| format == self);
        f.write_str(found.map_or("", |&(name, _)| name))
    }
}

impl TryFrom<String> for Format {
    type Error = DataError;

    fn try_from(text: String) -> Result<Self, DataError> {
        text.parse()
    }
}

impl From<Format> for String {
    fn from(format: Format) -> Self {
        format.to_string()
    }
}

/// Finds out the format of a file or folder by what is there.
pub(crate) fn detect(path: &Path) -> Result<Format, DataError> {
    let metadata = std::fs::metadata(path).map_err(|source| DataError::read(path, source))?;
    if !metadata.is_dir() {
        return by_file(path);
    }
    if cifar::is_here(path) {
        return Ok(Format::Cifar10);
    }
    if idx::has_split(path, Split::Train) || idx::has_split(path, Split::Test) {
        return Ok(Format::Idx);
    }
    if arrays::are_here(path) {
        return Ok(Format::Npy);
    }
    let train = folders::split_folder(path, Split::Train).unwrap_or_else(|| path.to_owned());
    if let Some(format) = by_names(&train)? {
        return Ok(format);
    }
    // Last, for a set of pictures or recordings often has a table about itself lying beside them.
    if csv_files(path).is_ok() {
        return Ok(Format::Csv);
    }
    let is_here = |format: &Format| extensions(*format).is_some_and(|names| parts::find(path, names).is_ok());
    if let Some(format) = [Format::Parquet, Format::Jsonl, Format::Tar, Format::Text].into_iter().find(is_here) {
        return Ok(format);
    }
    let problem = "holds no data set of a known format; looked for: data_batch_1.bin to 5 and test_batch.bin (cifar10); \
                   train.csv or one .csv file (csv); train-images-idx3-ubyte and its like, with or without .gz (idx); a \
                   folder of .jpg or .png pictures for each class, perhaps inside train/ and val/ (images); .jsonl files \
                   (jsonl); x_train.npy and y_train.npy, or an .npz archive (npy); .parquet files (parquet); .tar \
                   archives of pictures (tar); .txt files (text); .wav files in a folder for each class, or named \
                   <class>_<anything>.wav (wav)";
    Err(DataError::malformed(path, problem))
}

/// How the files of a format are called that consists of files of one kind.
pub(crate) fn extensions(format: Format) -> Option<&'static [&'static str]> {
    match format {
        Format::Jsonl => Some(&jsonl::EXTENSIONS),
        Format::Parquet => Some(&parquet::EXTENSIONS),
        Format::Tar => Some(&shards::EXTENSIONS),
        Format::Text => Some(&text::EXTENSIONS),
        _ => None,
    }
}

/// The format of a single file.
fn by_file(path: &Path) -> Result<Format, DataError> {
    if has_extension(path, &["csv", "tsv"]) {
        return Ok(Format::Csv);
    }
    if has_extension(path, &["npy", "npz"]) {
        return Ok(Format::Npy);
    }
    let is_it = |format: &Format| extensions(*format).is_some_and(|names| has_extension(path, names));
    match [Format::Jsonl, Format::Parquet, Format::Tar, Format::Text].into_iter().find(is_it) {
        Some(Format::Text) if csv::looks_like_table(&files::beginning(path, LOOKED_AT)?) => Ok(Format::Csv),
        Some(format) => Ok(format),
        None => {
            let problem = "is a file of no known format: .csv, .jsonl, .npz, .parquet, .tar or .txt was looked for; all \
                           other formats are folders, so name the folder, or set `format`";
            Err(DataError::malformed(path, problem))
        }
    }
}

/// The table to train on, and the one to test with if it is apart.
pub(crate) fn csv_files(path: &Path) -> Result<(PathBuf, Option<PathBuf>), DataError> {
    if !path.is_dir() {
        return Ok((path.to_owned(), None));
    }
    let train = path.join("train.csv");
    if train.is_file() {
        return Ok((train, Some(path.join("test.csv")).filter(|test| test.is_file())));
    }
    let mut tables = files::list(path)?;
    tables.retain(|path| path.is_file() && has_extension(path, &["csv", "tsv"]));
    match tables.len() {
        1 => Ok((tables.remove(0), None)),
        n => {
            let problem = format!("holds {n} tables; expected train.csv (and test.csv), or just one .csv file");
            Err(DataError::malformed(path, problem))
        }
    }
}

/// Recordings or pictures, by the names in a folder and in the folders inside it, up to the first that says it.
fn by_names(folder: &Path) -> Result<Option<Format>, DataError> {
    let entries = files::list(folder)?;
    if entries.iter().any(|path| wav::is_wav(path)) {
        return Ok(Some(Format::Wav));
    }
    // Pictures need a folder for each class: those that lie about say nothing of their class.
    for inside in entries.iter().filter(|path| path.is_dir()) {
        let paths = files::list(inside)?;
        if paths.iter().any(|path| wav::is_wav(path)) {
            return Ok(Some(Format::Wav));
        }
        if paths.iter().any(|path| images::has_image_name(path)) {
            return Ok(Some(Format::Images));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::{FORMATS, Format, detect};

    fn make(names: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for name in names {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn each_format_is_recognised() {
        for (names, format) in [
            (["data_batch_1.bin", "batches.meta.txt"], Format::Cifar10),
            (["cifar-10-batches-bin/test_batch.bin", "x"], Format::Cifar10),
            (["train.csv", "test.csv"], Format::Csv),
            (["iris.csv", "readme.md"], Format::Csv),
            (["t10k-images.idx3-ubyte", "t10k-labels.idx1-ubyte"], Format::Idx),
            (["train/a/1.JPEG", "val/a/2.JPEG"], Format::Images),
            (["a/1.png", "b/1.png"], Format::Images),
            (["train/a/1.JPEG", "noise.csv"], Format::Images),
            (["book.txt", "readme.md"], Format::Text),
            (["train.txt", "val.txt"], Format::Text),
            (["train/a.txt", "test/a.txt"], Format::Text),
            (["iris.csv", "readme.txt"], Format::Csv),
            (["x_train.npy", "y_train.npy"], Format::Npy),
            (["train-0.parquet", "test-0.parquet"], Format::Parquet),
            (["a.jsonl", "notes.txt"], Format::Jsonl),
            (["0000.tar", "0001.tar"], Format::Tar),
            (["0_x.wav", "README.md"], Format::Wav),
            (["yes/1.wav", "no/1.wav"], Format::Wav),
            (["train/yes/1.wav", "test/yes/1.wav"], Format::Wav),
            (["code/a.py", "recordings/0_x.wav"], Format::Wav),
        ] {
            assert_eq!(detect(make(&names).path()).unwrap(), format, "{names:?}");
        }
        let root = make(&["table.TSV"]);
        assert_eq!(detect(&root.path().join("table.TSV")).unwrap(), Format::Csv);
        for (name, format) in
            [("a.jsonl", Format::Jsonl), ("a.npz", Format::Npy), ("a.parquet", Format::Parquet), ("a.tar", Format::Tar)]
        {
            let path = root.path().join(name);
            std::fs::write(&path, "").unwrap();
            assert_eq!(detect(&path).unwrap(), format);
        }
        let path = root.path().join("file.txt");
        for (content, format) in
            [("1,2,x\n3,4,y\n", Format::Csv), ("To be,\nor not\n", Format::Text), ("", Format::Text)]
        {
            std::fs::write(&path, content).unwrap();
            assert_eq!(detect(&path).unwrap(), format, "{content}");
        }
    }

    #[test]
    fn what_is_not_recognised_lists_what_was_looked_for() {
        for names in [["a.png", "b.png"], ["x/y", "z"], ["a.csv", "b.csv"]] {
            let root = make(&names);
            let error = detect(root.path()).unwrap_err().to_string();
            assert!(error.contains("looked for") && error.contains("(idx)"), "{error}");
        }
        let root = make(&["model.onnx"]);
        assert!(detect(&root.path().join("model.onnx")).unwrap_err().to_string().contains("name the folder"));
        assert!(detect(&root.path().join("none")).unwrap_err().to_string().contains("none"));
    }

    #[test]
    fn formats_have_names() {
        assert!(FORMATS.is_sorted());
        for (name, format) in FORMATS {
            assert_eq!((format.to_string(), name.parse::<Format>().unwrap()), (name.to_owned(), format));
        }
        let error = serde_json::from_str::<Format>("\"image\"").unwrap_err().to_string();
        assert!(error.contains("Did you mean `images`?"), "{error}");
    }
}
