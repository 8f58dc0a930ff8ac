//! Where the samples of a set that sits in memory came from, so that a broken one can be named.

use std::path::PathBuf;

use super::folders::Listing;

/// Where each sample came from.
#[derive(Clone, Debug, Default)]
pub(crate) enum Origins {
    /// Each from a file of its own.
    Files(Listing),
    /// Each from a line of one file.
    Lines {
        /// The file.
        path: PathBuf,
        /// The line of each sample, counted from 1.
        lines: Vec<u64>,
    },
    /// From a file that people do not read by line.
    #[default]
    Unknown,
}

impl Origins {
    /// Where one sample came from, for people.
    pub(crate) fn of(&self, index: usize) -> Option<String> {
        match self {
            Self::Files(listing) => (index < listing.labels.len()).then(|| listing.path(index).display().to_string()),
            Self::Lines { path, lines } => lines.get(index).map(|line| format!("{}, line {line}", path.display())),
            Self::Unknown => None,
        }
    }

    /// Those of the samples with these indices, in this order.
    pub(crate) fn only(&self, indices: &[usize]) -> Self {
        match self {
            Self::Files(listing) => Self::Files(listing.only(indices)),
            Self::Lines { path, lines } => {
                Self::Lines { path: path.clone(), lines: indices.iter().map(|&index| lines[index]).collect() }
            }
            Self::Unknown => Self::Unknown,
        }
    }
}
