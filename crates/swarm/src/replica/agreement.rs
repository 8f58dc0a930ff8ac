//! A new view: its members agree on whose parameters go on, and those who are behind take them over.
//!
//! Everyone tells the first member how far it is. The first member answers with the donor: of those who trained with the
//! latest quorum who is most advanced, of equals the first. Those whose past is another fetch its state, from it and from others who
//! have the same. A view that changes in the middle begins this anew.
//!
//! In a large view the first member's word is passed on along a tree, since its length grows with the members, and one uplink would
//! carry it to all of them one after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::rng::mix;
use serde::{Deserialize, Serialize};

use super::asynchronous::Clock;
use super::core::Core;
use super::fetch::{Fetch, Partial, Snapshot};
use super::pace::compared;
use super::transfer::Transfer;
use crate::division::{Whereabouts, divide};
use crate::effects::{Outbox, TimerToken};
use crate::malformed::Malformed;
use crate::place::{Place, StateVersion};
use crate::sampling::ledger::Ledger;
use crate::spanning_tree::SpanningTree;
use crate::strategy::AnyStrategy;
use crate::view::Weight;
use crate::wire::{Frame, Kind, decoded, encoded};

/// How far a peer says it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Claim {
    /// What speaks for its state. This comes before all that it has trained: a peer that was cut off and trained alone is not
    /// to override the others.
    weight: Weight,
    /// Epochs done. This comes first: of two who trained as many samples, one may not have ended the epoch yet; and who has
    /// finished takes part in nothing any more.
    epoch: u64,
    version: StateVersion,
    /// Where a local phase goes on over a change of the view, and where peers train asynchronously: a fingerprint of who trained what. Else it
    /// follows from the past.
    ledger: u64,
    /// Where peers train asynchronously: how far this one is.
    clock: Clock,
    /// How many samples a second it trains; 0 if it does not know.
    speed: f32,
    /// At which site it is; 0 if it has not been told.
    site: u64,
    /// If that matters and it has not been told: by rank, in how many microseconds everybody answers it; 0 of whom it does not know that.
    round_trips: Vec<u32>,
}

impl Claim {
    /// What a peer says that trains so many samples a second.
    pub(super) fn new(core: &Core, strategy: &AnyStrategy, speed: f32) -> Self {
        let Place { version, ledger, .. } = &core.place;
        let fingerprint = |bytes: &[u8]| bytes.iter().fold(0, |hash, &byte| mix(hash ^ u64::from(byte)));
        let is_told = strategy.keeps_local_phase() || core.is_asynchronous();
        let reckon = |asked: &(Ledger, Vec<u8>)| fingerprint(&encoded(asked));
        let asked = || (ledger.clone(), strategy.account());
        let shares = if is_told { core.training.alike.fingerprints.get(asked(), reckon) } else { 0 };
        let clock = if core.is_asynchronous() { Clock::of(core) } else { Clock::default() };
        Self {
            weight: core.weight,
            epoch: ledger.epoch,
            version: *version,
            ledger: shares,
            clock,
            speed,
            site: core.site,
            round_trips: round_trips(core),
        }
    }

    /// What a peer says whose parameters are not what its past says: it takes over the state of whoever is as far, or further.
    #[must_use]
    pub(super) fn outvoted(self) -> Self {
        let StateVersion { n_samples, round, history } = self.version;
        let version = StateVersion { n_samples: n_samples.saturating_sub(1), round, history: mix(!history) };
        Self { version, ..self }
    }

    /// What no member says of itself in a view of so many.
    fn check(&self, n_peers: usize) -> Result<(), Malformed> {
        if ![0, n_peers].contains(&self.round_trips.len()) {
            return Err(Malformed::new("it does not say of every member how near it is"));
        }
        Ok(())
    }

    /// Whether two peers have the same past, and hold the same.
    fn is_equal(&self, other: &Self) -> bool {
        (self.epoch, self.version, self.ledger) == (other.epoch, other.version, other.ledger)
    }
}

/// By rank, in how many microseconds everybody answers; empty if nobody asks for that.
fn round_trips(core: &Core) -> Vec<u32> {
    if !core.training.follows_sites || core.site != 0 || core.round_trips.is_empty() {
        return Vec::new();
    }
    let micros = |time: &Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
    core.view.members.iter().map(|member| core.round_trips.get(member).map_or(0, micros)).collect()
}

