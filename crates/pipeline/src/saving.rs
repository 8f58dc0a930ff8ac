//! Saving the whole network: the first member asks for one block after the other, so that nobody ever holds all of them.

use std::collections::VecDeque;
use std::sync::Arc;

use nettorrent_engine::model::Part;
use nettorrent_swarm::{SavedBlock, State};

use crate::state_transfer::IncomingState;

/// A snapshot that is being saved.
pub(crate) struct Saving {
    pub round: u32,
    /// The slots whose blocks have not come yet; the first is being waited for.
    pub slots: VecDeque<usize>,
    pub is_first: bool,
    pub incoming: Option<IncomingState>,
}

impl Saving {
    pub(crate) fn new(round: u32, slots: impl Iterator<Item = usize>) -> Self {
        Self { round, slots: slots.collect(), is_first: true, incoming: None }
    }

    /// The awaited block is there.
    pub(crate) fn take(&mut self, part: Arc<Part>, state: State) -> SavedBlock {
        self.slots.pop_front();
        self.incoming = None;
        let is_first = std::mem::replace(&mut self.is_first, false);
        SavedBlock { part, state: Arc::new(state), is_first, is_last: self.slots.is_empty() }
    }
}
