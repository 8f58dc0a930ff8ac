//! What ends a training run.

use crate::data::DataError;
use crate::data::batches::BatchError;
use crate::guard::Divergence;
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
    /// There are no threads to compute with.
    #[error(transparent)]
    Threads(#[from] TeamError),
    /// The data do not fit the model.
    #[error("{0}")]
    Mismatch(String),
    /// The run has diverged, and going back has not helped.
    #[error(
        "training diverged: {why} at step {step} (epoch {epoch}, learning rate {lr:?}), although it had gone back \
         {n_rollbacks} times and halved the learning rate each time; checkpoints from before are untouched. Lower \
         optimizer.lr (a tenth is a good try), add schedule.warmup, or look for broken samples, and go on from the last \
         good checkpoint or start anew"
    )]
    Diverged {
        /// What showed it.
        why: Divergence,
        /// How often the run went back before.
        n_rollbacks: u32,
        /// The step that was to be taken.
        step: u64,
        /// The epoch it is in, counted from 1.
        epoch: u64,
        /// The rate it was to be taken with.
        lr: f32,
    },
    /// The loss, or a parameter, is no number any more.
    #[error(
        "{what} became {value} at step {step} (epoch {epoch}, learning rate {lr:?}); checkpoints from before are untouched. \
         Lower optimizer.lr (a tenth is a good try), add schedule.warmup, or look for broken samples, and go on from the \
         last good checkpoint or start anew"
    )]
    NotFinite {
        /// The loss, or a parameter.
        what: &'static str,
        /// NaN or infinite.
        value: f64,
        /// The step that would have been taken.
        step: u64,
        /// The epoch it is in, counted from 1.
        epoch: u64,
        /// The rate it would have been taken with.
        lr: f32,
    },
}
