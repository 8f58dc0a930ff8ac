//! One file, replaced at once.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::sync::sync_parent;
use crate::write_error::WriteError;

/// Writes a file under another name, syncs it and renames it into place; what was there before is replaced at once.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    replace(path, bytes, OpenOptions::new().write(true).create(true).truncate(true))
}

/// The same for a file that only its owner may read, where the system knows such files.
pub fn write_private_file(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let mut options = OpenOptions::new();
    // One that somebody has left there might be readable by others.
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = fs::remove_file(partial_name(path));
    replace(path, bytes, &options)
}

fn replace(path: &Path, bytes: &[u8], options: &OpenOptions) -> Result<(), WriteError> {
    let partial = partial_name(path);
    let written = write_synced(&partial, bytes, options)
        .and_then(|()| fs::rename(&partial, path))
        .and_then(|()| sync_parent(path));
    written.map_err(|source| {
        // What was half written is of no use to anybody; if it cannot be removed either, the first error is the one to tell.
        let _ = fs::remove_file(&partial);
        WriteError::of(path)(source)
    })
}

/// Beside the final place, so that renaming does not cross file systems; the leading dot hides it from listings.
pub(crate) fn partial_name(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.partial"))
}

fn write_synced(path: &Path, bytes: &[u8], options: &OpenOptions) -> io::Result<()> {
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{partial_name, write_file, write_private_file};
    use std::fs;

    #[cfg(unix)]
    #[test]
    fn a_private_file_is_its_owners_alone_whatever_was_left_there() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(partial_name(&path), b"left by another").unwrap();
        write_private_file(&path, b"secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&path).unwrap(), b"secret");
    }

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
}
