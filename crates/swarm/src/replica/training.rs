//! What a replica trains in a view that is agreed on: rounds, the evaluations after epochs, and whether all that has diverged.

use std::time::Duration;

use crate::sampling::ledger::Ledger;

use super::agreement::Claim;
use super::core::Request;
use super::epoch_evaluation::{EpochEvaluation, Report};
use super::learner::Learner;
use super::local_phase::Batch;
use super::recovery::{Reaction, Recovery};
use super::rounds::{AfterBatch, AfterRound, Held, Rounds};
use crate::effects::{Outbox, Phase, TimerToken};
use crate::malformed::Malformed;
use crate::phase_work::Stepped;
use crate::place::State;
use crate::record::Event;
use crate::strategy::Message;
use crate::view::{PeerId, View};
use crate::wire::{Frame, Kind};
use crate::work::Done;

/// The training of one replica.
pub(super) struct Training {
    pub learner: Learner,
    pub rounds: Rounds,
    pub recovery: Recovery,
    epoch_evaluation: EpochEvaluation,
}

/// What a training wants done that it cannot do by itself.
#[derive(Default)]
pub(super) enum Want {
    #[default]
    Nothing,
    /// All is trained: if the members have agreed, it shall be handed over.
    HandOver,
    /// What follows on a round.
    Proceed,
    /// This is to be told of an epoch, if the members have agreed.
    Tell(Report),
    /// Training has diverged, and this is why.
    Recover(String),
}

/// What a strategy asked for, and what is done.
pub(super) enum Applied {
    /// A round is over.
    Round,
    /// An epoch is over. This one is to begin, once this is done.
    Epoch(Ledger, Want),
}

/// How training goes on in a new view.
pub(super) enum InView {
    /// With what was going on before; or not at all, because all is done.
    AsBefore,
    /// With a new round.
    Anew,
}

impl Training {
    pub(super) fn new(learner: Learner) -> Self {
        Self {
            recovery: Recovery::new(learner.core.training.guessing(), learner.state()),
            epoch_evaluation: EpochEvaluation::after(learner.core.place.ledger.epoch),
            learner,
            rounds: Rounds::default(),
        }
    }

    /// Whom this peer waits for, by rank.
    pub(super) fn waits_for(&self) -> Vec<usize> {
        let Learner { core, strategy, .. } = &self.learner;
        match core.phase {
            Phase::Exchanging if self.rounds.pace.is_waiting() => {
                self.rounds.pace.waits_for(core.rank, core.view.len())
            }
            Phase::Exchanging | Phase::Syncing => strategy.waits_for(),
            Phase::Testing => self.epoch_evaluation.missing(&core.view.members),
            Phase::Agreeing | Phase::Training | Phase::Finished => Vec::new(),
        }
    }

    /// There is a new view: what was going on is void. Returns how far this peer is; nothing if the view is none.
    pub(super) fn on_view(&mut self, view: View) -> Result<Option<Claim>, Malformed> {
        let Learner { core, strategy, .. } = &mut self.learner;
        if view.number <= core.view.number {
            return Ok(None);
        }
        let Some(rank) = view.rank(core.me) else {
            return Err(Malformed::new("a view came that this peer is not part of"));
        };
        (core.view, core.rank, core.request) = (view, rank, None);
        core.least_done.take();
        (core.is_computing, core.scoring) = (false, None);
        self.rounds.pace.on_view();
        self.epoch_evaluation.on_view();
        self.rounds.evaluations.forget();
        self.rounds.held = None;
        match &self.rounds.local {
            Some(local) if strategy.keeps_local_phase() => local.set_rates(core),
            // What is still being computed for it is not wanted any more.
            _ => self.rounds.local = None,
        }
        if core.phase != Phase::Finished {
            core.enter(Phase::Agreeing);
        }
        let claim = Claim::new(core, strategy, self.rounds.pace.speed());
        Ok(Some(if self.epoch_evaluation.is_outvoted() { claim.outvoted() } else { claim }))
    }

    /// What this peer has to tell of the last epoch when the members have agreed.
    pub(super) fn last_report(&mut self) -> Want {
        self.epoch_evaluation.last_report(&self.learner.core.place).map_or(Want::Nothing, Want::Tell)
    }

    /// The members have agreed that this peer's state goes on; it may have taken that over from another.
    pub(super) fn go_on(&mut self, was_behind: bool, out: &mut Outbox) -> InView {
        let Learner { core, strategy, .. } = &mut self.learner;
        if core.phase == Phase::Finished {
            if was_behind {
                // It has to know whose parameters these are, though nothing more is done with them.
                core.local_phase_goes_on = false;
                strategy.on_view(core, out);
            }
            return InView::AsBefore;
        }
        // If only peers who are gone had anything left to train, the round is empty, and who was behind begins another one.
        let is_worth_it = !was_behind && self.rounds.local.is_some() && !core.segment_is_over();
        core.local_phase_goes_on = strategy.keeps_local_phase() && is_worth_it;
        strategy.on_view(core, out);
        if core.local_phase_goes_on {
            core.enter(if self.rounds.local_phase_is_over() { Phase::Exchanging } else { Phase::Training });
            self.rounds.end_turn_if_trained(&mut self.learner, out);
            return InView::AsBefore;
        }
        self.rounds.local = None;
        core.roll_back();
        // Where all who shared it out are gone, nobody is to ask for speeds after it: who comes with a checkpoint knows no plan of it, and
        // would not answer.
        if !strategy.keeps_local_phase() || core.segment_is_deserted() {
            core.end_segment();
        }
        InView::Anew
    }

