//! The local phase: what a peer trains by itself before each exchange.

use std::time::Duration;

use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::model::Score;

use super::core::Core;
use super::learner::Learner;
use crate::batch_place::BatchPlace;
use crate::effects::{Outbox, Phase};
use crate::local_state::LocalState;
use crate::phase_work::{PhaseHandle, PhaseWork};
use crate::record::{Event, Record};
use crate::step_work::{StepResult, StepTaken};
use crate::strategy::{Payload, Scale, Trained, held_at};
use crate::work::{What, Work, scaled};

/// The local phase that is going on, or over and waiting for its round to end.
pub(super) struct LocalPhase {
    /// Its work.
    work: u64,
    /// Where the peer takes steps by itself: what it says about them while they are taken.
    phase: Option<PhaseHandle>,
    /// The round of the segment that it is for.
    pub round: usize,
    /// The first batch, counted from the beginning of the segment.
    first: u32,
    /// How many batches there are for this peer.
    pub n_mine: u32,
    /// How many of its batches are trained.
    n_done: u32,
    /// By what the contribution is scaled.
    share: f32,
    /// The gradient of the batch, where peers train asynchronously.
    gradient: Vec<Vec<f32>>,
    /// How long this peer waited for others before it began, and how far it is ahead of the slowest of them.
    pub waited: Duration,
    staleness: u32,
    /// Whether every gradient so far was made of numbers.
    is_finite: bool,
    pub score: Score,
    /// The batches' mean losses added up.
    loss_sum: f64,
    compute: Duration,
    /// When its last batch was trained.
    pub ended: Option<Duration>,
}

/// The parameters are with the worker, for one round or for several.
pub(super) struct Loan {
    work: u64,
    /// As long as it is there, somebody wants what is trained.
    pub handle: PhaseHandle,
}

/// A batch of it that is computed.
pub(super) struct Batch {
    pub score: Score,
    pub took: Duration,
    /// Whether nothing infinite was seen, and nothing that is no number.
    pub is_finite: bool,
    /// What the peer's own steps came to, after the last of them.
    pub end: Option<LocalState>,
}

impl LocalPhase {
    /// Begins what the ledger and the plan say is next.
    pub(super) fn begin(learner: &mut Learner) -> Self {
        let Learner { core, strategy, .. } = learner;
        core.delay = strategy.delay();
        let plan = core.plan.clone().expect("a local phase begins within a segment");
        let slot = core.slot_of(core.me);
        let round = core.own_round();
        let batches = slot.map_or(0..0, |slot| plan.batches_in(slot, round));
        let share = match core.round_plan.scale {
            Scale::Plain | Scale::Rate => 1.0,
            Scale::Share => {
                let mine = slot.map_or(0, |slot| plan.samples_of(slot, round));
                (mine as f64 / plan.samples_in(round).max(1) as f64) as f32
            }
        };
        let local = Self {
            work: 0,
            phase: None,
            round,
            first: batches.start as u32,
            n_mine: batches.len() as u32,
            n_done: 0,
            share,
            gradient: Vec::new(),
            waited: core.now.saturating_sub(core.phase_began),
            staleness: if core.is_asynchronous() { core.staleness() } else { 0 },
            is_finite: true,
            score: Score::default(),
            loss_sum: 0.0,
            compute: Duration::ZERO,
            ended: None,
        };
        core.is_computing = true;
        core.enter(Phase::Training);
        local
    }

