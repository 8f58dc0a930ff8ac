//! Who takes part: a view is a numbered list of peers that all its members hold alike.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A peer's name. Its upper bits are its join index, the order in which peers came; its lower bits tell apart those who took the
/// same join index at the same time (over the network they are a fingerprint of its key).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PeerId(pub u64);

impl PeerId {
    /// How many of the lower bits are the fingerprint.
    pub const FINGERPRINT_BITS: u32 = 40;

    /// The peer of this join index whose key has this fingerprint.
    pub fn new(join_index: u32, fingerprint: u64) -> Self {
        Self(u64::from(join_index) << Self::FINGERPRINT_BITS | fingerprint & ((1 << Self::FINGERPRINT_BITS) - 1))
    }

    /// When it came: 0 for who started the swarm.
    pub fn join_index(self) -> u32 {
        (self.0 >> Self::FINGERPRINT_BITS) as u32
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}", self.join_index())
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:x}", self.join_index(), self.0 & ((1 << Self::FINGERPRINT_BITS) - 1))
    }
}

/// A numbered list of peers. A view with a higher number replaces one with a lower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Its number: every change of the members makes a new one.
    pub number: u32,
    /// The members, sorted; a member's rank is its place here.
    pub members: Arc<[PeerId]>,
    /// The latest view on the way to this one that had a quorum, by number: this one, unless a minority goes on alone. 0 where
    /// nobody keeps count.
    pub base: u32,
}

impl View {
    /// A view of these peers, in the order of their names.
    pub fn new(number: u32, mut members: Vec<PeerId>) -> Self {
        members.sort_unstable();
        members.dedup();
        Self { number, members: members.into(), base: 0 }
    }

    /// The same view, known to go back to the quorum of that number.
    #[must_use]
    pub fn based_on(self, base: u32) -> Self {
        Self { base, ..self }
    }

    /// How much speaks for what is trained in this view, against what others train elsewhere at the same time.
    pub fn weight(&self) -> Weight {
        let is_alone = self.base > 0 && self.base < self.number;
        Weight { base: self.base, n_alone: if is_alone { self.len() as u32 } else { 0 } }
    }

    /// How many members there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether nobody is there.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// A member's rank.
    pub fn rank(&self, peer: PeerId) -> Option<usize> {
        self.members.binary_search(&peer).ok()
    }
}

/// How much speaks for a state, compared with that of peers who trained elsewhere meanwhile: a quorum that came later; then,
/// that it was trained on since, the more so the more peers did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Weight {
    base: u32,
    n_alone: u32,
}

impl Weight {
    /// Whether it was trained by peers who had no quorum.
    pub fn is_alone(self) -> bool {
        self.n_alone > 0
    }
}
