//! Where the blocks of a run come from.

use std::sync::Arc;

use nettorrent_engine::model::Part;
use nettorrent_swarm::{Standing, State};

/// What a run begins with: where a block's numbers come from, by slot and part.
#[derive(Clone)]
pub struct Origin {
    /// How far it is. Whoever has less gets its blocks from who has more.
    pub standing: Standing,
    /// A block's state.
    pub block: Arc<BlockSource>,
}

/// Makes a block's state, by its slot and part, or says why it cannot.
pub type BlockSource = dyn Fn(usize, &Part) -> Result<State, String> + Send + Sync;
