//! Saving the whole network: the first member asks for one block after the other, so that nobody ever holds all of them.

use std::collections::VecDeque;
use std::sync::Arc;

use nettorrent_engine::model::Part;

use super::snapshot::IncomingState;
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

/// A mark that is being saved.
pub(super) struct Saving {
    pub round: u32,
    /// The slots whose blocks have not come yet; the first is being waited for.
    pub slots: VecDeque<usize>,
    pub is_first: bool,
    pub incoming: Option<IncomingState>,
}

impl Saving {
    pub(super) fn new(round: u32, slots: impl Iterator<Item = usize>) -> Self {
        Self { round, slots: slots.collect(), is_first: true, incoming: None }
    }

    /// The awaited block is there.
    pub(super) fn take(&mut self, part: Arc<Part>, state: State) -> SavedBlock {
        self.slots.pop_front();
        self.incoming = None;
        let is_first = std::mem::replace(&mut self.is_first, false);
        SavedBlock { part, state: Arc::new(state), is_first, is_last: self.slots.is_empty() }
    }
}
