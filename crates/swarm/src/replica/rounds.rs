//! Rounds in a view that is agreed on: a local phase, its exchange, the next one, and evaluations and speeds between them.

use std::time::Duration;

use crate::sampling::ledger::Ledger;
use nettorrent_engine::collapse::size;
use nettorrent_engine::model::Score;

use super::asynchronous::LastEndings;
use super::core::Core;
use super::evaluations::Evaluations;
use super::learner::Learner;
use super::local_phase::{Batch, Loan, LocalPhase};
use super::pace::Pace;
use super::recovery::Recovery;
use crate::effects::{Outbox, Phase};
use crate::record::Event;
use crate::sketch::sketch;
use crate::step_work::{StepResult, StepTaken};
use crate::strategy::{Counted, Payload};

/// The rounds of one replica.
#[derive(Default)]
pub(super) struct Rounds {
    pub local: Option<LocalPhase>,
    pub pace: Pace,
    pub evaluations: Evaluations,
    pub last_endings: LastEndings,
    /// What the worker is lent, where this peer is alone.
    pub loan: Option<Loan>,
    /// What the step is for that the worker takes.
    stepping: Option<Stepping>,
    /// What a peer that is alone waits for before it trains on.
    pub held: Option<Held>,
    /// Since when this peer waits for the end of the epoch, once it has nothing left to train in it.
    idle_since: Duration,
}

/// What a peer waits for that is alone: what speaks for its parameters, or against them, is to be known before they change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// A test within an epoch.
    Evaluation,
    /// The test after an epoch.
    EpochEvaluation,
}

/// What a step is for that the worker takes.
enum Stepping {
    /// For a round's result, into which this work went.
    Round(Counted),
    /// For this peer's own batch, where peers train asynchronously.
    Batch,
}

/// What follows on a batch.
pub(super) enum AfterBatch {
    /// The next one, or another peer's message.
    GoesOn,
    /// It was the round's last one, which can be handed over.
    AllTrained,
    /// It was the last one of the round, in which nobody else takes part.
    RoundDone,
    /// Training has diverged, and this is why.
    Diverged(String),
}

/// What follows on a round.
#[derive(PartialEq, Eq)]
pub(super) enum AfterRound {
    /// Another one, or the end of the epoch.
    GoesOn,
    /// Nothing: all epochs are trained.
    AllTrained,
}

impl Rounds {
    /// Somebody wants the parameters: the worker gives them back after the present batch.
    pub(super) fn end_loan(&self) {
        if let Some(loan) = &self.loan {
            loan.handle.end_early();
        }
    }

    /// Whether work of this name is what a local phase waits for.
    pub(super) fn wait_for(&self, work: u64) -> bool {
        self.local.as_ref().is_some_and(|local| local.waits_for(work))
    }

    /// The learning rate of the round that is going on.
    pub(super) fn lr(&self, core: &Core) -> f32 {
        core.lr(self.local.as_ref().map_or(0, |local| local.round), 0.0)
    }

    fn begin_turn(&mut self, learner: &mut Learner, out: &mut Outbox) {
        let mut local = LocalPhase::begin(learner);
        if local.n_mine > 0 {
            local.order(&mut learner.core, &mut self.loan, out);
        } else if learner.core.is_asynchronous() {
            let changes = learner.core.no_changes();
            return local.end_asynchronously(changes, learner, out);
        } else {
            local.contribute_nothing(learner, out);
        }
        self.local = Some(local);
    }

    /// Where peers train asynchronously: begins the next batch if there is one and the strategy allows it; else this peer waits
    /// for others.
    fn begin_turn_if_allowed(&mut self, learner: &mut Learner, out: &mut Outbox) {
        let Learner { core, strategy, .. } = learner;
        let (Some(plan), Some(segment)) = (&core.plan, core.segment()) else { return };
        let has_left = core.slot_of(core.me).is_some_and(|slot| (segment.done[slot] as usize) < plan.n_rounds());
        // It is asked in any case, for it then knows whom this peer waits for.
        if strategy.may_go_on(core, out) && has_left {
            self.begin_turn(learner, out);
        } else if core.phase != Phase::Exchanging {
            core.enter(Phase::Exchanging);
        }
    }