    /// What is being computed and waited for is not wanted any more.
    pub(super) fn abandon(&mut self) {
        (self.rounds.local, self.rounds.loan, self.rounds.held) = (None, None, None);
        let core = &mut self.learner.core;
        (core.request, core.scoring, core.is_computing, core.round_start) = (None, None, false, None);
        self.rounds.pace.on_view();
        core.enter(Phase::Agreeing);
    }

    /// Goes back to a state of before.
    pub(super) fn go_back_to(&mut self, state: State) {
        self.learner.go_back_to(state);
        self.rounds.last_endings.replace(Vec::new());
        self.begin_anew();
    }

    /// The state is another's, or one of before: what was seen since says nothing about it.
    pub(super) fn begin_anew(&mut self) {
        let core = &mut self.learner.core;
        self.epoch_evaluation.begin_anew(core.place.ledger.epoch);
        self.rounds.evaluations.forget();
        self.recovery.begin_anew(core.training.guessing());
        core.epoch_score = Default::default();
    }

    pub(super) fn on_timer(&mut self, token: TimerToken, out: &mut Outbox) {
        let Learner { core, strategy, .. } = &mut self.learner;
        if token == core.timer_token(token.timer) {
            strategy.on_timer(core, out, token.timer);
        }
    }

    /// Work came back. What belongs to a round that is no more is not wanted.
    pub(super) fn on_done(&mut self, done: Done, took: Duration, out: &mut Outbox) -> Want {
        let Learner { core, strategy, .. } = &mut self.learner;
        match done {
            Done::Bucket { id, bucket, numbers } if self.rounds.wait_for(id) => {
                self.rounds.on_bucket(&mut self.learner, bucket, numbers, out);
            }
            Done::Trained { id, score, left_out, size } if self.rounds.wait_for(id) => {
                core.outliers.learn(&left_out, size, score.loss());
                return self.on_batch(Batch { score, took, is_finite: true, end: None }, left_out, out);
            }
            Done::Stepped { id, stepped } if self.rounds.wait_for(id) => {
                let Stepped { score, left_out, is_finite, end } = stepped;
                core.outliers.learn(&left_out, 0.0, score.loss());
                return self.on_batch(Batch { score, took, is_finite, end: end.map(|end| *end) }, left_out, out);
            }
            Done::StepTaken { id, taken } if core.lent_for == Some(id) => {
                let after = self.rounds.on_step(*taken, &mut self.learner, out);
                return want_after(after);
            }
            Done::Scored { id, score } if core.scoring == Some(id) => {
                core.scoring = None;
                strategy.on_scored(core, out, &score);
            }
            Done::Tested { id, score, hash } => {
                if let Some(report) = self.epoch_evaluation.on_own_test(id, (score, hash), took) {
                    return Want::Tell(report);
                }
                self.rounds.evaluations.on_own_test(id, (score, took), core, out);
            }
            Done::Failed { problem } => out.failure = Some(problem),
            Done::Bucket { .. }
            | Done::Trained { .. }
            | Done::Stepped { .. }
            | Done::StepTaken { .. }
            | Done::Scored { .. }
            | Done::Other { .. } => {}
        }
        Want::Nothing
    }

    /// A batch is computed, without these samples.
    fn on_batch(&mut self, batch: Batch, left_out: Vec<usize>, out: &mut Outbox) -> Want {
        if !left_out.is_empty() {
            let core = &self.learner.core;
            out.records.push(core.record(Event::LeftOut { samples: left_out, step: core.place.step }));
        }
        want_after(self.rounds.on_batch(batch, &mut self.learner, &mut self.recovery, out))
    }

    /// A member says something, as its strategy or about a test.
    pub(super) fn on_frame(
        &mut self,
        (from, rank): (PeerId, usize),
        frame: Frame,
        out: &mut Outbox,
    ) -> Result<Want, Malformed> {
        let Learner { core, strategy, .. } = &mut self.learner;
        if frame.head.kind == Kind::Strategy {
            core.received_bytes += frame.body.len() as u64;
            let message = Message { round: frame.head.round, part: frame.head.part, body: frame.body };
            strategy.on_message(core, out, rank, message)?;
            return Ok(Want::Nothing);
        }
        if !EpochEvaluation::is_meant(&frame) {
            self.rounds.evaluations.on_frame((from, &frame), core, out)?;
            return Ok(Want::Nothing);
        }
        let spoilt = self.epoch_evaluation.on_frame((from, &frame), core, &self.recovery, out)?;
        Ok(self.after_epoch(spoilt, out))
    }

