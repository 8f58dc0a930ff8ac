//! Where the blocks of a run come from.

use std::sync::Arc;

use nettorrent_engine::model::Part;
use nettorrent_swarm::{State, StateVersion};

/// What a run begins with, or goes on from when nobody has it in memory: where a block's numbers come from, by slot and part.
#[derive(Clone)]
pub struct Origin {
    /// How far it is. Whoever has less gets its blocks from who has more.
    pub version: StateVersion,
    /// A block's state.
    pub block: Arc<BlockSource>,
    /// Where peers share a folder: what has been saved there since.
    pub newer: Option<Arc<NewerOrigin>>,
}

/// Makes a block's state, by its slot and part, or says why it cannot.
pub type BlockSource = dyn Fn(usize, &Part) -> Result<State, String> + Send + Sync;

/// Looks for a later state than this one, and makes blocks of it.
pub type NewerOrigin = dyn Fn(StateVersion) -> Option<(StateVersion, Arc<BlockSource>)> + Send + Sync;

impl Origin {
    /// Takes what has been saved since, if there is something.
    pub(crate) fn look_for_newer(&mut self) {
        if let Some((version, block)) = self.newer.as_ref().and_then(|newer| newer(self.version)) {
            (self.version, self.block) = (version, block);
        }
    }
}
