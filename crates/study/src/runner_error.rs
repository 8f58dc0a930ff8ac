//! Why runs cannot be made.

use std::path::PathBuf;

use crate::folder::FolderError;

/// Why runs cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The study's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The program cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// The system refuses to give a run its own processors.
    #[error("cannot set the CPU affinity of a run: {0}; run without --side-by-side")]
    Cores(std::io::Error),
}