    /// A part of a batch's gradient is there.
    pub(super) fn on_bucket(&mut self, learner: &mut Learner, bucket: usize, numbers: Vec<f32>, out: &mut Outbox) {
        if let Some(local) = &mut self.local {
            local.on_bucket(learner, bucket, numbers, out);
        }
    }

    /// A batch is computed.
    pub(super) fn on_batch(
        &mut self,
        batch: Batch,
        learner: &mut Learner,
        recovery: &mut Recovery,
        out: &mut Outbox,
    ) -> AfterBatch {
        let local = self.local.as_mut().expect("a local phase is going on");
        let Batch { score, took, .. } = batch;
        if !local.is_sound(&batch) {
            return fail(local, score.loss(), learner);
        }
        local.count(score, took);
        self.pace.measure(score.n, took);
        if let Some(why) = recovery.watch(score) {
            return AfterBatch::Diverged(why);
        }
        let core = &mut learner.core;
        let is_lent = core.is_lent();
        local.advance(core, batch, out);
        if is_lent {
            let lr = core.lr(local.round, 0.0);
            if !core.is_lent() {
                self.loan = None;
            }
            self.count_round(&Counted::All, lr, core, out);
            return AfterBatch::RoundDone;
        }
        if core.is_asynchronous() {
            match local.change(core, out) {
                Some(taken) => self.end_batch(taken, learner, out),
                None => self.stepping = Some(Stepping::Batch),
            }
            return AfterBatch::GoesOn;
        }
        if !local.is_trained() {
            return AfterBatch::GoesOn;
        }
        if core.round_plan.payload == Payload::Weights && !core.is_finite() {
            return fail(local, score.loss(), learner);
        }
        AfterBatch::AllTrained
    }

    /// Hands over what was trained, if all of it is and nothing was handed over yet.
    pub(super) fn end_turn_if_trained(&mut self, learner: &mut Learner, out: &mut Outbox) {
        if let Some(local) = self.local.as_mut().filter(|local| local.ended.is_none() && local.is_trained()) {
            local.end(learner, out);
        }
    }

    /// Whether there is no local phase that has not been handed over.
    pub(super) fn local_phase_is_over(&self) -> bool {
        self.local.as_ref().is_none_or(|local| local.ended.is_some())
    }

    /// Where peers train asynchronously: what a batch changes is known.
    fn end_batch(&mut self, taken: StepTaken, learner: &mut Learner, out: &mut Outbox) {
        let changes = learner.core.take_back_step(taken);
        if let Some(local) = self.local.take() {
            local.end_asynchronously(changes, learner, out);
        }
    }

    /// The round has a result. Whether it is taken over; else the worker is at it.
    pub(super) fn finish_round(
        &mut self,
        result: Vec<Vec<f32>>,
        counted: Counted,
        core: &mut Core,
        out: &mut Outbox,
    ) -> bool {
        let lr = self.lr(core);
        if core.round_plan.payload != Payload::Gradients {
            core.replace_values(result);
        } else if let Some(taken) = core.step(result, lr, StepResult::Values, out) {
            core.take_back_step(taken);
        } else {
            self.stepping = Some(Stepping::Round(counted));
            return false;
        }
        core.round_start = None;
        self.count_round(&counted, lr, core, out);
        true
    }

    /// The worker has taken a step. What belongs to a round that is no more is not wanted, but for what was lent.
    pub(super) fn on_step(&mut self, taken: StepTaken, learner: &mut Learner, out: &mut Outbox) -> AfterBatch {
        match self.stepping.take().filter(|_| self.local.is_some()) {
            Some(Stepping::Batch) => self.end_batch(taken, learner, out),
            Some(Stepping::Round(counted)) => {
                let core = &mut learner.core;
                core.take_back_step(taken);
                self.count_round(&counted, self.lr(core), core, out);
                return AfterBatch::RoundDone;
            }
            None => {
                let core = &mut learner.core;
                core.take_back_step(taken);
                if self.loan.take().is_some() {
                    // It ended early, and a batch that was to follow was not begun.
                    (self.local, core.is_computing) = (None, false);
                    return AfterBatch::RoundDone;
                }
            }
        }
        AfterBatch::GoesOn
    }

