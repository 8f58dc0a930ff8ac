//! Blocks of a network that no peer holds whole, as hosts see them.

use std::sync::Arc;

use nettorrent_engine::model::Part;

use crate::place::State;

/// A block that a peer holds.
#[derive(Clone, Debug)]
pub struct BlockView {
    /// In which of the pipelines.
    pub pipeline: usize,
    /// In which of its slots.
    pub slot: usize,
    /// Which part of the network it is.
    pub part: Arc<Part>,
    /// Its numbers.
    pub values: Arc<Vec<f32>>,
}

/// A block of a snapshot that was gathered at the first member to be kept. Its host writes one after the other to the checkpoint.
#[derive(Clone, Debug)]
pub struct SavedBlock {
    /// The part of the network.
    pub part: Arc<Part>,
    /// Its state; the place is the same for all blocks of a snapshot.
    pub state: Arc<State>,
    /// Whether it is the first of the snapshot's blocks, and whether the last.
    pub is_first: bool,
    /// See `is_first`.
    pub is_last: bool,
}