/// By rank, at which site everybody is; empty if all are at one, or nobody asks for that.
fn sites(claims: &BTreeMap<usize, Claim>, core: &Core) -> Vec<u32> {
    if !core.training.follows_sites {
        return Vec::new();
    }
    let whereabouts = claims.iter().map(|(&rank, claim)| Whereabouts {
        named: claim.site,
        round_trips: &claim.round_trips,
        before: core.site_before(core.view.members[rank]),
    });
    divide(&whereabouts.collect::<Vec<_>>())
}

/// What the first member says.
#[derive(Serialize, Deserialize)]
pub(super) struct Verdict {
    pub donor: u32,
    /// Others who have the same state.
    pub co_donors: Vec<u32>,
    pub behind: Vec<u32>,
    /// Where peers train asynchronously: by rank, how many batches everybody has trained who is in the donor's segment.
    pub clocks: Vec<Option<u32>>,
    /// By rank, how fast everybody is compared to the fastest; empty if nobody knows.
    pub speeds: Vec<u16>,
    /// By rank, at which site everybody is; empty if all are at one.
    pub sites: Vec<u32>,
    /// Whether this is no new view: training has diverged, and all take the first member's state over.
    pub is_rollback: bool,
    /// How often the swarm has gone back in that; 0 in a new view.
    n_rollbacks: u32,
}

impl Verdict {
    /// That of members who say so of themselves, and are at these sites; and whether those who have the same past have the same parameters.
    fn new(claims: &BTreeMap<usize, Claim>, sites: Vec<u32>, replicas_are_equal: bool) -> Self {
        let most_advanced = |claim: &Claim| (claim.weight, claim.epoch, claim.version.n_samples, claim.version.round);
        let mut donor = 0;
        for (&rank, claim) in claims {
            if most_advanced(claim) > most_advanced(&claims[&donor]) {
                donor = rank;
            }
        }
        let goes_on = &claims[&donor];
        let behind: Vec<u32> =
            claims.iter().filter(|(_, claim)| !claim.is_equal(goes_on)).map(|(&rank, _)| rank as u32).collect();
        let clock = |claim: &Claim| (claim.clock.segment == goes_on.clock.segment).then_some(claim.clock.n_trained);
        let clocks = claims.values().map(clock).collect();
        let speeds: Vec<f32> = claims.values().map(|claim| claim.speed).collect();
        let equal = claims.iter().filter(|(rank, claim)| **rank != donor && claim.is_equal(goes_on));
        let most = if replicas_are_equal { MOST_CO_DONORS } else { 0 };
        let co_donors = equal.map(|(&rank, _)| rank as u32).take(most).collect();
        let (donor, speeds) = (donor as u32, compared(&speeds));
        Self { donor, co_donors, behind, clocks, speeds, sites, is_rollback: false, n_rollbacks: 0 }
    }

    /// That these others are to take this first member's state over, though the view is the same: the swarm goes back for the
    /// `n_rollbacks`th time.
    pub(super) fn rollback(others: Vec<u32>, n_rollbacks: u32, core: &Core) -> Self {
        let (clocks, speeds, sites) = (vec![None; core.view.len()], core.speeds.to_vec(), core.sites.to_vec());
        Self { donor: 0, co_donors: Vec::new(), behind: others, clocks, speeds, sites, is_rollback: true, n_rollbacks }
    }

    /// The transfer of the state that goes on.
    pub(super) fn transfer(&self) -> Transfer {
        Transfer(self.n_rollbacks)
    }

    /// All who have the state that goes on and give it to others; the main donor first.
    pub(super) fn donors(&self) -> Vec<u32> {
        std::iter::once(self.donor).chain(self.co_donors.iter().copied()).collect()
    }

    /// Whether this rank is to take the donor's state over.
    pub(super) fn is_behind(&self, rank: usize) -> bool {
        self.behind.contains(&(rank as u32))
    }

    fn check(&self, n_peers: usize) -> Result<(), Malformed> {
        let donors = self.donors();
        if donors.iter().chain(&self.behind).any(|&rank| rank as usize >= n_peers) {
            return Err(Malformed::new("it names a member that the view does not have"));
        }
        let are_distinct = donors.iter().collect::<BTreeSet<_>>().len() == donors.len();
        let is_behind = donors.iter().any(|donor| self.behind.contains(donor));
        if is_behind || !are_distinct || donors.len() > 1 + MOST_CO_DONORS {
            return Err(Malformed::new("it names donors who cannot be any"));
        }
        if self.clocks.len() != n_peers || ![0, n_peers].contains(&self.speeds.len()) {
            return Err(Malformed::new("it does not say of every member how far and how fast it is"));
        }
        if ![0, n_peers].contains(&self.sites.len()) {
            return Err(Malformed::new("it does not say of every member where it is"));
        }
        Ok(())
    }

