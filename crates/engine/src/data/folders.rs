//! Folders whose layout says the class of each file: a folder for each class, or names that begin with the class.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::files;
use super::{DataError, Split};

/// The folders that may hold a part. Of several, the first that has class folders or files of its own is taken.
pub(crate) const TRAIN_FOLDERS: [&str; 2] = ["train", "training"];
pub(crate) const TEST_FOLDERS: [&str; 4] = ["test", "val", "valid", "validation"];

/// How a folder says the classes of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `<class>/<file>`.
    Folders,
    /// `<class>_<rest of the name>`.
    Prefixes,
}

/// The files of a data set and their classes.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    root: PathBuf,
    layout: Layout,
    /// Names alone, since whole paths of a million files would fill the memory.
    names: Vec<Box<OsStr>>,
    pub(crate) classes: Vec<String>,
    pub(crate) labels: Vec<u32>,
}

impl Listing {
    /// Where one file is.
    pub(crate) fn path(&self, index: usize) -> PathBuf {
        let name: &OsStr = &self.names[index];
        match self.layout {
            Layout::Folders => self.root.join(&self.classes[self.labels[index] as usize]).join(name),
            Layout::Prefixes => self.root.join(name),
        }
    }

    /// Only the files with these indices, in this order.
    pub(crate) fn only(&self, indices: &[usize]) -> Self {
        Self {
            root: self.root.clone(),
            layout: self.layout,
            names: indices.iter().map(|&index| self.names[index].clone()).collect(),
            classes: self.classes.clone(),
            labels: indices.iter().map(|&index| self.labels[index]).collect(),
        }
    }
}

/// The folder of a part, where the set has one for it.
///
/// A class may be called `train` too. So a folder is a part only if it has folders of its own, or if all folders beside it
/// are called like parts.
pub(crate) fn split_folder(root: &Path, split: Split) -> Option<PathBuf> {
    let names: &[&str] = match split {
        Split::Train => &TRAIN_FOLDERS,
        Split::Test => &TEST_FOLDERS,
    };
    let is_part = |path: &PathBuf| {
        let name = files::name_of(path);
        TRAIN_FOLDERS.iter().chain(&TEST_FOLDERS).any(|split| *split == name)
    };
    let all_parts = files::list(root).ok()?.iter().filter(|path| path.is_dir()).all(is_part);
    let usable = |folder: &PathBuf| {
        let entries = files::list(folder).unwrap_or_default();
        entries.iter().any(|path| path.is_dir()) || (all_parts && !entries.is_empty())
    };
    names.iter().map(|name| root.join(name)).find(usable)
}

/// The files of one part; where the set has no such part, those of the part or set that there is.
pub(crate) fn list_part(
    root: &Path,
    split: Split,
    layout: impl Fn(&Path) -> Result<Layout, DataError>,
    keep: impl Fn(&Path) -> bool,
) -> Result<Listing, DataError> {
    let train = split_folder(root, Split::Train).unwrap_or_else(|| root.to_owned());
    let listing = list(&train, layout(&train)?, &keep, None)?;
    match (split, split_folder(root, Split::Test)) {
        (Split::Test, Some(test)) => list(&test, layout(&test)?, &keep, Some(&listing.classes)),
        _ => Ok(listing),
    }
}

/// The files of one folder that `keep` wants.
///
/// The classes are the sorted names found, unless `known` gives them: the test part must have those of the training part.
pub(crate) fn list(
    root: &Path,
    layout: Layout,
    keep: impl Fn(&Path) -> bool,
    known: Option<&[String]>,
) -> Result<Listing, DataError> {
    let found = match layout {
        Layout::Folders => by_folder(root, &keep)?,
        Layout::Prefixes => by_prefix(root, &keep)?,
    };
    let classes = match known {
        Some(known) => known.to_vec(),
        None => found.iter().map(|(class, _)| class.clone()).collect(),
    };
    let mut listing = Listing { root: root.to_owned(), layout, names: Vec::new(), classes, labels: Vec::new() };
    for (class, names) in found {
        let Ok(label) = listing.classes.binary_search(&class) else {
            let known = listing.classes.join(", ");
            return Err(DataError::malformed(root, format!("class `{class}` is not in the training part ({known})")));
        };
        if names.is_empty() && known.is_none() {
            let folder = root.join(&class);
            return Err(DataError::malformed(&folder, "holds no sample of its class; fill the folder or remove it"));
        }
        listing.labels.extend(std::iter::repeat_n(label as u32, names.len()));
        listing.names.extend(names.into_iter().map(OsString::into_boxed_os_str));
    }
    if listing.names.is_empty() {
        let expected = match layout {
            Layout::Folders => "a folder for each class with its samples in it",
            Layout::Prefixes => "files named <class>_<anything>",
        };
        return Err(DataError::malformed(root, format!("holds no samples; expected {expected}")));
    }
    Ok(listing)
}

