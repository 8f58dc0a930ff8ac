//! The present segment of an epoch: who trains how many rounds of it, how far everybody is, and what follows.

use std::ops::Range;

use crate::alike::{NextLedger, RoundCount, Standing};
use crate::sampling::ledger::{Ledger, Segment};

use super::core::{Core, SegmentStart};
use crate::effects::Phase;
use crate::place::Place;
use crate::strategy::{Counted, Payload};
use crate::view::PeerId;

impl Core {
    /// The present segment of the epoch.
    pub(crate) fn segment(&self) -> Option<&Segment> {
        self.place.ledger.segments.last()
    }

    /// A peer's place among those who share out the present segment.
    pub(crate) fn slot_of(&self, peer: PeerId) -> Option<usize> {
        self.segment()?.members.binary_search(&peer.0).ok()
    }

    /// Which round of the segment comes next for a member, by its slot.
    pub(crate) fn rounds_done(&self, slot: usize) -> usize {
        self.segment().map_or(0, |segment| segment.done[slot] as usize)
    }

    /// Which round of the segment comes next for this peer. Who came when it had begun takes part in the one that the others are in.
    pub(super) fn own_round(&self) -> usize {
        let present = || self.view.members.iter().filter_map(|&member| self.slot_of(member));
        let others = || present().map(|slot| self.rounds_done(slot)).min().unwrap_or(0);
        self.slot_of(self.me).map_or_else(others, |slot| self.rounds_done(slot))
    }

    /// Counts a round of those whose work went into it; returns how many samples that were, and how many batches whoever had
    /// the most. It depends on nothing but what all peers hold alike, or they would differ from here on: not on this peer's own
    /// round, which may have begun when others took part.
    pub(super) fn count_rounds(&mut self, counted: &Counted) -> (u64, u32) {
        self.least_done.take();
        let (Some(plan), Some(standing)) = (&self.plan, self.standing()) else { return (0, 0) };
        let round = match counted {
            Counted::All => self.training.alike.count_round(standing, plan),
            Counted::Ranks(ranks) => {
                let slots = ranks.iter().filter_map(|&rank| self.slot_of(self.view.members[rank]));
                RoundCount::of(slots, standing.done.clone(), plan)
            }
        };
        if let Some(segment) = self.place.ledger.segments.last_mut() {
            segment.done = round.done;
        }
        (round.n_samples, round.n_batches)
    }

    /// How far those who shared out the present segment are, and who of them is there.
    fn standing(&self) -> Option<Standing> {
        let Segment { members, done, .. } = self.segment()?;
        Some(Standing { members: members.clone(), done: done.clone(), present: self.view.members.clone() })
    }

    /// The members have told how fast they are, by rank.
    pub(super) fn learn_speeds(&mut self, speeds: &[u16]) {
        self.speeds = self.training.alike.speeds.shared(speeds.to_vec().into());
    }

    /// It is agreed where they are, by rank.
    pub(super) fn learn_sites(&mut self, sites: &[u32]) {
        self.sites = self.training.alike.sites.shared(sites.to_vec().into());
        self.located = self.view.members.clone();
    }

    /// At which site a peer was when that was agreed last, if it took part.
    pub(super) fn site_before(&self, peer: PeerId) -> Option<u32> {
        let rank = self.located.binary_search(&peer).ok()?;
        Some(self.sites.get(rank).copied().unwrap_or(0))
    }

    /// Whether all members that are still there have trained what they have of the present segment.
    pub(super) fn segment_is_over(&self) -> bool {
        let Some(plan) = &self.plan else { return true };
        if self.place.ends_after == Some(self.place.ledger.epoch + 1) {
            return true;
        }
        if self.is_asynchronous() {
            return self.n_unapplied == 0;
        }
        self.least_done() >= plan.n_rounds()
    }

    /// Whether no member of the view is among those who shared out the present segment, as after a checkpoint, which names nobody.
    pub(super) fn segment_is_deserted(&self) -> bool {
        self.view.members.iter().all(|&member| self.slot_of(member).is_none())
    }

    /// The ledger with the segment that follows: the members of the view share out what is left, or the next epoch.
    pub(super) fn next_ledger(&self) -> Ledger {
        let Place { ledger, ends_after, .. } = &self.place;
        let asked = NextLedger {
            ledger: ledger.clone(),
            members: self.view.members.clone(),
            speeds: self.speeds.clone(),
            leaves_rest: *ends_after == Some(ledger.epoch + 1),
        };
        self.training.alike.next_ledger(asked, &self.training.sampler)
    }

    /// Begins a segment.
    pub(super) fn open(&mut self, ledger: Ledger) {
        let plan = self.training.sampler.plan(&ledger);
        self.place.ledger = ledger;
        self.least_done.take();
        self.n_unapplied = plan.n_members() * plan.n_rounds();
        self.plan = Some(plan);
        self.segment_start = SegmentStart { round: self.place.version.round, step: self.place.step };
    }

