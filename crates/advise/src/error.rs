//! Why nothing can be advised.

use nettorrent_engine::train_error::TrainError;
use nettorrent_net::message_cost::MessageCostError;
use nettorrent_swarm::strategy::Malformed;

use crate::judge::JudgeError;

/// Why nothing can be advised.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// This machine cannot train the job.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A strategy cannot be judged.
    #[error(transparent)]
    Judge(#[from] JudgeError),
    /// Messages cannot be sent.
    #[error("cannot measure what messages cost: {0}")]
    Messages(#[from] MessageCostError),
    /// Messages cannot be made or read.
    #[error("cannot measure what messages cost: {0}")]
    Malformed(#[from] Malformed),
}
