//! How a member's work gets on, as its host sees it and as it tells the others.

use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

/// How a member's work gets on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkState {
    /// It has something to do, or had until a moment ago: it computes, sends or receives.
    #[default]
    Busy,
    /// It has had nothing to do for long but to wait for these.
    Waiting(Vec<PeerId>),
    /// Its computation stands still.
    Stuck,
}

impl WorkState {
    /// Whom it waits for.
    pub(super) fn awaited(&self) -> &[PeerId] {
        match self {
            Self::Waiting(awaited) => awaited,
            Self::Busy | Self::Stuck => &[],
        }
    }
}
