//! Asynchronous training: batch after batch without waiting for rounds, and how members of a new view stay honest about it.
//!
//! Within a segment every peer is in a round of its own: the number of its batch. Its ledger counts whose batches have gone
//! into its own parameters, so it says exactly what these are made of. When all batches of all peers have, the segment is
//! over, and all are together again.
//!
//! When the view changes in the middle, the most advanced peer's parameters go on. Batches that others have trained stay
//! counted: what the most advanced has not heard of them, their strategies take back and say again.

use std::ops::Range;

use nettorrent_engine::data::ledger::Ledger;
use nettorrent_engine::rng::mix;
use serde::{Deserialize, Serialize};

use super::agreement::encoded;
use super::{Core, Outbox, Phase, Replica};
use crate::malformed::Malformed;
use crate::place::Place;
use crate::strategy::{Ctx, Past, Payload, Trained};

/// How a segment ended: which, by seat how many batches count, and how many of these are in the parameters that went on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ending {
    segment: u64,
    counted: Vec<u32>,
    heard: Vec<u32>,
}

/// What a peer that trains asynchronously says about itself when the view changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    /// A fingerprint of the segment that it is in.
    pub segment: u64,
    /// How many batches of it this peer has trained.
    pub n_trained: u32,
}

impl Core {
    /// The rounds of the present segment.
    pub(super) fn segment_rounds(&self) -> Range<u32> {
        let n_rounds = self.plan.as_ref().map_or(0, |plan| plan.n_rounds()) as u32;
        let first = self.segment_start.round;
        first..first.saturating_add(n_rounds)
    }

    /// The round in which this peer speaks: who has trained all that it has speaks in the segment's last one.
    pub(crate) fn speaking_round(&self) -> u32 {
        let round = self.place.standing.round;
        if self.turn.payload == Payload::Updates && self.plan.is_some() {
            return round.min(self.segment_rounds().end.saturating_sub(1));
        }
        round
    }

    /// Counts one more round of a member.
    pub(crate) fn settle_one(&mut self, seat: usize) {
        let (Some(plan), Some(segment)) = (&self.plan, self.place.ledger.segments.last_mut()) else { return };
        let round = segment.done[seat] as usize;
        if round < plan.n_rounds() {
            segment.done[seat] += 1;
            self.n_unsettled -= 1;
            self.place.standing.n_samples += plan.samples_of(seat, round) as u64;
        }
    }

    /// By how many rounds this peer is ahead of the slowest that still has some to train.
    pub(super) fn staleness(&self) -> u32 {
        let (Some(plan), Some(segment), Some(seat)) = (&self.plan, self.segment(), self.seat_of(self.me)) else {
            return 0;
        };
        let is_going_on = |&other: &usize| other != seat && (segment.done[other] as usize) < plan.n_rounds();
        let slowest = (0..segment.done.len()).filter(is_going_on).map(|other| segment.done[other]).min();
        slowest.map_or(0, |slowest| segment.done[seat].saturating_sub(slowest))
    }

    /// The present segment and how far this peer is in it.
    pub(super) fn clock(&self) -> Clock {
        let Some(segment) = self.segment() else { return Clock::default() };
        let before = &self.place.ledger.segments[..self.place.ledger.segments.len() - 1];
        let Ledger { epoch, start, .. } = self.place.ledger;
        let name = encoded(&(epoch, start, before, &segment.members, self.place.standing.lineage));
        let n_trained = self.seat_of(self.me).map_or(0, |seat| segment.done[seat]);
        Clock { segment: name.iter().fold(0, |hash, &byte| mix(hash ^ u64::from(byte))), n_trained }
    }

    /// The view has changed in the middle of a segment: what its members have trained in it counts, whether it is in the
    /// parameters that go on or not. Returns how the segment ended.
    pub(super) fn count_others(&mut self, clocks: &[Option<u32>]) -> Result<Option<Ending>, Malformed> {
        let Clock { segment, .. } = self.clock();
        let (Some(plan), Some(last)) = (self.plan.clone(), self.segment()) else { return Ok(None) };
        let heard = last.done.clone();
        for (rank, clock) in clocks.iter().enumerate() {
            let (Some(clock), Some(seat)) = (*clock, self.seat_of(self.view.members[rank])) else { continue };
            if clock as usize > plan.n_rounds() {
                return Err(Malformed::new("it counts batches that nobody had to train"));
            }
            (heard[seat]..clock).for_each(|_| self.settle_one(seat));
        }
        let counted = self.segment().map(|last| last.done.clone()).unwrap_or_default();
        Ok(Some(Ending { segment, counted, heard }))
    }
}

