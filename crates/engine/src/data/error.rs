//! What can be wrong with data.

use std::path::{Path, PathBuf};

use crate::team::TeamError;

/// What is wrong with a data file, and where.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system would not let us read it.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What is made of the data cannot be kept.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file was read but is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do about it.
        problem: String,
    },
    /// A sample was asked for that the set does not have. Indices may come from another peer, so this is no bug of ours.
    #[error("there is no sample {index}: the set has {n_samples}")]
    NoSuchSample {
        /// The index asked for.
        index: usize,
        /// How many samples there are.
        n_samples: usize,
    },
    /// What was asked for does not fit the data, or contradicts itself.
    #[error("{0}")]
    Setting(String),
    /// There are no threads to read it with.
    #[error(transparent)]
    Threads(#[from] TeamError),
}

impl DataError {
    /// The file is not what it should be.
    pub(crate) fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.into() }
    }

    /// The system would not let us read it.
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}
