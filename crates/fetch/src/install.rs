//! Gathers a data set in a temporary folder and puts it under its final name in one step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::CacheError;
use crate::sync::{sync_folder, sync_tree};

/// A data set in the making, beside the place where it will be, so that a rename suffices.
pub(crate) struct Staging {
    folder: TempDir,
    contents: PathBuf,
}

impl Staging {
    /// An empty one. Removes what a killed process left; the caller holds the data set's lock, so
    /// nobody else is using it.
    pub(crate) fn beside(target: &Path) -> Result<Self, CacheError> {
        let parent = target.parent().unwrap_or(Path::new("."));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!(".{name}.new-");
        fs::create_dir_all(parent).map_err(CacheError::io("could not create ", parent))?;
        remove_leftovers(parent, &prefix).map_err(CacheError::io("could not clean ", parent))?;
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)
            .map_err(CacheError::io("could not create a folder in ", parent))?;
        // The temporary folder is ours alone; the one inside gets the permissions of any folder.
        let contents = folder.path().join("contents");
        fs::create_dir(&contents).map_err(CacheError::io("could not create ", &contents))?;
        Ok(Self { folder, contents })
    }

    /// Where the data set's files go.
    pub(crate) fn contents(&self) -> &Path {
        &self.contents
    }

    /// Makes sure that all is on the disk, then renames it to `target`, in place of what is there.
    pub(crate) fn install(self, target: &Path) -> Result<(), CacheError> {
        let source = only_folder_in(&self.contents).map_err(CacheError::io("could not read ", &self.contents))?;
        let source = source.unwrap_or_else(|| self.contents.clone());
        sync_tree(&source).map_err(CacheError::io("could not sync ", &source))?;
        let replaced = self.folder.path().join("replaced");
        let replaces = target.exists();
        if replaces {
            fs::rename(target, &replaced).map_err(CacheError::io("could not replace ", target))?;
        }
        if let Err(error) = fs::rename(&source, target) {
            if replaces {
                // The old set is whole, so it goes back; if even that fails, the first error says more.
                fs::rename(&replaced, target).ok();
            }
            return Err(CacheError::io("could not create ", target)(error));
        }
        let parent = target.parent().unwrap_or(Path::new("."));
        sync_folder(parent).map_err(CacheError::io("could not sync ", parent))
        // Dropping the temporary folder removes the old set.
    }
}

fn remove_leftovers(parent: &Path, prefix: &str) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The folder that holds everything else, if there is just one thing and it is a folder.
fn only_folder_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut entries = fs::read_dir(folder)?;
    let (Some(first), None) = (entries.next(), entries.next()) else { return Ok(None) };
    let first = first?;
    Ok(first.file_type()?.is_dir().then(|| first.path()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::Staging;

    #[test]
    fn a_set_replaces_another_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("datasets").join("toy");
        for text in ["old", "new"] {
            let staging = Staging::beside(&target).expect("staged");
            fs::write(staging.contents().join(text), text).expect("written");
            assert!(!target.join(text).exists());
            staging.install(&target).expect("installed");
        }
        assert!(target.join("new").exists() && !target.join("old").exists());
        assert_eq!(fs::read_dir(folder.path().join("datasets")).expect("readable").count(), 1);
    }

    #[test]
    fn an_outer_folder_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("toy");
        let staging = Staging::beside(&target).expect("staged");
        let outer = staging.contents().join("outer");
        fs::create_dir(&outer).expect("created");
        fs::write(outer.join("a"), "a").expect("written");
        staging.install(&target).expect("installed");
        assert!(target.join("a").is_file());
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(folder.path().join(".toy.new-abc").join("contents")).expect("created");
        fs::create_dir_all(folder.path().join(".toy-2.new-abc")).expect("created");
        drop(Staging::beside(&folder.path().join("toy")).expect("staged"));
        let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").flatten().map(|e| e.file_name()).collect();
        assert_eq!(left, [".toy-2.new-abc"]);
    }
}
