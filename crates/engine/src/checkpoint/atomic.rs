//! Files and folders that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::CheckpointError;

/// Writes a file under another name, syncs it and renames it into place; what was there before is replaced at once.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let partial = partial_name(path);
    let written =
        write_synced(&partial, bytes).and_then(|()| fs::rename(&partial, path)).and_then(|()| sync_parent(path));
    written.map_err(|source| {
        // What was half written is of no use to anybody; if it cannot be removed either, the first error is the one to tell.
        let _ = fs::remove_file(&partial);
        CheckpointError::Write { path: path.to_owned(), source }
    })
}

/// A folder that is written under another name, file by file. Until it is finished nobody sees it, and if it never is, nothing
/// of it stays.
pub(super) struct PartialFolder {
    folder: PathBuf,
    partial: PathBuf,
    is_finished: bool,
}

impl PartialFolder {
    /// Begins a folder, which must not exist yet.
    pub(super) fn begin(folder: &Path) -> Result<Self, CheckpointError> {
        let begun = Self { folder: folder.to_owned(), partial: partial_name(folder), is_finished: false };
        if folder.exists() {
            return Err(begun.error(io::ErrorKind::AlreadyExists.into()));
        }
        begun.prepare().map_err(|source| begun.error(source))?;
        Ok(begun)
    }

    fn prepare(&self) -> io::Result<()> {
        // A process that was killed may have left one behind.
        if self.partial.exists() {
            fs::remove_dir_all(&self.partial)?;
        }
        fs::create_dir_all(&self.partial)
    }

    /// A file in it that begins with these bytes and is as long as it will be; the rest of it is to be written by the caller.
    pub(super) fn create(&self, name: &str, beginning: &[u8], n_bytes: u64) -> Result<File, CheckpointError> {
        let create = || -> io::Result<File> {
            let mut file = File::create(self.partial.join(name))?;
            file.write_all(beginning)?;
            file.set_len(n_bytes)?;
            Ok(file)
        };
        create().map_err(|source| self.error(source))
    }

    /// Brings the folder to its place. All files must have been synced.
    pub(super) fn finish(mut self) -> Result<(), CheckpointError> {
        let finish = || -> io::Result<()> {
            sync_folder(&self.partial)?;
            fs::rename(&self.partial, &self.folder)?;
            sync_parent(&self.folder)
        };
        finish().map_err(|source| self.error(source))?;
        self.is_finished = true;
        Ok(())
    }

    /// Where the folder will be.
    pub(super) fn path(&self) -> &Path {
        &self.folder
    }

    /// What to say when something of it could not be written.
    pub(super) fn error(&self, source: io::Error) -> CheckpointError {
        CheckpointError::Save { path: self.folder.clone(), source }
    }
}

impl Drop for PartialFolder {
    fn drop(&mut self) {
        if !self.is_finished {
            // What was half written is of no use to anybody; if it cannot be removed either, there is nobody to tell.
            let _ = fs::remove_dir_all(&self.partial);
        }
    }
}

/// Beside the final place, so that renaming does not cross file systems; the leading dot hides it from listings.
fn partial_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial"))
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_folder(parent),
        _ => sync_folder(Path::new(".")),
    }
}

#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_: &Path) -> io::Result<()> {
    // Elsewhere folders cannot be opened; the rename is as durable as the system makes it.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PartialFolder, partial_name, write_file};
    use std::fs;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_file(&path, b"old").unwrap();
        // A folder in the way of the temporary file makes the write fail.
        fs::create_dir(partial_name(&path)).unwrap();
        let error = write_file(&path, b"new").unwrap_err().to_string();
        assert!(error.starts_with("cannot write") && !error.contains("checkpoints"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn leftovers_of_a_killed_process_do_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        fs::create_dir(partial_name(&folder)).unwrap();
        fs::write(partial_name(&folder).join("other"), b"ha").unwrap();
        let partial = PartialFolder::begin(&folder).unwrap();
        partial.create("model", b"whole", 5).unwrap();
        partial.finish().unwrap();
        assert_eq!(fs::read(folder.join("model")).unwrap(), b"whole");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_finished_leaves_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let partial = PartialFolder::begin(&root.path().join("step-1")).unwrap();
        partial.create("model", b"half", 8).unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        drop(partial);
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_there_is_not_replaced() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        fs::create_dir(&folder).unwrap();
        assert!(PartialFolder::begin(&folder).is_err());
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
