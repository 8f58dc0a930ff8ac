//! How well some samples were classified, as one block tells the others.

use nettorrent_engine::model::{MOST_METRICS, Score};
use serde::{Deserialize, Serialize};

/// A score as it travels.
#[derive(Serialize, Deserialize)]
pub(crate) struct ScoreMessage {
    loss_sum: f64,
    pub n_correct: u64,
    pub n: u64,
    metrics: [f64; MOST_METRICS],
}

impl From<Score> for ScoreMessage {
    fn from(Score { loss_sum, n_correct, n, metrics }: Score) -> Self {
        Self { loss_sum, n_correct: n_correct as u64, n: n as u64, metrics }
    }
}

impl From<ScoreMessage> for Score {
    fn from(ScoreMessage { loss_sum, n_correct, n, metrics }: ScoreMessage) -> Self {
        Self { loss_sum, n_correct: n_correct as usize, n: n as usize, metrics }
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::model::Score;

    use super::ScoreMessage;

    #[test]
    fn all_of_a_score_travels() {
        let score = Score { loss_sum: 1.5, n_correct: 2, n: 3, metrics: [0.5, 1.0, 2.0, 4.0] };
        assert_eq!(Score::from(ScoreMessage::from(score)), score);
    }
}
