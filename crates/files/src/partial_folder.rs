//! A folder that is written file by file and then put in its place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::file::partial_name;
use crate::sync::{sync_parent, sync_tree};

/// A folder that is written under another name. Until it is finished nobody sees it, and if it never is, nothing of it stays.
#[derive(Debug)]
pub struct PartialFolder {
    target: PathBuf,
    contents: PathBuf,
}

impl PartialFolder {
    /// Begins a folder. What a killed process has left of an earlier one is removed; the caller sees to it that no other process writes
    /// the same one.
    pub fn begin(target: &Path) -> io::Result<Self> {
        Self::begin_at(target, partial_name(target))
    }

    /// Begins a folder that other processes may write too: the first that finishes it has made it. What a killed one leaves is for others
    /// to remove.
    pub fn begin_own(target: &Path) -> io::Result<Self> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        Self::begin_at(target, target.with_file_name(format!(".{name}.{}.partial", std::process::id())))
    }

    fn begin_at(target: &Path, contents: PathBuf) -> io::Result<Self> {
        let begun = Self { target: target.to_owned(), contents };
        begun.remove_leftovers()?;
        fs::create_dir_all(&begun.contents)?;
        Ok(begun)
    }

    /// Where its files go until it is finished.
    pub fn contents(&self) -> &Path {
        &self.contents
    }

    /// Where it will be.
    pub fn target(&self) -> &Path {
        &self.target
    }

    /// Syncs all files, which must be closed, and brings the folder to its place, where nothing may be.
    pub fn finish(self) -> io::Result<()> {
        sync_tree(&self.contents)?;
        fs::rename(&self.contents, &self.target)?;
        sync_parent(&self.target)
    }

    /// Syncs all files, and puts a folder within the contents, or these themselves, in the place of what was there before.
    pub fn replace_by(self, folder: &Path) -> io::Result<()> {
        sync_tree(folder)?;
        let replaced = self.replaced();
        let replaces = self.target.exists();
        if replaces {
            fs::rename(&self.target, &replaced)?;
        }
        if let Err(error) = fs::rename(folder, &self.target) {
            if replaces {
                // What was there is whole, so it goes back; if even that fails, the first error says more.
                let _ = fs::rename(&replaced, &self.target);
            }
            return Err(error);
        }
        sync_parent(&self.target)
        // Dropping it removes what was replaced.
    }

    fn replaced(&self) -> PathBuf {
        self.contents.with_extension("replaced")
    }

    fn remove_leftovers(&self) -> io::Result<()> {
        for folder in [&self.contents, &self.replaced()] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        // What was half written is of no use to anybody; if it cannot be removed either, there is nobody to tell.
        let _ = self.remove_leftovers();
    }
}

#[cfg(test)]
mod tests {
    use super::PartialFolder;
    use crate::file::partial_name;
    use std::fs;
    use std::path::Path;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_a_killed_process_left_does_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("step-1");
        fs::create_dir(partial_name(&target)).unwrap();
        fs::write(partial_name(&target).join("other"), b"ha").unwrap();
        fs::create_dir(root.path().join(".step-1.replaced")).unwrap();
        fs::create_dir(root.path().join(".step-10.partial")).unwrap();
        let partial = PartialFolder::begin(&target).unwrap();
        fs::write(partial.contents().join("model"), b"whole").unwrap();
        partial.finish().unwrap();
        assert_eq!(fs::read(target.join("model")).unwrap(), b"whole");
        assert_eq!(names(&target), ["model"]);
        assert_eq!(names(root.path()), [".step-10.partial", "step-1"]);
    }

    #[test]
    fn a_folder_that_is_not_finished_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let partial = PartialFolder::begin(&root.path().join("step-1")).unwrap();
        fs::write(partial.contents().join("model"), b"half").unwrap();
        assert_eq!(names(root.path()), [".step-1.partial"]);
        drop(partial);
        assert!(names(root.path()).is_empty());
    }

    #[test]
    fn one_folder_replaces_another() {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("sets").join("toy");
        for text in ["old", "new"] {
            let partial = PartialFolder::begin(&target).unwrap();
            let inner = partial.contents().join("inner");
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join(text), text).unwrap();
            assert!(!target.join(text).exists());
            partial.replace_by(&inner).unwrap();
        }
        assert_eq!(names(&target), ["new"]);
        assert_eq!(names(&root.path().join("sets")), ["toy"]);
    }
}
