//! What a strategy may see and do.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::scale as engine;

use super::optimizer_state::held_at;
use super::outcome::{Counted, Past};
use crate::effects::Outbox;
use crate::record::Event;
use crate::replica::core::{Core, Request};
use crate::view::PeerId;
use crate::wire::{Frame, Kind};
use crate::work::{What, Work};

/// A strategy's window on its peer. Other peers are named by their rank in the view.
pub struct Ctx<'a> {
    core: &'a mut Core,
    out: &'a mut Outbox,
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

    /// How many samples a member trains in this round, the same to all who ask; none if it has trained all that it had.
    pub fn n_samples(&self, rank: usize) -> usize {
        let Core { view, plan, .. } = &*self.core;
        let (Some(seat), Some(plan)) = (self.core.seat_of(view.members[rank]), plan) else { return 0 };
        plan.samples_of(seat, self.core.rounds_done(seat))
    }

    /// How many epochs this peer has done, and what part of the present one.
    pub fn epochs_done(&self) -> f64 {
        let round = self.core.seat_of(self.core.me).map_or(0, |seat| self.core.rounds_done(seat));
        self.core.epochs_done(round, 0.0)
    }

    /// How updates of several peers are scaled.
    pub fn scale(&self) -> engine::Scale {
        self.core.training.swarm.scale
    }

    /// By how many rounds this peer's updates may reach the others late without learning worse.
    pub fn most_delay(&self) -> f64 {
        let optimizer = &self.core.training.optimizer;
        self.scale().most_delay(optimizer.lr, self.n_peers(), optimizer)
    }

    /// The number of the round, the same for all.
    pub fn round(&self) -> u32 {
        self.core.place.standing.round
    }

    /// The ranges in which the vector is handed over. Behind the parameters lies the optimizer's state, where it is averaged too.
    pub fn buckets(&self) -> &[Range<usize>] {
        &self.core.buckets
    }

    /// What this peer holds of a bucket now.
    pub fn held(&self, bucket: usize) -> Cow<'_, [f32]> {
        held_at(&self.core.values, &self.core.optimizer, &self.core.buckets[bucket])
    }

    /// What it held when the round began, where the peer takes steps by itself before the exchange.
    pub fn held_at_start(&self, bucket: usize) -> Cow<'_, [f32]> {
        match &self.core.round_start {
            Some((values, optimizer)) => held_at(values, optimizer, &self.core.buckets[bucket]),
            None => self.held(bucket),
        }
    }

    /// How many of the parameters are trained; running statistics follow on them.
    pub fn n_params(&self) -> usize {
        self.core.training.task.n_params()
    }

    /// The parameters as this peer holds them: those that the round began with, or after its own steps if it takes any.
    pub fn values(&self) -> &[f32] {
        &self.core.values
    }

    /// The time, counted from the host's beginning.
    pub fn now(&self) -> Duration {
        self.core.now
    }

    /// A vector to write a part into: one that was used before, if there is any of this length.
    pub fn buffer(&mut self, len: usize) -> Vec<f32> {
        self.core.buffer(len)
    }

    /// Gives a vector back, to be written into again.
    pub fn give_back(&mut self, numbers: Vec<f32>) {
        self.core.spare.push(numbers);
    }

    /// How many bytes a second this peer's links carry, if its host has found out.
    pub fn uplink(&self) -> Option<f64> {
        self.core.uplink
    }

    /// Whether the epoch that is going on, or ends, is the last one.
    pub fn is_last_epoch(&self) -> bool {
        self.core.place.ledger.epoch + 1 >= self.core.n_epochs()
    }

    /// Asynchronous strategies only: the first round of the present segment.
    pub fn first_round(&self) -> u32 {
        self.core.segment_start.round
    }

    /// Asynchronous strategies only: how many of a member's rounds of the present segment are in this peer's parameters.
    pub fn n_applied(&self, rank: usize) -> u32 {
        self.core.segment().map_or(0, |segment| segment.done[rank])
    }

    /// Asynchronous strategies only: how many rounds everybody has in the present segment.
    pub fn n_rounds(&self) -> u32 {
        self.core.plan.as_ref().map_or(0, |plan| plan.n_rounds() as u32)
    }

    /// Asynchronous strategies only: one more round of a member has gone into this peer's parameters. Its own is counted when
    /// the turn ends.
    pub fn count_round(&mut self, rank: usize) {
        self.core.count_round(rank);
    }

    /// Asynchronous strategies only: whether a batch is being computed, for which the parameters must stay as they are.
    pub fn is_computing(&self) -> bool {
        self.core.is_computing
    }

    /// The parameters, to be changed when nothing is being computed with them.
    pub fn values_mut(&mut self) -> &mut [f32] {
        Arc::make_mut(&mut self.core.values).as_mut_slice()
    }

    /// In [`super::Strategy::on_view`], asynchronous strategies only: what has become of this peer's part in the past.
    pub fn past(&self) -> Past {
        self.core.past
    }

    /// In [`super::Strategy::on_view`], if another's parameters go on: what its strategy says about them. Its bytes are
    /// hostile until checked.
    pub fn account(&self) -> &[u8] {
        &self.core.account
    }

    /// In [`super::Strategy::on_view`]: whether what was trained before stays valid, and handed over parts with it.
    pub fn turn_goes_on(&self) -> bool {
        self.core.turn_goes_on
    }

    /// Says something to another member in this round.
    pub fn send(&mut self, to: usize, part: u64, body: Bytes) {
        let round = self.core.speaking_round();
        let Core { view, sent_bytes, .. } = &mut *self.core;
        *sent_bytes += body.len() as u64;
        let frame = Frame::in_round(Kind::Strategy, view.number, round, part, body);
        self.out.frames.push((view.members[to], frame));
    }

    /// Wakes the strategy after a time, unless the view or the round changes before.
    pub fn timer(&mut self, after: Duration, timer: u32) {
        self.out.timers.push((after, self.core.timer_token(timer)));
    }

    /// Ends the round with its result, bucket by bucket: the mean of the gradients, or the new parameters. The next turn
    /// begins as soon as this peer's own is over.
    pub fn finish_round(&mut self, result: Vec<Vec<f32>>, counted: Counted) {
        self.core.request = Some(Request::FinishRound { result, counted });
    }

    /// Has this peer's parameters judged by some of the training samples; [`super::Strategy::on_scored`] hears of it.
    pub fn score(&mut self, samples: Arc<[usize]>) {
        let id = self.core.next_work_id();
        self.core.scoring = Some(id);
        self.out.work.push(Work { id, values: self.core.values.clone(), what: What::Score { samples } });
    }

    /// The training samples that nobody trains, by which peers are judged.
    pub fn held_out(&self) -> Arc<[usize]> {
        self.core.training.sampler.held_out().clone()
    }

    /// Where all randomness of the job comes from, the same for all peers.
    pub fn seed(&self) -> u64 {
        self.core.training.seed
    }

    /// The optimizer forgets what it remembers.
    pub fn reset_optimizer(&mut self) {
        self.core.reset_optimizer();
    }

    /// The run ends when this round does, as if it were the last of the last epoch, and this is why. All peers have to say it in
    /// the same round.
    pub fn end_run(&mut self, reason: String) {
        self.core.place.ends_after = Some(self.core.place.ledger.epoch + 1);
        self.out.records.push(self.core.record(Event::Ended { reason }));
    }

    /// Replaces the parameters, and the optimizer's state if it is averaged, outside of a round, when replicas are brought together.
    pub fn replace_values(&mut self, numbers: Vec<Vec<f32>>) {
        self.core.replace_values(numbers);
    }

    /// All replicas are together, as [`super::Strategy::sync`] promises.
    pub fn synced(&mut self) {
        self.core.request = Some(Request::Synced);
    }
}
