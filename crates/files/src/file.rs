//! One file, replaced at once.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::sync::sync_parent;
use crate::write_error::WriteError;

/// Writes a file under another name, syncs it and renames it into place; what was there before is replaced at once.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let partial = partial_name(path);
    let written =
        write_synced(&partial, bytes).and_then(|()| fs::rename(&partial, path)).and_then(|()| sync_parent(path));
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

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{partial_name, write_file};
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
}
