//! Which part of which set is wanted.

use super::super::spec::DataSpec;
use super::super::{DataError, Split, holdout};

/// Which part of which set is wanted.
pub(super) struct Wanted<'a> {
    pub(super) spec: &'a DataSpec,
    pub(super) split: Split,
    /// Decides which samples are held back.
    pub(super) seed: u64,
}

impl Wanted<'_> {
    /// The samples of the wanted part where some are held back for the test.
    pub(super) fn hold_back(&self, labels: &[u32]) -> Result<Vec<usize>, DataError> {
        holdout::split(labels, self.split, self.spec.test_fraction(), self.seed)
    }
}
