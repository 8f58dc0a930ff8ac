//! Files and folders that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::CheckpointError;

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

/// Writes a folder of files in the same way. The folder must not exist yet.
pub fn write_folder(folder: &Path, files: &[(&str, &[u8])]) -> Result<(), CheckpointError> {
    let partial = partial_name(folder);
    let write = || -> io::Result<()> {
        // A process that was killed may have left one behind.
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        fs::create_dir_all(&partial)?;
        for (name, bytes) in files {
            write_synced(&partial.join(name), bytes)?;
        }
        sync_folder(&partial)?;
        fs::rename(&partial, folder)?;
        sync_parent(folder)
    };
    write().map_err(|source| {
        let _ = fs::remove_dir_all(&partial);
        CheckpointError::Write { path: folder.to_owned(), source }
    })
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
    use super::{partial_name, write_file, write_folder};
    use std::fs;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_file(&path, b"old").unwrap();
        // A folder in the way of the temporary file makes the write fail.
        fs::create_dir(partial_name(&path)).unwrap();
        assert!(write_file(&path, b"new").unwrap_err().to_string().contains("earlier checkpoints are untouched"));
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn leftovers_of_a_killed_process_do_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("step-1");
        fs::create_dir(partial_name(&folder)).unwrap();
        fs::write(partial_name(&folder).join("model"), b"ha").unwrap();
        write_folder(&folder, &[("model", b"whole")]).unwrap();
        assert_eq!(fs::read(folder.join("model")).unwrap(), b"whole");
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
