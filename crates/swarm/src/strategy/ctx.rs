//! What a strategy may see and do.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::peer::{Core, Outbox, Wish};
use crate::view::PeerId;
use crate::wire::{Frame, Kind};

/// A strategy's window on its peer. Other peers are named by their rank in the view.
pub struct Ctx<'a> {
    core: &'a mut Core,
    out: &'a mut Outbox,
}

/// Whose work of this round went into the result. What the others trained is not counted, and trained again by somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Everybody's.
    All,
    /// That of these ranks.
    Ranks(Vec<usize>),
}

impl Settled {
    /// Whether the work of this rank is among them.
    pub fn contains(&self, rank: usize) -> bool {
        match self {
            Self::All => true,
            Self::Ranks(ranks) => ranks.contains(&rank),
        }
    }
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(core: &'a mut Core, out: &'a mut Outbox) -> Self {
        Self { core, out }
    }

    /// How many peers take part.
    pub fn n_peers(&self) -> usize {
        self.core.view.len()
    }

    /// This peer's place among them.
    pub fn rank(&self) -> usize {
        self.core.rank
    }

    /// The peers, by rank.
    pub fn members(&self) -> &[PeerId] {
        &self.core.view.members
    }

    /// Which of the members have something to train in this round. All of them, but for those who came during a long turn.
    pub fn trains(&self, rank: usize) -> bool {
        self.core.seat_of(self.core.view.members[rank]).is_some()
    }

    /// The number of the round, the same for all.
    pub fn round(&self) -> u32 {
        self.core.place.standing.round
    }

    /// The ranges in which the vector is handed over.
    pub fn buckets(&self) -> &[Range<usize>] {
        self.core.setup.task.buckets()
    }

    /// The parameters as this peer holds them: those that the round began with, or after its own steps if it takes any.
    pub fn values(&self) -> &[f32] {
        &self.core.values
    }

    /// The parameters that the round began with, where the peer takes steps by itself before the exchange.
    pub fn round_start(&self) -> &[f32] {
        self.core.round_start.as_ref().map_or(&self.core.values, |(values, _)| values)
    }

    /// The time, counted from the host's beginning.
    pub fn now(&self) -> Duration {
        self.core.now
    }

    /// A vector to write a part into: one that was used before, if there is any of this length.
    pub fn buffer(&mut self, len: usize) -> Vec<f32> {
        self.core.buffer(len)
    }

    /// In [`super::Strategy::on_view`]: whether what was trained before stays valid, and handed over parts with it.
    pub fn turn_goes_on(&self) -> bool {
        self.core.turn_goes_on
    }

    /// Says something to another member in this round.
    pub fn send(&mut self, to: usize, part: u64, body: Bytes) {
        let Core { view, place, sent_bytes, .. } = &mut *self.core;
        *sent_bytes += body.len() as u64;
        let frame = Frame::in_round(Kind::Strategy, view.number, place.standing.round, part, body);
        self.out.frames.push((view.members[to], frame));
    }

    /// Wakes the strategy after a time, unless the view or the round changes before.
    pub fn timer(&mut self, after: Duration, timer: u32) {
        self.out.timers.push((after, self.core.timer_token(timer)));
    }

    /// Ends the round with its result, bucket by bucket: the mean of the gradients, or the new parameters. The next turn
    /// begins as soon as this peer's own is over.
    pub fn finish_round(&mut self, result: Vec<Vec<f32>>, settled: Settled) {
        self.core.wish = Some(Wish::FinishRound { result, settled });
    }

    /// Replaces the parameters outside of a round, when replicas are brought together.
    pub fn replace_values(&mut self, values: Vec<Vec<f32>>) {
        self.core.replace_values(values);
    }

    /// All replicas are together, as [`super::Strategy::sync`] promises.
    pub fn synced(&mut self) {
        self.core.wish = Some(Wish::Synced);
    }
}
