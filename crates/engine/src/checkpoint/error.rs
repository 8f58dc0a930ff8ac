//! What can go wrong with a checkpoint.

use std::path::{Path, PathBuf};

/// What went wrong with a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Writing a checkpoint failed; those before it are still there.
    #[error("cannot write {}: {source}; earlier checkpoints are untouched{}", path.display(), advice(source))]
    Save {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Writing another file failed.
    #[error("cannot write {}: {source}{}", path.display(), advice(source))]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

/// What to do about a failed write, to be put after its message.
fn advice(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "; make room on the disk and resume the run"
        }
        std::io::ErrorKind::FileTooLarge => {
            "; files this large are not allowed here: raise the limit (`ulimit -f`) and resume the run"
        }
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a folder that can be written"
        }
        _ => "",
    }
}

impl CheckpointError {
    pub(crate) fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.into() }
    }
}