    /// Has it computed: the gradient of its batch, or where the peer takes steps by itself, all of them.
    ///
    /// A worker that is lent the parameters for several rounds is at it already.
    pub(super) fn order(&mut self, core: &mut Core, loan: &mut Option<Loan>, out: &mut Outbox) {
        let (Some(slot), Some(plan)) = (core.slot_of(core.me), core.plan.clone()) else { return };
        if let Some(loan) = loan.as_ref().filter(|_| core.is_lent()) {
            self.work = loan.work;
            return;
        }
        self.work = core.next_work_id();
        let step = core.place.step;
        let place = BatchPlace { plan, slot, batch: self.first as usize, step };
        let what = match core.round_plan.payload {
            Payload::Weights => {
                let state = LocalState { values: core.values.clone(), optimizer: core.optimizer.clone() };
                self.local_phase(state, place, core)
            }
            Payload::Gradients if core.may_lend() => {
                let (state, n_rounds) = (core.lend(self.work), core.n_lent_rounds());
                let outliers = core.outliers.clone();
                let (phase, handle) = PhaseWork::new(core.training.clone(), place, n_rounds, state, outliers);
                handle.set_rates(|k| core.lr(self.round + k, 0.0));
                *loan = Some(Loan { work: self.work, handle });
                What::Local(Box::new(phase))
            }
            Payload::Gradients | Payload::Updates => What::Gradient {
                values: core.values.clone(),
                place,
                seed: core.training.batch_seed(slot, step),
                scale: if core.round_plan.payload == Payload::Gradients { self.share } else { 1.0 },
                outliers: core.outliers.clone(),
                spare: std::mem::take(&mut core.spare),
            },
        };
        out.work.push(Work { id: self.work, what });
    }

    /// All its batches, with a step after each, from this state on.
    fn local_phase(&mut self, state: LocalState, place: BatchPlace, core: &Core) -> What {
        let (n_batches, outliers) = (self.n_mine as usize, core.outliers.clone());
        let (phase, handle) = PhaseWork::new(core.training.clone(), place, n_batches, state, outliers);
        self.phase = Some(handle);
        self.set_rates(core);
        What::Local(Box::new(phase))
    }

    /// The learning rate may be another one because the members are.
    pub(super) fn set_rates(&self, core: &Core) {
        if let Some(phase) = &self.phase {
            phase.set_rates(|k| core.lr(self.round, self.share_at(k as u32)));
        }
    }

    /// Whether this work is for it.
    pub(super) fn waits_for(&self, work: u64) -> bool {
        self.work == work && self.ended.is_none()
    }

    /// Whether all its batches are trained, or none are left to train.
    pub(super) fn is_trained(&self) -> bool {
        self.n_done >= self.n_mine
    }

    /// A part of a batch's gradient is there.
    pub(super) fn on_bucket(&mut self, learner: &mut Learner, bucket: usize, numbers: Vec<f32>, out: &mut Outbox) {
        if !is_finite(&numbers) {
            // Nobody else gets to see it; when the batch is over, this peer says what is wrong.
            self.is_finite = false;
            return;
        }
        match learner.core.round_plan.payload {
            Payload::Gradients => {
                learner.strategy.on_part(&mut learner.core, out, bucket, numbers);
            }
            Payload::Updates => self.gradient.push(numbers),
            Payload::Weights => {}
        }
    }

    /// Whether a batch that went so, and all before it, are made of numbers.
    pub(super) fn is_sound(&mut self, batch: &Batch) -> bool {
        self.is_finite &= batch.is_finite;
        batch.score.loss_sum.is_finite() && self.is_finite
    }

    /// Counts a batch.
    pub(super) fn count(&mut self, score: Score, took: Duration) {
        self.score += score;
        self.loss_sum += score.loss();
        self.compute += took;
    }

    /// A batch is trained: tells of it. After the last one, this is what the steps came to, if the peer takes them by itself.
    pub(super) fn advance(&mut self, core: &mut Core, batch: Batch, out: &mut Outbox) {
        let Batch { score, took, end, .. } = batch;
        let lr = core.lr(self.round, self.share_at(self.n_done));
        out.records.push(core.record(Event::Batch {
            epoch: core.place.ledger.epoch,
            round: core.place.version.round,
            n_samples: score.n as u64,
            loss: score.loss(),
            n_correct: score.n_correct as u64,
            lr,
            compute_s: took.as_secs_f64(),
        }));
        if let Some(end) = end {
            core.take_back(end);
        }
        core.is_computing = false;
        self.n_done += 1;
    }

    /// How much of it is done before a batch.
    fn share_at(&self, batch: u32) -> f64 {
        f64::from(batch) / f64::from(self.n_mine.max(1))
    }

    /// What is wrong with a local phase whose last batch had this loss.
    pub(super) fn problem(&self, loss: f64) -> String {
        match (loss.is_finite(), self.is_finite) {
            (false, _) => format!("the loss became {loss}"),
            (true, false) => format!("the gradient became infinite or no number (the loss is {loss})"),
            (true, true) => format!("the parameters became infinite or no number (the loss was {loss})"),
        }
    }

