//! What can go wrong with a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use nettorrent_files::WriteError;

/// What went wrong with a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Writing a checkpoint failed; those before it are still there. All of the cause is in the message, in another order.
    #[error("cannot write {}: {}; earlier checkpoints are untouched{}", .0.path.display(), .0.source, .0.advice_in_run())]
    Save(WriteError),
    /// Writing another file failed.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The file is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

impl CheckpointError {
    /// For `map_err`: a checkpoint that could not be written.
    pub(super) fn save(folder: &Path) -> impl Fn(io::Error) -> Self {
        let failed = WriteError::of(folder);
        move |source| Self::Save(failed(source))
    }

    /// A checkpoint that is not what it should be.
    pub fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::io::{self, ErrorKind};
    use std::path::Path;

    use super::CheckpointError;

    #[test]
    fn a_full_disk_is_told_once() {
        let error = CheckpointError::save(Path::new("run"))(io::Error::from(ErrorKind::StorageFull));
        let text = error.to_string();
        assert!(
            text.starts_with("cannot write run: ") && text.ends_with("make room on the disk and resume the run"),
            "{text}"
        );
        assert!(error.source().is_none(), "whoever prints sources would say it again");
    }
}
