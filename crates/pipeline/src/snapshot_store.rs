//! Snapshots: what blocks were after some round, all of them after the same, so that training can go on from there.

use std::collections::{BTreeMap, BTreeSet};

use nettorrent_swarm::{Malformed, State, StateVersion};
use serde::{Deserialize, Serialize};

/// The snapshots that a peer keeps: of its own blocks, and copies of others'.
#[derive(Default)]
pub(crate) struct SnapshotStore {
    /// By block and version, which tells apart what was trained by peers that were cut off from each other. In which pipeline a
    /// block was does not matter: any of its replicas can go on from it.
    states: BTreeMap<(usize, StateVersion), State>,
}

impl SnapshotStore {
    pub(crate) fn put(&mut self, block: usize, state: State) {
        self.states.insert((block, state.place.version), state);
    }

    pub(crate) fn get(&self, block: usize, snapshot: StateVersion) -> Option<&State> {
        self.states.get(&(block, snapshot))
    }

    /// A block after a round of the present view.
    pub(crate) fn after(&self, block: usize, round: u32) -> Option<&State> {
        let snapshots = self.states.range((block, StateVersion::default())..);
        let mut of_block = snapshots.take_while(|((other, _), _)| *other == block);
        of_block.find(|((_, version), _)| version.round == round).map(|(_, state)| state)
    }

    /// All that is here.
    pub(crate) fn list(&self) -> Vec<(u32, StateVersion)> {
        self.states.keys().map(|&(block, version)| (block as u32, version)).collect()
    }

    /// Forgets the snapshots before a round, but for those that are yet to be saved.
    pub(crate) fn forget_before(&mut self, round: u32, to_save: &[u32]) {
        self.states.retain(|(_, version), _| version.round >= round || to_save.contains(&version.round));
    }

    /// Forgets all snapshots but one: those before it are not needed, and what came after it belongs to another past.
    pub(crate) fn keep_only(&mut self, snapshot: Option<StateVersion>) {
        self.states.retain(|(_, version), _| Some(*version) == snapshot);
    }
}

/// What a peer tells the first member of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Held {
    /// Which block, counted over all pipelines.
    pub address: u32,
    pub is_copy: bool,
    /// If it is an epoch's end: how many epochs are done.
    pub epoch: Option<u64>,
}

/// Who holds a snapshot, each by address and whether it is a copy; and which epoch it ends.
#[derive(Default)]
struct Holders {
    who: BTreeSet<(u32, bool)>,
    epoch: Option<u64>,
}

/// How many snapshots may be under way: blocks are never far apart.
const MOST_SNAPSHOTS: usize = 256;

/// What the first member knows of snapshots.
#[derive(Default)]
pub(crate) struct SnapshotLedger {
    /// By round.
    held: BTreeMap<u32, Holders>,
}

impl SnapshotLedger {
    pub(crate) fn count(&mut self, round: u32, held: Held) -> Result<(), Malformed> {
        if self.held.len() >= MOST_SNAPSHOTS && !self.held.contains_key(&round) {
            return Err(Malformed::new("it tells of more snapshots than there can be"));
        }
        let holders = self.held.entry(round).or_default();
        holders.who.insert((held.address, held.is_copy));
        holders.epoch = holders.epoch.or(held.epoch);
        Ok(())
    }

    /// Takes out the oldest snapshot of which all is held, with the epoch that it ends; older ones will never be whole.
    pub(crate) fn take_complete(&mut self, n_expected: usize) -> Option<(u32, Option<u64>)> {
        let whole = self.held.iter().find(|(_, holders)| holders.who.len() >= n_expected);
        let (round, epoch) = whole.map(|(round, holders)| (*round, holders.epoch))?;
        self.held.retain(|other, _| *other > round);
        Some((round, epoch))
    }

    /// Whether some snapshot is not whole yet.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Held, SnapshotLedger};

    #[test]
    fn a_snapshot_is_complete_when_all_hold_it() {
        let mut ledger = SnapshotLedger::default();
        let held = |address, is_copy, epoch| Held { address, is_copy, epoch };
        ledger.count(7, held(0, false, None)).unwrap();
        ledger.count(7, held(0, false, None)).unwrap();
        assert_eq!(ledger.take_complete(2), None, "the same block counts once");
        ledger.count(9, held(0, false, Some(1))).unwrap();
        ledger.count(9, held(0, true, Some(1))).unwrap();
        assert_eq!(ledger.take_complete(2), Some((9, Some(1))));
        assert!(!ledger.is_waiting(), "the one before is of no use any more");
        assert!(
            (10..10_000).any(|round| ledger.count(round, held(0, false, None)).is_err()),
            "there is an end to them"
        );
    }
}
