//! Why runs cannot be made.

use std::path::PathBuf;

use nettorrent_launch::LaunchError;

use crate::folder::FolderError;

/// Why runs cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The study's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A machine that peers are to be on cannot be used.
    #[error("{0}; what is done is kept, and the same command goes on")]
    Host(#[from] LaunchError),
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
