//! Files of one kind: which of them are for training, and which for the test.

use std::path::{Path, PathBuf};

use super::folders::{self, TEST_FOLDERS, TRAIN_FOLDERS};
use super::{DataError, Split, files};

/// Files that lie about and are no data.
const NO_DATA: [&str; 5] = ["citation", "copying", "license", "notice", "readme"];
/// How deep folders may lie in each other.
const MAX_DEPTH: usize = 8;

/// The files of a set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Those to train on.
    pub(crate) train: Vec<PathBuf>,
    /// Those to test with; none where some of the training part must be held back.
    pub(crate) test: Vec<PathBuf>,
}

/// The files with one of these extensions in a folder, or the one file that is named.
///
/// Parts are folders called `train` and `test` or `val`, or files whose names begin so, as in `train-00.txt`.
pub(crate) fn find(path: &Path, extensions: &[&str]) -> Result<Parts, DataError> {
    if !path.is_dir() {
        return Ok(Parts { train: vec![path.to_owned()], test: Vec::new() });
    }
    let below = |folder: &Path| {
        let mut found = Vec::new();
        collect(folder, extensions, 0, &mut found).map(|()| found)
    };
    let parts = match [Split::Train, Split::Test].map(|split| folders::split_folder(path, split)) {
        [Some(train), test] => {
            Parts { train: below(&train)?, test: test.map_or_else(|| Ok(Vec::new()), |test| below(&test))? }
        }
        [None, _] => by_name(below(path)?),
    };
    if parts.train.is_empty() {
        return Err(DataError::malformed(path, format!("holds no .{} file to train on", extensions.join(" or ."))));
    }
    Ok(parts)
}

/// Whether a name ends with one of these extensions.
pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default();
    extensions.contains(&extension.as_str())
}

fn collect(folder: &Path, extensions: &[&str], depth: usize, found: &mut Vec<PathBuf>) -> Result<(), DataError> {
    for path in files::list(folder)? {
        if path.is_dir() && depth < MAX_DEPTH {
            collect(&path, extensions, depth + 1, found)?;
        } else if path.is_file() && has_extension(&path, extensions) && !NO_DATA.contains(&first_word(&path).as_str()) {
            found.push(path);
        }
    }
    Ok(())
}

/// The files by what their names begin with; all are for training unless there are some for each part.
fn by_name(found: Vec<PathBuf>) -> Parts {
    let named = |names: &[&str]| {
        let of = |name: &&str| found.iter().filter(|path| first_word(path) == *name).cloned().collect::<Vec<_>>();
        names.iter().map(of).find(|files| !files.is_empty()).unwrap_or_default()
    };
    match (named(&TRAIN_FOLDERS), named(&TEST_FOLDERS)) {
        (train, test) if !train.is_empty() && !test.is_empty() => Parts { train, test },
        (train, _) if !train.is_empty() && train.len() < found.len() => Parts { train, test: Vec::new() },
        _ => Parts { train: found, test: Vec::new() },
    }
}

fn first_word(path: &Path) -> String {
    let name = files::name_of(path).to_lowercase();
    name.split(['-', '_', '.']).next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{NO_DATA, find};

    fn found(names: &[&str]) -> (String, String) {
        let root = tempfile::tempdir().unwrap();
        for name in names {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let parts = find(root.path(), &["txt"]).unwrap();
        let names = |paths: &[std::path::PathBuf]| {
            let name = |path: &std::path::PathBuf| path.strip_prefix(root.path()).unwrap().display().to_string();
            paths.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        (names(&parts.train), names(&parts.test))
    }

    #[test]
    fn parts_are_folders_or_names() {
        for (names, train, test) in [
            (&["train/a.txt", "train/b/c.TXT", "val/a.txt"][..], "train/a.txt train/b/c.TXT", "val/a.txt"),
            (&["train.txt", "val.txt", "readme.txt"], "train.txt", "val.txt"),
            (&["train-0.txt", "train-1.txt", "test-0.txt", "x.txt"], "train-0.txt train-1.txt", "test-0.txt"),
            (&["b.txt", "a.txt", "LICENSE.txt", "c.csv"], "a.txt b.txt", ""),
            (&["train.txt", "a.txt"], "train.txt", ""),
            (&["test-flight.txt", "a/b.txt"], "a/b.txt test-flight.txt", ""),
        ] {
            assert_eq!(found(names), (train.to_owned(), test.to_owned()), "{names:?}");
        }
        assert!(NO_DATA.is_sorted());
    }

    #[test]
    fn no_file_at_all_is_said() {
        let root = tempfile::tempdir().unwrap();
        assert!(find(root.path(), &["txt"]).unwrap_err().to_string().contains("holds no .txt file"));
        let file = root.path().join("x.dat");
        assert_eq!(find(&file, &["txt"]).unwrap().train, [file]);
    }
}
