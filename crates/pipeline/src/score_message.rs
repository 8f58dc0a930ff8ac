//! How well some samples were classified, as one block tells the others.

use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

/// A score as it travels.
#[derive(Serialize, Deserialize)]
pub(crate) struct ScoreMessage {
    loss_sum: f64,
    pub n_correct: u64,
    pub n: u64,
}

impl From<Score> for ScoreMessage {
    fn from(Score { loss_sum, n_correct, n, .. }: Score) -> Self {
        Self { loss_sum, n_correct: n_correct as u64, n: n as u64 }
    }
}

impl From<ScoreMessage> for Score {
    fn from(ScoreMessage { loss_sum, n_correct, n }: ScoreMessage) -> Self {
        Self { loss_sum, n_correct: n_correct as usize, n: n as usize, ..Score::default() }
    }
}