/// Classes with the names of their files, both sorted.
type Found = Vec<(String, Vec<OsString>)>;

fn by_folder(root: &Path, keep: &impl Fn(&Path) -> bool) -> Result<Found, DataError> {
    let mut found = Vec::new();
    for folder in files::list(root)?.into_iter().filter(|path| path.is_dir()) {
        let Some(class) = folder.file_name().and_then(OsStr::to_str) else {
            return Err(DataError::malformed(&folder, "the name of a class must be valid UTF-8; rename the folder"));
        };
        let paths = files::list(&folder)?.into_iter().filter(|path| keep(path));
        let names = paths.filter_map(|path| path.file_name().map(OsStr::to_owned)).collect();
        found.push((class.to_owned(), names));
    }
    // Sorted as strings, not as paths, for the labels are found by binary search among strings.
    found.sort();
    Ok(found)
}

fn by_prefix(root: &Path, keep: &impl Fn(&Path) -> bool) -> Result<Found, DataError> {
    let mut found = std::collections::BTreeMap::<String, Vec<OsString>>::new();
    for path in files::list(root)?.into_iter().filter(|path| keep(path)) {
        let name = files::name_of(&path);
        match name.split_once('_') {
            Some((class, _)) if !class.is_empty() => {
                let names = found.entry(class.to_owned()).or_default();
                names.extend(path.file_name().map(OsStr::to_owned));
            }
            _ => {
                let problem = "the name does not begin with a class and `_`, as in `7_jackson_32.wav`; rename it, or \
                               put the files of each class into a folder of its own";
                return Err(DataError::malformed(&path, problem));
            }
        }
    }
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::{Layout, list, split_folder};
    use crate::data::Split;
    use crate::data::files::name_of;

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
    fn both_layouts_give_sorted_classes_and_files() {
        let folders = make(&["b/2", "b/1", "a/9", "a/.hidden", "readme"]);
        let prefixes = make(&["b_2", "b_1", "a_9"]);
        for (root, layout, first) in [(&folders, Layout::Folders, "9"), (&prefixes, Layout::Prefixes, "a_9")] {
            let listing = list(root.path(), layout, |_| true, None).unwrap();
            assert_eq!((listing.classes.join(""), listing.labels.as_slice()), ("ab".to_owned(), [0, 1, 1].as_slice()));
            assert_eq!(name_of(&listing.path(0)), first);
            assert!((0..3).all(|index| listing.path(index).is_file()));
            let last = listing.only(&[2]);
            assert_eq!((last.path(0), last.labels), (listing.path(2), vec![1]));
        }
    }

    #[test]
    fn parts_are_found_and_must_agree() {
        let root = make(&["train/a/1", "train/b/1", "val/b/1", "val/c/1"]);
        std::fs::create_dir(root.path().join("test")).unwrap();
        let test = split_folder(root.path(), Split::Test).unwrap();
        assert!(test.ends_with("val"), "an empty folder is no part");
        let train = split_folder(root.path(), Split::Train).unwrap();
        let classes = list(&train, Layout::Folders, |_| true, None).unwrap().classes;
        let error = list(&test, Layout::Folders, |_| true, Some(&classes)).unwrap_err().to_string();
        assert!(error.contains("class `c` is not in the training part (a, b)"), "{error}");
        std::fs::remove_dir_all(test.join("c")).unwrap();
        assert_eq!(list(&test, Layout::Folders, |_| true, Some(&classes)).unwrap().labels, [1]);
    }

    #[test]
    fn a_class_may_be_called_train() {
        let root = make(&["car/1", "train/1", "train/2"]);
        assert_eq!(split_folder(root.path(), Split::Train), None);
        let flat = make(&["train/a_1", "test/a_2"]);
        assert!(split_folder(flat.path(), Split::Train).is_some() && split_folder(flat.path(), Split::Test).is_some());
    }

    #[test]
    fn nothing_to_be_found_is_said() {
        let root = make(&["a/1", "b/1.txt"]);
        let error =
            |layout, keep: fn(&std::path::Path) -> bool| list(root.path(), layout, keep, None).unwrap_err().to_string();
        assert!(error(Layout::Folders, |path| path.extension().is_none()).contains("b: holds no sample"));
        assert!(error(Layout::Prefixes, std::path::Path::is_file).contains("expected files named"));
        std::fs::write(root.path().join("name.wav"), "").unwrap();
        assert!(error(Layout::Prefixes, std::path::Path::is_file).contains("does not begin with a class"));
        let empty = tempfile::tempdir().unwrap();
        assert!(list(empty.path(), Layout::Folders, |_| true, None).is_err());
        assert!(list(&empty.path().join("x"), Layout::Folders, |_| true, None).is_err());
    }
}
