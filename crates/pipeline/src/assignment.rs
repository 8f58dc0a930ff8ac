//! Who holds which block: decided by the first member when somebody comes or goes, so that few blocks move.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use nettorrent_swarm::view::Weight;
use nettorrent_swarm::{Malformed, Place, StateVersion};

/// What a peer says of itself when there is a new view.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Claim {
    /// What speaks for its snapshots. This comes before all that was trained: peers that were cut off and trained without a quorum are
    /// not to override the others.
    pub weight: Weight,
    /// The blocks that it had, by address.
    pub had: Vec<u32>,
    /// The snapshots that it keeps, by block.
    pub snapshots: Vec<(u32, StateVersion)>,
    /// What it began with.
    pub origin: StateVersion,
    /// If all its blocks have done everything: how far that is.
    pub done: Option<Place>,
    /// Whether it has heard that all blocks have, and that the last checkpoint was written.
    pub is_over: bool,
}

impl Claim {
    /// Whether it holds nothing, and never did since the last agreement: whatever is done, others did it.
    fn is_standing_by(&self) -> bool {
        self.had.is_empty() && self.snapshots.is_empty() && self.done.is_none()
    }
}

/// What the first member decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// From where all go on: a snapshot, or what the run began with.
    pub snapshot: StateVersion,
    /// Whether it is what the run began with.
    pub is_origin: bool,
    /// By address, who holds the block, by rank.
    pub holders: Vec<u32>,
    /// By address, who sends it to its holder, if that one does not have it.
    pub donors: Vec<Option<u32>>,
    /// If all is done already: how far that is.
    pub done: Option<Place>,
    /// Whether somebody knows then that the last checkpoint was written.
    pub is_saved: bool,
}

impl Verdict {
    /// Decides for these claims, by rank. `blocks` says for each slot which block it holds: batch shards of a part hold the same.
    pub(crate) fn new(claims: &[Claim], blocks: &[usize]) -> Self {
        let n_slots = blocks.len();
        let n_pipelines = (claims.len() / n_slots).max(1);
        let origin = claims.iter().map(|claim| claim.origin).max().unwrap_or_default();
        let heaviest = claims.iter().max_by_key(|claim| (claim.weight, claim.origin));
        let whole =
            latest_whole(claims, blocks).filter(|snapshot| heaviest.is_none_or(|claim| *snapshot >= claim.origin));
        let snapshot = whole.unwrap_or(origin);
        let has = |rank: usize, slot: usize| match whole {
            Some(snapshot) => claims[rank].snapshots.contains(&(blocks[slot] as u32, snapshot)),
            None => claims[rank].origin == origin,
        };
        let holders = assign(claims, n_slots, n_pipelines, &has);
        let donor = |(address, &holder): (usize, &u32)| {
            let slot = address % n_slots;
            let is_needed = !has(holder as usize, slot);
            // Those who send should not all be the same.
            let donors: Vec<usize> = (0..claims.len()).filter(|&rank| has(rank, slot)).collect();
            is_needed.then(|| donors[address / n_slots % donors.len()] as u32)
        };
        let donors = holders.iter().enumerate().map(donor).collect();
        let is_saved = claims.iter().any(|claim| claim.is_over);
        Self { snapshot, is_origin: whole.is_none(), holders, donors, done: done(claims, whole), is_saved }
    }

    /// Refuses a verdict that cannot be about this many peers.
    pub(crate) fn check(&self, n_peers: usize, n_slots: usize) -> Result<(), Malformed> {
        let n_addresses = n_slots * (n_peers / n_slots).max(1);
        let is_known = |rank: &u32| (*rank as usize) < n_peers;
        let is_sound = self.holders.len() == n_addresses
            && self.donors.len() == n_addresses
            && self.holders.iter().all(is_known)
            && self.donors.iter().flatten().all(is_known);
        is_sound.then_some(()).ok_or_else(|| Malformed::new("what it says about who holds which block cannot be"))
    }
}

/// How far all is, if all is done and nobody has to go on. If the last snapshot is whole, it is gone on from once more: it may not have
/// been saved.
fn done(claims: &[Claim], whole: Option<StateVersion>) -> Option<Place> {
    let furthest = claims.iter().filter_map(|claim| claim.done.as_ref()).max_by_key(|place| place.version)?;
    let is_over = claims.iter().any(|claim| claim.is_over);
    let is_done = claims.iter().all(|claim| claim.done.is_some() || claim.is_standing_by());
    (is_over || is_done && whole != Some(furthest.version)).then(|| furthest.clone())
}

/// Of the snapshots of which every block is somewhere, the one with the most samples trained that the latest quorum has; if it has
/// none, any.
fn latest_whole(claims: &[Claim], blocks: &[usize]) -> Option<StateVersion> {
    let held = || claims.iter().flat_map(|claim| claim.snapshots.iter().map(|snapshot| (claim.weight, *snapshot)));
    let blocks_held: BTreeSet<(StateVersion, u32)> = held().map(|(_, (block, snapshot))| (snapshot, block)).collect();
    let snapshots: BTreeSet<(Weight, StateVersion)> =
        held().map(|(weight, (_, snapshot))| (weight, snapshot)).collect();
    let is_whole = |snapshot| blocks.iter().all(|&block| blocks_held.contains(&(snapshot, block as u32)));
    snapshots.into_iter().rev().map(|(_, snapshot)| snapshot).find(|&snapshot| is_whole(snapshot))
}

