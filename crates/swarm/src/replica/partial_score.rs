//! A peer's share of an evaluation: which test samples it scores, and the score as it travels.

use std::ops::Range;

use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

/// A score as it travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PartialScore {
    loss_sum: f64,
    n_correct: u64,
    n: u64,
}

impl PartialScore {
    /// Whether so many samples can give it.
    pub(super) fn is_possible(&self, most: usize) -> bool {
        self.n <= most as u64 && self.n_correct <= self.n
    }
}

/// A member's share of so many samples, in proportion to its speed.
pub(super) fn test_share(n_samples: usize, rank: usize, n_peers: usize, speeds: &[u16]) -> Range<usize> {
    let speed = |rank: usize| speeds.get(rank).map_or(1, |&speed| usize::from(speed));
    let until = |rank: usize| (0..rank).map(speed).sum::<usize>();
    let all = until(n_peers).max(1);
    until(rank) * n_samples / all..until(rank + 1) * n_samples / all
}

impl From<Score> for PartialScore {
    fn from(score: Score) -> Self {
        Self { loss_sum: score.loss_sum, n_correct: score.n_correct as u64, n: score.n as u64 }
    }
}

impl From<PartialScore> for Score {
    fn from(score: PartialScore) -> Self {
        Self { loss_sum: score.loss_sum, n_correct: score.n_correct as usize, n: score.n as usize }
    }
}