    /// Finds the plan of a ledger that came from elsewhere.
    pub(super) fn reopen(&mut self) {
        let ledger = std::mem::take(&mut self.place.ledger);
        self.plan = (!ledger.segments.is_empty()).then(|| self.training.sampler.plan(&ledger));
        self.place.ledger = ledger;
        self.least_done.take();
    }

    /// The members have changed: the present segment ends where it is.
    pub(super) fn end_segment(&mut self) {
        self.plan = None;
    }

    /// The rounds of the present segment.
    pub(super) fn segment_rounds(&self) -> Range<u32> {
        let n_rounds = self.plan.as_ref().map_or(0, |plan| plan.n_rounds()) as u32;
        let first = self.segment_start.round;
        first..first.saturating_add(n_rounds)
    }

    /// The round in which this peer speaks: who has trained all that it has speaks in the segment's last one.
    pub(crate) fn speaking_round(&self) -> u32 {
        let round = self.place.version.round;
        if self.is_asynchronous() && self.plan.is_some() {
            return round.min(self.segment_rounds().end.saturating_sub(1));
        }
        round
    }

    /// Counts one more round of a member.
    pub(crate) fn count_round(&mut self, slot: usize) {
        let (Some(plan), Some(segment)) = (&self.plan, self.place.ledger.segments.last_mut()) else { return };
        let round = segment.done[slot] as usize;
        if round < plan.n_rounds() {
            self.least_done.take();
            segment.done[slot] += 1;
            self.n_unapplied -= 1;
            self.place.version.n_samples += plan.samples_of(slot, round) as u64;
        }
    }

    /// By how many rounds this peer is ahead of the slowest that still has some to train.
    pub(super) fn staleness(&self) -> u32 {
        let (Some(plan), Some(segment), Some(slot)) = (&self.plan, self.segment(), self.slot_of(self.me)) else {
            return 0;
        };
        let is_going_on = |&other: &usize| other != slot && (segment.done[other] as usize) < plan.n_rounds();
        let slowest = (0..segment.done.len()).filter(is_going_on).map(|other| segment.done[other]).min();
        slowest.map_or(0, |slowest| segment.done[slot].saturating_sub(slowest))
    }

    /// Of which rounds this peer can make use of what it hears.
    pub(super) fn open_rounds(&self) -> Range<u32> {
        let round = self.place.version.round;
        if self.is_asynchronous() && matches!(self.phase, Phase::Training | Phase::Exchanging) {
            return self.segment_rounds();
        }
        round..round.saturating_add(1)
    }

    /// With which round the next segment begins.
    pub(super) fn next_segment_round(&self) -> u32 {
        let round = self.place.version.round;
        let Some(plan) = &self.plan else { return round };
        if self.is_asynchronous() {
            return self.segment_rounds().end;
        }
        round.saturating_add((plan.n_rounds() - self.least_done().min(plan.n_rounds())) as u32)
    }

    /// How many rounds of the segment the members have done, at least; of one whose members are all gone, all. It is asked for with
    /// every message, and changes once a round.
    fn least_done(&self) -> usize {
        *self.least_done.get_or_init(|| match self.standing() {
            // Where peers train asynchronously, hardly two of them have heard the same.
            Some(standing) if self.is_asynchronous() => standing.least_done(),
            Some(standing) => self.training.alike.least_done.get(standing, Standing::least_done),
            None => usize::MAX,
        })
    }

    /// Whether this peer has nothing to train any more in the segment, given whether its local phase is over.
    pub(super) fn has_trained_all(&self, local_phase_is_over: bool) -> bool {
        let Some(plan) = &self.plan else { return false };
        match (self.round_plan.payload, self.slot_of(self.me)) {
            (Payload::Updates, Some(slot)) => self.rounds_done(slot) >= plan.n_rounds(),
            _ => self.least_done().saturating_add(usize::from(local_phase_is_over)) >= plan.n_rounds(),
        }
    }

    /// How many epochs are done when the segment has come to this share of a round.
    pub(crate) fn epochs_done(&self, round: usize, share: f64) -> f64 {
        let epoch = self.place.ledger.epoch as f64;
        let Some(plan) = &self.plan else { return epoch };
        let (done, next) = (plan.share_done(round), plan.share_done(round + 1));
        epoch + done + share * (next - done)
    }

    /// How many batches are done since the run's beginning, as one machine counts, before a round of the segment.
    pub(super) fn batches_done(&self, round: usize) -> u64 {
        let per_epoch = self.training.sampler.n_batches(self.place.ledger.epoch);
        // Shares of an epoch are not exact.
        (self.epochs_done(round, 0.0) * per_epoch as f64 + 1e-6) as u64
    }
}
