//! What a strategy may see and do that exchanges in rounds.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::model::Score;

use super::ctx::Ctx;
use super::outcome::Counted;
use crate::effects::Outbox;
use crate::record::Event;
use crate::replica::core::{Core, Request};
use crate::work::{What, Work};

/// The window of a [`super::RoundStrategy`]: all of [`Ctx`], and how a round ends.
pub struct RoundCtx<'a> {
    ctx: Ctx<'a>,
}

impl<'a> Deref for RoundCtx<'a> {
    type Target = Ctx<'a>;

    fn deref(&self) -> &Ctx<'a> {
        &self.ctx
    }
}

impl<'a> DerefMut for RoundCtx<'a> {
    fn deref_mut(&mut self) -> &mut Ctx<'a> {
        &mut self.ctx
    }
}

impl<'a> RoundCtx<'a> {
    pub(super) fn new(core: &'a mut Core, out: &'a mut Outbox) -> Self {
        Self { ctx: Ctx::new(core, out) }
    }

    /// Which of the members have something to train in this round. All of them, but for those who came during a long round.
    pub fn trains(&self, rank: usize) -> bool {
        self.ctx.core.slot_of(self.ctx.core.view.members[rank]).is_some()
    }

    /// In [`super::RoundStrategy::on_view`]: whether what was trained before stays valid, and handed over parts with it.
    pub(crate) fn local_phase_goes_on(&self) -> bool {
        self.ctx.core.local_phase_goes_on
    }

    /// Wakes the strategy after a time, unless the view or the round changes before.
    pub fn timer(&mut self, after: Duration, timer: u32) {
        self.ctx.out.timers.push((after, self.ctx.core.timer_token(timer)));
    }

    /// Ends the round with its result, bucket by bucket: the mean of the gradients, or the new parameters. The next round
    /// begins as soon as this peer's own is over.
    pub fn finish_round(&mut self, result: Vec<Vec<f32>>, counted: Counted) {
        self.ctx.core.request = Some(Request::FinishRound { result, counted });
    }

    /// Has this peer's parameters judged by some of the training samples; [`super::RoundStrategy::on_scored`] hears of it.
    pub fn score(&mut self, samples: Arc<[usize]>) {
        let id = self.ctx.core.next_work_id();
        self.ctx.core.scoring = Some(id);
        let values = self.ctx.core.values.clone();
        self.ctx.out.work.push(Work { id, what: What::Score { values, samples } });
    }

    /// How good a score is, between 0 and 1, by what the task is judged by.
    pub fn quality(&self, score: &Score) -> f64 {
        self.ctx.core.training.task.measure().quality(score.loss(), score.accuracy())
    }

    /// The training samples that nobody trains, by which peers are judged.
    pub fn held_out(&self) -> Arc<[usize]> {
        self.ctx.core.training.sampler.held_out().clone()
    }

    /// The optimizer forgets what it remembers.
    pub(crate) fn reset_optimizer(&mut self) {
        self.ctx.core.reset_optimizer();
    }

    /// The run ends when this round does, as if it were the last of the last epoch, and this is why. All peers have to say it in
    /// the same round.
    pub(crate) fn end_run(&mut self, reason: String) {
        self.ctx.core.place.ends_after = Some(self.ctx.core.place.ledger.epoch + 1);
        self.ctx.out.records.push(self.ctx.core.record(Event::Ended { reason }));
    }
}