    /// The round's result is taken over: it counts.
    fn count_round(&mut self, counted: &Counted, lr: f32, core: &mut Core, out: &mut Outbox) {
        let local = self.local.take().expect("a round begins with a local phase");
        let (n_samples, n_batches) = core.count_rounds(counted);
        if *counted != Counted::All {
            // Some have work left that did not count: all share it.
            core.end_segment();
        }
        core.place.version.advance(core.view.number, n_samples);
        core.place.step += u64::from(n_batches);
        core.follow(n_batches);
        core.epoch_score += local.score;
        let waited = core.now.saturating_sub(local.ended.unwrap_or(core.now)) + self.pace.take_waited();
        out.records.push(local.record(core, lr, waited));
    }

    /// Goes on where the place says: another round, another segment, or the end of the epoch.
    pub(super) fn proceed(&mut self, learner: &mut Learner, out: &mut Outbox) -> AfterRound {
        loop {
            let Learner { core, strategy, .. } = &mut *learner;
            if core.place.ledger.epoch >= core.n_epochs() {
                (self.local, core.plan) = (None, None);
                return AfterRound::AllTrained;
            }
            if !core.segment_is_over() {
                if !core.is_lent() {
                    self.evaluations.evaluate_if_due(core, out);
                }
                if core.is_alone() && self.evaluations.is_running() {
                    self.held = Some(Held::Evaluation);
                    return AfterRound::GoesOn;
                }
                match core.is_asynchronous() {
                    true => self.begin_turn_if_allowed(learner, out),
                    false => self.begin_turn(learner, out),
                }
                return AfterRound::GoesOn;
            }
            if self.pace.must_wait(core) {
                return AfterRound::GoesOn;
            }
            if core.is_asynchronous() {
                self.last_endings.close_segment(core);
            }
            let next = core.next_ledger();
            if next.epoch == core.place.ledger.epoch {
                core.open(next);
                continue;
            }
            // Who trains asynchronously waits for the others' last batches; who exchanges in rounds has waited for them in the last one.
            let has_waited = core.is_asynchronous() && core.phase == Phase::Exchanging;
            self.idle_since = if has_waited { core.phase_began } else { core.now };
            core.enter(Phase::Syncing);
            let sketch = sketch(&core.values, core.training.seed);
            out.records.push(core.record(Event::Replica { epoch: next.epoch, sketch }));
            strategy.sync(core, out);
            return AfterRound::GoesOn;
        }
    }

    /// Replicas are together at the end of an epoch: returns what comes next, and how this peer's samples were classified.
    pub(super) fn finish_epoch(&mut self, core: &mut Core, out: &mut Outbox) -> (Ledger, Score) {
        core.place.version.advance(core.view.number, 0);
        core.epoch_size = size(core.params());
        let next = core.next_ledger();
        let (sent_bytes, received_bytes) = core.take_counts();
        let wait_s = (core.now.saturating_sub(self.idle_since) + self.pace.take_waited()).as_secs_f64();
        let (epoch, encode_s, decode_s, send_s) = (next.epoch, 0.0, 0.0, 0.0);
        out.records.push(core.record(Event::Synced {
            epoch,
            wait_s,
            encode_s,
            decode_s,
            send_s,
            sent_bytes,
            received_bytes,
        }));
        // What was waited for until now is told; the next round's waiting begins here.
        core.phase_began = core.now;
        let (mut score, earlier) = (std::mem::take(&mut core.epoch_score), std::mem::take(&mut core.earlier_score));
        if core.rank == 0 {
            score += earlier;
        }
        (next, score)
    }
}

/// What this peer computed are no numbers: it is of no use to anybody, and nobody else gets to see it.
fn fail(local: &mut LocalPhase, loss: f64, learner: &mut Learner) -> AfterBatch {
    if !learner.strategy.survives_divergence() {
        return AfterBatch::Diverged(local.problem(loss));
    }
    local.give_up(&mut learner.core);
    AfterBatch::AllTrained
}