impl Ending {
    /// What has become of a peer's part in the past, which was at this clock and had this seat.
    pub(super) fn past_of(endings: &[Self], clock: Clock, seat: Option<usize>) -> Past {
        let (Some(ending), Some(seat)) = (endings.iter().find(|ending| ending.segment == clock.segment), seat) else {
            return Past::Stranger;
        };
        match (ending.counted.get(seat), ending.heard.get(seat)) {
            // What others do not count, they may do again.
            (Some(&counted), Some(&n_heard)) if counted == clock.n_trained => Past::Adopted { n_heard },
            _ => Past::Stranger,
        }
    }
}

impl Replica {
    /// Whether it does not wait for rounds.
    pub(crate) fn is_asynchronous(&self) -> bool {
        self.core.turn.payload == Payload::Updates
    }

    /// Begins the next batch if there is one and the strategy allows it; else this peer waits for others.
    pub(super) fn begin_free_turn_if_allowed(&mut self, out: &mut Outbox) {
        let core = &mut self.core;
        let (Some(plan), Some(segment)) = (&core.plan, core.segment()) else { return };
        let has_left = core.seat_of(core.me).is_some_and(|seat| (segment.done[seat] as usize) < plan.n_rounds());
        // It is asked in any case, for it then knows whom this peer waits for.
        if self.strategy.may_go_on(&Ctx::new(core, out)) && has_left {
            self.begin_turn(out);
        } else if self.phase != Phase::Exchanging {
            self.enter(Phase::Exchanging);
        }
    }

    /// A batch is trained: the strategy gets the change, and the batch counts.
    pub(super) fn end_free_turn(&mut self, out: &mut Outbox) {
        let mut turn = self.turn.take().expect("a turn is going on");
        let core = &mut self.core;
        let lr = core.lr(turn.round, 0.0);
        let changes = if turn.n_mine == 0 {
            core.no_changes()
        } else {
            core.changes(std::mem::take(&mut turn.gradient), lr, turn.share)
        };
        self.enter(Phase::Exchanging);
        for (bucket, change) in changes.into_iter().enumerate() {
            self.strategy.on_part(&mut Ctx::new(&mut self.core, out), bucket, change);
        }
        let trained = Trained {
            n_samples: turn.score.n as u64,
            mean_loss: turn.loss_sum,
            compute: turn.compute,
            ..Trained::default()
        };
        self.strategy.on_trained(&mut Ctx::new(&mut self.core, out), &trained);
        let core = &mut self.core;
        if let Some(seat) = core.seat_of(core.me) {
            core.settle_one(seat);
        }
        core.place.standing.round += 1;
        core.place.step += 1;
        core.epoch_score += turn.score;
        out.records.push(core.round_record(&turn, lr, turn.waited));
    }

    /// Goes on if what this peer has just heard allows it.
    pub(super) fn go_on_asynchronously(&mut self, out: &mut Outbox) {
        while self.is_asynchronous() && self.phase == Phase::Exchanging && self.turn.is_none() {
            let before = (self.core.place.standing, self.core.place.ledger.epoch);
            self.proceed(out);
            self.apply_requests(out);
            if before == (self.core.place.standing, self.core.place.ledger.epoch) {
                return;
            }
        }
    }

    /// All batches of all peers are in everybody's parameters: all stand at the same place again.
    pub(super) fn close_free_segment(&mut self) {
        let core = &mut self.core;
        if core.plan.is_none() {
            return;
        }
        let Clock { segment, .. } = core.clock();
        let counted = core.segment().map(|last| last.done.clone()).unwrap_or_default();
        self.ending = Some(Ending { segment, heard: counted.clone(), counted });
        let n_rounds = core.segment_rounds().len() as u64;
        let Place { standing, step, .. } = &mut core.place;
        standing.round = core.segment_start.round + n_rounds as u32;
        *step = core.segment_start.step + n_rounds;
        standing.pass(core.view.number);
        core.plan = None;
    }
}
