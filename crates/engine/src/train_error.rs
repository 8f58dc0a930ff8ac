//! What ends a training run.

use crate::data::DataError;
use crate::data::batches::BatchError;
use crate::model::LossError;
use crate::team::TeamError;

/// What ends a run.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// A sample could not be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The batches cannot be made.
    #[error(transparent)]
    Batches(#[from] BatchError),
    /// The loss is not for these data.
    #[error(transparent)]
    Loss(#[from] LossError),
    /// There are no threads to compute with.
    #[error(transparent)]
    Threads(#[from] TeamError),
    /// Nobody wants it any more: its peer leaves.
    #[error("its peer leaves")]
    Cancelled,
    /// A worker that computes elsewhere has failed, in its own words.
    #[error("{0}")]
    Worker(String),
    /// The data do not fit the model.
    #[error("{0}")]
    Mismatch(String),
}
