//! How far a turn is.

use std::time::Duration;

use nettorrent_engine::model::Score;

/// A turn that is going on, or over and waiting for its round to end.
pub(super) struct TurnState {
    /// Its current work.
    pub work: u64,
    /// The round of the segment that it is for.
    pub round: usize,
    /// The first batch, counted from the beginning of the segment.
    pub first: u32,
    /// How many batches the turn has for this peer.
    pub n_mine: u32,
    /// How many of its batches are trained.
    pub n_done: u32,
    /// By what the contribution is scaled.
    pub share: f32,
    /// The gradient of the current batch, where the peer takes steps by itself.
    pub gradient: Vec<Vec<f32>>,
    /// How long this peer waited for others before the turn, and how far it is ahead of the slowest of them.
    pub waited: Duration,
    pub staleness: u32,
    /// Whether every gradient so far was made of numbers.
    pub is_finite: bool,
    pub score: Score,
    /// The batches' mean losses added up.
    pub loss_sum: f64,
    pub compute: Duration,
    /// When its last batch was trained.
    pub ended: Option<Duration>,
}

impl TurnState {
    /// How much of it is done.
    pub(super) fn share_done(&self) -> f64 {
        f64::from(self.n_done) / f64::from(self.n_mine.max(1))
    }
}
