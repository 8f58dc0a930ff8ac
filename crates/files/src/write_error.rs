//! What can go wrong when a file is written.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file or folder could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}{}", path.display(), self.advice())]
pub struct WriteError {
    /// Which.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl WriteError {
    /// For `map_err`: which file or folder it is about.
    pub fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self { path: path.to_owned(), source }
    }

    /// What to do about it, to be put after a message; empty if there is nothing to say.
    pub fn advice(&self) -> &'static str {
        match self.source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room on the disk and resume the run",
            ErrorKind::FileTooLarge => {
                "; files this large are not allowed here: raise the limit (`ulimit -f`) and resume the run"
            }
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "; choose a folder that can be written",
            _ => "",
        }
    }
}