    /// Tells of an epoch.
    pub(super) fn tell(&mut self, report: Report, out: &mut Outbox) -> Want {
        let spoilt = self.epoch_evaluation.tell(report, &self.learner.core, &self.recovery, out);
        self.after_epoch(spoilt, out)
    }

    /// More may be known of epochs: what is wrong, if one shows that training has diverged.
    fn after_epoch(&mut self, spoilt: Option<String>, out: &mut Outbox) -> Want {
        match spoilt.filter(|_| Recovery::is_to_act(&self.learner.core)) {
            Some(why) => Want::Recover(why),
            None => {
                self.finish_if_tested(out);
                Want::Nothing
            }
        }
    }

    /// All is done when everybody's last test is.
    pub(super) fn finish_if_tested(&mut self, out: &mut Outbox) {
        let core = &mut self.learner.core;
        if core.phase == Phase::Testing && self.epoch_evaluation.all_is_concluded(core) {
            core.enter(Phase::Finished);
            let rounds = core.place.version.round;
            out.records.push(core.record(Event::Finished { rounds }));
        }
    }

    /// Does what the strategy asked for; none if that was nothing, or has to wait.
    pub(super) fn apply_request(&mut self, out: &mut Outbox) -> Option<Applied> {
        let core = &mut self.learner.core;
        match core.request.take()? {
            // The result may be there before this peer's own work is quite over, which must have its parameters to the end;
            // but what did not go into the result is not waited for.
            Request::FinishRound { result, counted }
                if !self.rounds.local_phase_is_over() && counted.contains(core.rank) =>
            {
                core.request = Some(Request::FinishRound { result, counted });
                None
            }
            Request::FinishRound { result, counted } => {
                self.rounds.finish_round(result, counted, core, out).then_some(Applied::Round)
            }
            Request::Synced => {
                let (next, train) = self.rounds.finish_epoch(core, out);
                let report = self.epoch_evaluation.begin(core, &next, train, out);
                Some(Applied::Epoch(next, report.map_or(Want::Nothing, Want::Tell)))
            }
        }
    }

    /// Begins another epoch; the state after the last one is kept if it is good.
    pub(super) fn begin_epoch(&mut self, next: Ledger) {
        self.learner.choose_strategy(next.epoch);
        self.learner.core.open(next);
        if self.learner.core.is_alone() && self.epoch_evaluation.is_running() {
            self.rounds.held = Some(Held::EpochEvaluation);
        } else {
            self.recovery.keep_if_good(&self.learner);
        }
    }

    /// Whether a peer that is alone has waited for a test and has its result; then it can proceed.
    pub(super) fn take_held(&mut self) -> bool {
        if self.epoch_evaluation.is_running() || self.rounds.evaluations.is_running() {
            return false;
        }
        let held = self.rounds.held.take();
        if held == Some(Held::EpochEvaluation) {
            self.recovery.keep_if_good(&self.learner);
        }
        held.is_some()
    }

    /// Hands over what was trained.
    pub(super) fn end_turn(&mut self, out: &mut Outbox) {
        self.rounds.end_turn_if_trained(&mut self.learner, out);
    }

    /// Whether it trains asynchronously and waits for others.
    pub(super) fn waits_asynchronously(&self) -> bool {
        let core = &self.learner.core;
        core.is_asynchronous() && core.phase == Phase::Exchanging && self.rounds.local.is_none()
    }

    /// Tells how fast this peer is when it is time to; whether it has waited for the answer and has it.
    pub(super) fn keep_pace(&mut self, out: &mut Outbox) -> bool {
        let Rounds { local, pace, .. } = &mut self.rounds;
        let local_phase_is_over = local.as_ref().is_some_and(|local| local.ended.is_some());
        pace.keep(&mut self.learner.core, local_phase_is_over, out)
    }

    /// Goes on where the place says.
    pub(super) fn proceed(&mut self, out: &mut Outbox) {
        if self.rounds.held.is_some() {
            return;
        }
        if self.rounds.proceed(&mut self.learner, out) == AfterRound::GoesOn {
            return;
        }
        let core = &mut self.learner.core;
        match self.recovery.ends_diverged().filter(|_| core.phase != Phase::Testing) {
            Some(why) => self.recovery.give_up(&why, self.rounds.lr(core), core, out),
            None => core.enter(Phase::Testing),
        }
    }

    /// Training has diverged, and this is why.
    pub(super) fn on_divergence(&mut self, why: &str, out: &mut Outbox) -> Reaction {
        self.rounds.held = None;
        let core = &self.learner.core;
        self.recovery.on_divergence(why, self.rounds.lr(core), core, out)
    }
}

/// What a training wants after a batch.
fn want_after(after: AfterBatch) -> Want {
    match after {
        AfterBatch::GoesOn => Want::Nothing,
        AfterBatch::AllTrained => Want::HandOver,
        AfterBatch::RoundDone => Want::Proceed,
        AfterBatch::Diverged(why) => Want::Recover(why),
    }
}
