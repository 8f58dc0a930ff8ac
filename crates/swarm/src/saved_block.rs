//! A block of a network, on its way to a checkpoint.

use std::sync::Arc;

use nettorrent_engine::model::Part;

use crate::place::State;

/// A block of a mark that was gathered at the first member to be kept. Its host writes one after the other to the checkpoint.
#[derive(Clone, Debug)]
pub struct SavedBlock {
    /// The part of the network.
    pub part: Arc<Part>,
    /// Its state; the place is the same for all blocks of a mark.
    pub state: Arc<State>,
    /// Whether it is the first of the mark's blocks, and whether the last.
    pub is_first: bool,
    /// See `is_first`.
    pub is_last: bool,
}