    /// Tells all others, also where they do not wait for it: directly, so that it comes before what this peer says next.
    pub(super) fn tell_all(&self, core: &Core, out: &mut Outbox) {
        core.tell_others(Kind::Agreement, VERDICT, &encoded(self), out);
    }
}

/// Tells a verdict to those who have it from this peer.
fn pass_on(verdict: &Bytes, core: &Core, out: &mut Outbox) {
    for child in TREE.children(core.rank, core.view.len()) {
        core.tell(child, Kind::Agreement, VERDICT, verdict.clone(), out);
    }
}

/// How far the members of a view have agreed.
pub(super) enum Agreement {
    /// This peer waits for a view, or for the verdict, which it has from this rank.
    Waiting(usize),
    /// This peer is the first member and gathers how far the others are.
    Gathering(BTreeMap<usize, Claim>),
    /// This peer is behind and takes over another's state.
    Behind(Box<Fetch>),
    /// All is agreed.
    Reached,
}

impl Default for Agreement {
    fn default() -> Self {
        Self::Waiting(0)
    }
}

/// More donors than these would hold a copy of their state for little: links are full by then.
const MOST_CO_DONORS: usize = 3;

/// How a verdict spreads. With fewer children it would take more hops; with more, the first member's uplink would take longer.
/// Views of up to 17 members hear it from the first one itself.
const TREE: SpanningTree = SpanningTree { most_children: 16 };

const CLAIM: u64 = 0;
const VERDICT: u64 = 1;

impl Agreement {
    pub(super) fn is_reached(&self) -> bool {
        matches!(self, Self::Reached)
    }

    /// Whom this peer waits for, by rank.
    pub(super) fn waits_for(&self, core: &Core) -> Vec<usize> {
        match self {
            Self::Waiting(rank) => vec![*rank],
            Self::Gathering(claims) => (0..core.view.len()).filter(|rank| !claims.contains_key(rank)).collect(),
            Self::Behind(fetch) => fetch.waits_for(),
            Self::Reached => Vec::new(),
        }
    }

    /// There is a new view. A first member who is alone knows at once what to say.
    pub(super) fn begin(&mut self, claim: Claim, core: &Core, out: &mut Outbox) -> Option<Verdict> {
        let Some(parent) = TREE.parent(core.rank) else {
            *self = Self::Gathering(BTreeMap::from([(0, claim)]));
            return self.conclude_if_gathered(core, out);
        };
        *self = Self::Waiting(parent);
        core.tell(0, Kind::Agreement, CLAIM, encoded(&claim), out);
        None
    }

    /// A member tells how far it is, or the first one whose state goes on.
    pub(super) fn on_frame(
        &mut self,
        (rank, frame): (usize, &Frame),
        core: &Core,
        out: &mut Outbox,
    ) -> Result<Option<Verdict>, Malformed> {
        match (frame.head.part, &mut *self) {
            (CLAIM, Self::Gathering(claims)) => {
                let claim: Claim = decoded(&frame.body)?;
                claim.check(core.view.len())?;
                claims.insert(rank, claim);
                Ok(self.conclude_if_gathered(core, out))
            }
            (VERDICT, agreement) => {
                let verdict: Verdict = decoded(&frame.body)?;
                let is_due = match verdict.is_rollback {
                    true => rank == 0 && verdict.donor == 0 && verdict.is_behind(core.rank),
                    false => matches!(agreement, Self::Waiting(parent) if *parent == rank),
                };
                if !is_due {
                    return Err(Malformed::new("it decides again what was decided, or what another decides"));
                }
                verdict.check(core.view.len())?;
                if !verdict.is_rollback {
                    pass_on(&frame.body, core, out);
                }
                Ok(Some(verdict))
            }
            _ => Err(Malformed::new("it speaks out of turn in the agreement on a view")),
        }
    }