    /// What this peer trained is forgotten; it waits for the others' parameters.
    pub(super) fn give_up(&mut self, core: &mut Core) {
        self.phase = None;
        core.roll_back();
        core.is_computing = false;
        (self.n_done, self.is_finite) = (self.n_mine, false);
    }

    /// Hands over what was trained.
    pub(super) fn end(&mut self, learner: &mut Learner, out: &mut Outbox) {
        if learner.core.round_plan.payload == Payload::Weights {
            self.hand_over_weights(learner, out);
        }
        self.ended = Some(learner.core.now);
        let trained = Trained {
            n_samples: self.score.n as u64,
            mean_loss: self.loss_sum / f64::from(self.n_done.max(1)),
            compute: self.compute,
            has_diverged: !self.is_finite,
        };
        learner.core.enter(Phase::Exchanging);
        learner.strategy.on_trained(&mut learner.core, out, &trained);
    }

    fn hand_over_weights(&self, learner: &mut Learner, out: &mut Outbox) {
        let Learner { core, strategy, .. } = learner;
        let buckets = core.buckets.clone();
        for (bucket, place) in buckets.iter().enumerate() {
            let numbers = scaled(&held_at(&core.values, &core.optimizer, place), self.share, &mut core.spare);
            strategy.on_part(core, out, bucket, numbers);
        }
    }

    /// A peer with nothing to train takes part all the same, without weight.
    pub(super) fn contribute_nothing(&mut self, learner: &mut Learner, out: &mut Outbox) {
        let Learner { core, strategy, .. } = learner;
        if core.round_plan.payload == Payload::Gradients {
            let task = core.training.task.clone();
            for (bucket, range) in task.buckets().iter().enumerate() {
                let mut numbers = core.buffer(range.len());
                numbers.fill(0.0);
                strategy.on_part(core, out, bucket, numbers);
            }
        }
        self.end(learner, out);
    }

    /// Where peers train asynchronously: a batch is trained. Returns what a step with its gradient would change, unless that takes longer.
    pub(super) fn change(&mut self, core: &mut Core, out: &mut Outbox) -> Option<StepTaken> {
        let (gradient, lr) = (std::mem::take(&mut self.gradient), core.lr(self.round, 0.0));
        let taken = core.step(gradient, lr, StepResult::Changes { share: self.share }, out);
        core.is_computing = taken.is_none();
        taken
    }

    /// Where peers train asynchronously: a batch is trained, or there was none. The strategy gets the change, and the batch counts.
    pub(super) fn end_asynchronously(self, changes: Vec<Vec<f32>>, learner: &mut Learner, out: &mut Outbox) {
        let Learner { core, strategy, .. } = learner;
        core.is_computing = false;
        let lr = core.lr(self.round, 0.0);
        core.enter(Phase::Exchanging);
        for (bucket, change) in changes.into_iter().enumerate() {
            strategy.on_part(core, out, bucket, change);
        }
        let trained = Trained {
            n_samples: self.score.n as u64,
            mean_loss: self.loss_sum,
            compute: self.compute,
            ..Trained::default()
        };
        strategy.on_trained(core, out, &trained);
        if let Some(slot) = core.slot_of(core.me) {
            core.count_round(slot);
        }
        core.place.version.round += 1;
        core.place.step += 1;
        core.epoch_score += self.score;
        out.records.push(self.record(core, lr, self.waited));
    }

    /// What there is to tell of the round that this was for, now that it counts. Times that only a host can measure are
    /// its to fill in.
    pub(super) fn record(&self, core: &mut Core, lr: f32, waited: Duration) -> Record {
        let (sent_bytes, received_bytes) = core.take_counts();
        core.record(Event::Round {
            epoch: core.place.ledger.epoch,
            round: core.place.version.round,
            n_samples: self.score.n as u64,
            n_samples_all: core.place.version.n_samples,
            loss: self.score.loss(),
            n_correct: self.score.n_correct as u64,
            lr,
            compute_s: self.compute.as_secs_f64(),
            wait_s: waited.as_secs_f64(),
            encode_s: 0.0,
            decode_s: 0.0,
            send_s: 0.0,
            staleness: self.staleness,
            sent_bytes,
            received_bytes,
        })
    }
}