/// Who holds what: as before where that is possible; where it is not, those who have nothing else, and of them whoever has the snapshot.
fn assign(claims: &[Claim], n_slots: usize, n_pipelines: usize, has: &dyn Fn(usize, usize) -> bool) -> Vec<u32> {
    let n_addresses = n_slots * n_pipelines;
    let n_peers = claims.len();
    let mut holders: Vec<Option<usize>> = vec![None; n_addresses];
    let mut n_held = vec![0; n_peers];
    let is_new = claims.iter().all(|claim| claim.had.is_empty());
    if is_new && n_peers < n_slots {
        // Neighbouring slots go to the same peer.
        return (0..n_slots).map(|slot| (slot * n_peers / n_slots) as u32).collect();
    }
    let most = n_addresses.div_ceil(n_peers);
    for (rank, claim) in claims.iter().enumerate() {
        for &address in &claim.had {
            if let Some(holder @ None) = holders.get_mut(address as usize).filter(|_| n_held[rank] < most) {
                *holder = Some(rank);
                n_held[rank] += 1;
            }
        }
    }
    for (address, holder) in holders.iter_mut().enumerate() {
        if holder.is_none() {
            let rank = (0..n_peers).min_by_key(|&rank| (n_held[rank], !has(rank, address % n_slots), rank));
            let best = rank.expect("a view has members");
            *holder = Some(best);
            n_held[best] += 1;
        }
    }
    holders.into_iter().map(|holder| holder.expect("each has one") as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::{Claim, Verdict};
    use nettorrent_swarm::view::{PeerId, View};
    use nettorrent_swarm::{Place, StateVersion};

    fn version(round: u32) -> StateVersion {
        StateVersion { n_samples: u64::from(10 * round), round, history: 0 }
    }

    fn claim(had: &[u32], snapshots: &[(u32, u32)]) -> Claim {
        let snapshots = snapshots.iter().map(|&(slot, round)| (slot, version(round))).collect();
        Claim { had: had.to_vec(), snapshots, ..Claim::default() }
    }

    fn decide(claims: &[Claim], n_slots: usize) -> (Option<u32>, Vec<u32>, Vec<Option<u32>>) {
        let verdict = Verdict::new(claims, &(0..n_slots).collect::<Vec<_>>());
        verdict.check(claims.len(), n_slots).unwrap();
        ((!verdict.is_origin).then_some(verdict.snapshot.round), verdict.holders, verdict.donors)
    }

    #[test]
    fn in_the_beginning_slots_go_round() {
        let nobody = vec![Claim::default(); 7];
        assert_eq!(decide(&nobody, 3).1, [0, 1, 2, 3, 4, 5], "two pipelines, and one to spare");
        assert_eq!(decide(&nobody[..3], 3).1, [0, 1, 2]);
        assert_eq!(decide(&nobody[..2], 4), (None, vec![0, 0, 1, 1], vec![None; 4]), "neighbours at the same peer");
        assert_eq!(decide(&nobody[..1], 3).1, [0, 0, 0]);
    }

    #[test]
    fn a_lost_block_goes_to_who_keeps_its_copy() {
        // Of four peers, the third is gone; its neighbour has the copy.
        let claims = [claim(&[0], &[(0, 8), (3, 8)]), claim(&[1], &[(1, 8), (0, 8)]), claim(&[3], &[(3, 8), (2, 8)])];
        assert_eq!(decide(&claims, 4), (Some(8), vec![0, 1, 2, 2], vec![None; 4]));
        // With one to spare, that one gets it, from the neighbour.
        let with_spare = [&claims[..], &[Claim::default()]].concat();
        assert_eq!(decide(&with_spare, 4), (Some(8), vec![0, 1, 3, 2], vec![None, None, Some(2), None]));
    }

    #[test]
    fn a_lost_block_comes_from_its_replica() {
        // Two pipelines of two; one of the second is gone, so there is one pipeline and one to spare.
        let claims = [claim(&[0], &[(0, 5)]), claim(&[1], &[(1, 5)]), claim(&[2], &[(0, 5)])];
        assert_eq!(decide(&claims, 2), (Some(5), vec![0, 1], vec![None, None]));
        // One of the first is gone: who is left of the second steps in.
        let claims = [claim(&[1], &[(1, 5)]), claim(&[2], &[(0, 5)]), claim(&[3], &[(1, 5)])];
        assert_eq!(decide(&claims, 2), (Some(5), vec![1, 0], vec![None, None]));
        // A joiner makes the second whole again.
        let claims = [claim(&[0], &[(0, 5)]), claim(&[1], &[(1, 5)]), claim(&[2], &[(0, 5)]), Claim::default()];
        assert_eq!(decide(&claims, 2), (Some(5), vec![0, 1, 2, 3], vec![None, None, None, Some(1)]));
    }

    #[test]
    fn a_run_begins_with_what_most_was_trained_in() {
        let claims = [Claim { origin: version(3), ..Claim::default() }, Claim::default()];
        let verdict = Verdict::new(&claims, &[0, 1]);
        assert_eq!((verdict.snapshot, verdict.is_origin), (version(3), true));
        assert_eq!((verdict.holders, verdict.donors), (vec![0, 1], vec![None, Some(0)]));
    }

    #[test]
    fn a_lost_batch_shard_is_as_another_is() {
        let claims = [claim(&[0], &[(0, 5)]), claim(&[2], &[(1, 5)])];
        let verdict = Verdict::new(&claims, &[0, 1, 1]);
        assert_eq!((verdict.snapshot, verdict.holders, verdict.donors), (version(5), vec![0, 1, 1], vec![None; 3]));
    }

    #[test]
    fn only_snapshots_that_are_whole_count() {
        let claims = [claim(&[0], &[(0, 4), (0, 8)]), claim(&[1], &[(1, 4)])];
        assert_eq!(decide(&claims, 2).0, Some(4));
        assert_eq!(decide(&claims[..1], 2).0, None, "then all begin anew");
        // Two sides that were cut off from each other have snapshots of the same round, which do not belong together.
        let mut other = claim(&[1], &[(1, 8)]);
        other.snapshots[0].1.history = 7;
        assert_eq!(decide(&[claims[0].clone(), other], 2).0, None);
    }

    #[test]
    fn who_trained_alone_does_not_override_the_quorum() {
        let weight = |number: u32, base: u32, n_peers: u64| {
            View::new(number, (0..n_peers).map(PeerId).collect()).based_on(base).weight()
        };
        let quorum = |had: u32| Claim { weight: weight(7, 7, 2), ..claim(&[had], &[(had, 4), (had, 5)]) };
        let alone = Claim { weight: weight(9, 5, 1), ..claim(&[0, 1], &[(0, 4), (1, 4), (0, 9), (1, 9)]) };
        assert_eq!(decide(&[alone.clone(), quorum(0), quorum(1)], 2).0, Some(5));
        // What is left of the quorum goes back to what it has in common with the others.
        assert_eq!(decide(&[alone.clone(), quorum(0)], 2).0, Some(4));
        // Nor does a peer that comes with an advanced checkpoint, and was in no view with the others.
        let resumed = Claim { origin: version(8), ..Claim::default() };
        assert_eq!(decide(&[resumed.clone(), quorum(0), quorum(1)], 2).0, Some(5));
        let verdict = Verdict::new(&[resumed, quorum(0)], &[0, 1]);
        assert_eq!((verdict.snapshot, verdict.is_origin), (version(8), true), "it is all that is whole");
    }

    #[test]
    fn who_stands_by_has_done_nothing() {
        let done = |had: &[u32], snapshots: &[(u32, u32)]| {
            let place = Place { version: version(8), ..Place::default() };
            Claim { done: Some(place), ..claim(had, snapshots) }
        };
        let place_of = |claims: &[Claim]| Verdict::new(claims, &[0, 1]).done.map(|place| place.version);
        let stand_by = Claim::default();
        assert_eq!(place_of(&[stand_by.clone(), stand_by.clone()]), None, "nobody is there who did anything");
        assert_eq!(place_of(&[done(&[0], &[(0, 8)]), stand_by.clone()]), Some(version(8)), "the other block is gone");
        assert_eq!(place_of(&[done(&[0], &[(0, 8)]), claim(&[1], &[(1, 4)])]), None, "one is not done");
        let both = [done(&[0], &[(0, 8)]), done(&[1], &[(1, 8)]), stand_by];
        assert_eq!(place_of(&both), None, "all of it is there, and may not have been saved");
        let over = both.map(|claim| Claim { is_over: true, ..claim });
        assert_eq!(place_of(&over), Some(version(8)));
    }

    #[test]
    fn what_is_on_the_disk_is_gone_on_from_if_no_later_snapshot_is_whole() {
        let saved = |round| Claim { origin: version(round), ..claim(&[0], &[(0, 8), (1, 8)]) };
        for (round, is_origin) in [(7, false), (8, false), (9, true)] {
            let verdict = Verdict::new(&[saved(round)], &[0, 1]);
            assert_eq!((verdict.is_origin, verdict.snapshot), (is_origin, version(round.max(8))));
        }
    }

    #[test]
    fn verdicts_that_cannot_be_are_refused() {
        let (snapshot, holders, donors) = (version(0), vec![0, 1], vec![None, Some(1)]);
        let verdict = Verdict { snapshot, is_origin: true, holders, donors, done: None, is_saved: false };
        assert_eq!(verdict.check(2, 2), Ok(()));
        assert!(verdict.check(4, 2).is_err() && verdict.check(1, 2).is_err());
    }
}
