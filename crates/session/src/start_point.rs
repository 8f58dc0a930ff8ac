//! Where a run begins, or goes on.

use nettorrent_swarm::Place;

/// Where a run begins, or goes on.
#[derive(Clone, Debug, Default)]
pub struct StartPoint {
    /// How far it is.
    pub place: Place,
    /// How many training samples are left out, because they spoil their batches.
    pub n_left_out: usize,
}