    /// If this first member knows how far all are, it says whose state goes on.
    fn conclude_if_gathered(&self, core: &Core, out: &mut Outbox) -> Option<Verdict> {
        let Self::Gathering(claims) = self else { return None };
        if claims.len() < core.view.len() {
            return None;
        }
        let verdict = Verdict::new(claims, sites(claims, core), core.replicas_are_equal());
        pass_on(&encoded(&verdict), core, out);
        Some(verdict)
    }

    /// What has come of a state that this peer was fetching: it may be good for the next one.
    pub(super) fn take_partial(&mut self) -> Partial {
        match std::mem::take(self) {
            Self::Behind(fetch) => fetch.into_partial(),
            agreement => {
                *self = agreement;
                Partial::default()
            }
        }
    }

    /// The time is over in which a part of a state should have come.
    pub(super) fn on_timer(&mut self, token: TimerToken, core: &Core, out: &mut Outbox) {
        if let Self::Behind(fetch) = self {
            fetch.on_timer(token, core, out);
        }
    }

    /// A part of the state that this peer is to take over; when it was the last one, from whom it came and the whole.
    pub(super) fn on_snapshot(
        &mut self,
        (rank, frame): (usize, &Frame),
        core: &Core,
        n_state_vectors_at: impl Fn(u64) -> usize,
        out: &mut Outbox,
    ) -> Result<Option<(usize, Snapshot)>, Malformed> {
        let Self::Behind(fetch) = self else { return Ok(None) };
        let Some(snapshot) = fetch.on_frame((rank, frame), core, n_state_vectors_at, out)? else { return Ok(None) };
        let donor = fetch.donor();
        *self = Self::default();
        Ok(Some((donor, snapshot)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Claim, Clock, StateVersion, Verdict};
    use crate::view::{PeerId, View};

    /// What a member says that last agreed in a view of so many, which goes back to the quorum of that number.
    fn claim((number, base, n_peers): (u32, u32, u64), n_samples: u64) -> Claim {
        let view = View::new(number, (0..n_peers).map(PeerId).collect()).based_on(base);
        let version = StateVersion { n_samples, round: 1, history: n_samples };
        Claim {
            weight: view.weight(),
            epoch: 0,
            version,
            ledger: 0,
            clock: Clock::default(),
            speed: 0.0,
            site: 0,
            round_trips: Vec::new(),
        }
    }

    fn donor(claims: &[Claim]) -> u32 {
        Verdict::new(&claims.iter().cloned().enumerate().collect(), Vec::new(), true).donor
    }

    #[test]
    fn who_trained_alone_does_not_override_the_quorum() {
        let (alone, quorum) = (|| claim((9, 5, 1), 1000), || claim((7, 7, 3), 10));
        assert_eq!(donor(&[alone(), quorum(), quorum(), quorum()]), 1);
        assert_eq!(donor(&[quorum(), quorum(), alone()]), 0);
        // Nor does a peer that was in no view with the others, though it went on from an advanced checkpoint.
        assert_eq!(donor(&[claim((0, 0, 1), 5000), quorum()]), 1);
    }

    #[test]
    fn who_slept_does_not_override_who_went_on_alone_meanwhile() {
        let (slept, went_on) = (claim((5, 5, 2), 10), claim((9, 5, 1), 1000));
        assert_eq!(donor(&[slept, went_on]), 1);
    }

    #[test]
    fn of_those_without_a_quorum_the_larger_part_goes_on_and_of_equals_who_is_further() {
        assert_eq!(donor(&[claim((9, 5, 1), 1000), claim((8, 5, 2), 10)]), 1);
        assert_eq!(donor(&[claim((9, 5, 2), 10), claim((8, 5, 2), 1000)]), 1);
        assert_eq!(donor(&[claim((5, 5, 4), 10), claim((5, 5, 4), 11)]), 1);
    }

    #[test]
    fn donors_who_cannot_be_any_are_refused() {
        let verdict = |co_donors: Vec<u32>, behind: Vec<u32>| Verdict {
            co_donors,
            behind,
            ..Verdict::new(&(0..6).map(|rank| (rank, claim((5, 5, 6), 10))).collect(), Vec::new(), true)
        };
        assert!(verdict(vec![1, 2, 3], vec![5]).check(6).is_ok());
        for co_donors in [vec![1, 1], vec![0], vec![5], vec![6], vec![1, 2, 3, 4]] {
            assert!(verdict(co_donors.clone(), vec![5]).check(6).is_err(), "{co_donors:?}");
        }
    }
}
