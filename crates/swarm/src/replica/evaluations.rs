//! Evaluations within an epoch: every peer scores a part of the test set where all stand after the same round, and training goes on.
//!
//! If they go by batches, every peer knows by itself after which rounds they are. If they go by time, the first member's clock says so: it
//! names a batch a few rounds ahead, and all test when they come to it. Whoever hears of it too late says so, and the first member names
//! another one, further ahead. Where replicas differ between the ends of epochs, each scores its part with its own.
//!
//! A test that is not complete when the members change, or go back, is dropped. What is learnt depends on none of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

use super::agreement::{decoded, encoded};
use super::partial_score::{PartialScore, test_share};
use super::{Core, Outbox, Replica};
use crate::malformed::Malformed;
use crate::record::Event;
use crate::view::PeerId;
use crate::wire::{Frame, Kind};
use crate::work::{What, Work};

/// The first member names a batch; a peer tells of its part; the first member tells of the whole. They follow on the parts of the test at
/// an epoch's end.
pub(super) const NAMED: u64 = 2;
pub(super) const PARTIAL: u64 = 3;
pub(super) const WHOLE: u64 = 4;

/// How many rounds ahead a batch is named at first, and at most.
const LEAD: u64 = 2;
const MOST_LEAD: u64 = 1 << 10;
/// More tests than this are never under way: peers that train asynchronously may be a few apart.
const MOST_OPEN: usize = 64;

/// How one peer's part of a test went, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Evaluation {
    /// After which batch, as one machine counts from the run's beginning: the name of the test.
    batch: u64,
    /// How many epochs were done, and steps taken.
    epoch: f64,
    step: u64,
    test: PartialScore,
    /// Whether the batch was over before this peer heard of it.
    is_missed: bool,
}

/// What a peer knows of tests within epochs.
#[derive(Default)]
pub(super) struct Evaluations {
    /// How many batches were done when it was looked last.
    seen: Option<u64>,
    /// By time: since when there was no test, and after which batch the next one is.
    since: Option<Duration>,
    next: Option<u64>,
    /// At the first member: the batch that it has named and not heard all of, and how many rounds ahead it names one.
    named: Option<u64>,
    lead: u64,
    /// This peer's parts that are being computed.
    running: Vec<(u64, Evaluation)>,
    /// What the first member heard.
    heard: BTreeMap<u64, BTreeMap<PeerId, Evaluation>>,
    /// How long this peer's own last part took.
    took: Duration,
}

impl Evaluations {
    /// The members have changed, or go on from another state.
    pub(super) fn forget(&mut self) {
        let Self { since, lead, .. } = *self;
        *self = Self { since, lead, ..Self::default() };
    }

    fn look_further_ahead(&mut self) {
        (self.named, self.next, self.since) = (None, None, Some(Duration::ZERO));
        self.lead = (2 * self.lead).min(MOST_LEAD);
    }
}

impl Core {
    /// How many batches are done since the run's beginning, as one machine counts, before a round of the segment.
    fn batches_done(&self, round: usize) -> u64 {
        let per_epoch = self.training.sampler.n_batches(self.place.ledger.epoch);
        // Shares of an epoch are not exact.
        (self.epochs_done(round, 0.0) * per_epoch as f64 + 1e-6) as u64
    }
}

impl Replica {
    /// Another round is about to begin: if it is time to, this peer tests its part first.
    pub(super) fn evaluate_if_due(&mut self, out: &mut Outbox) {
        if !self.core.training.evaluate.is_on() {
            return;
        }
        let (core, state) = (&self.core, &mut self.evaluations);
        let round = core.own_round();
        let done = core.batches_done(round);
        let before = state.seen.replace(done).unwrap_or(done).min(done);
        let is_epoch_start = core.epochs_done(round, 0.0) == core.place.ledger.epoch as f64;
        if is_epoch_start {
            // The test at the end of the last epoch has just begun.
            if state.next.is_some_and(|next| next <= done) {
                (state.next, state.named) = (None, None);
            }
            state.since = Some(core.now);
            return;
        }
        state.since.get_or_insert(core.now);
        let due = match state.next.filter(|&next| next <= done) {
            Some(next) => Some(next),
            None => core.training.evaluate.last_due(before, done),
        };
        if let Some(batch) = due {
            state.next = None;
            self.evaluate(batch, round, out);
        }
        self.name_batch_if_due(round, out);
    }

    fn evaluate(&mut self, batch: u64, round: usize, out: &mut Outbox) {
        let core = &mut self.core;
        let speeds = core.segment().map(|segment| segment.speeds.as_slice()).unwrap_or_default();
        let samples = test_share(core.training.task.n_test(), core.rank, core.view.len(), speeds);
        let (epoch, step) = (core.epochs_done(round, 0.0), core.place.step);
        let evaluation = Evaluation { batch, epoch, step, test: PartialScore::default(), is_missed: false };
        if samples.is_empty() {
            return self.tell_evaluation(evaluation, out);
        }
        let id = core.next_work_id();
        self.evaluations.running.push((id, evaluation));
        out.work.push(Work { id, values: Arc::clone(&core.values), what: What::Test { samples } });
    }

    /// By time: if this is the first member and there was no test for long enough, it names a batch.
    fn name_batch_if_due(&mut self, round: usize, out: &mut Outbox) {
        let (core, state) = (&self.core, &mut self.evaluations);
        let Some(interval) = core.training.evaluate.interval().filter(|_| core.rank == 0 && state.named.is_none())
        else {
            return;
        };
        if core.now.saturating_sub(state.since.unwrap_or(core.now)) < interval {
            return;
        }
        state.lead = state.lead.max(LEAD);
        let (done, next) = (core.batches_done(round), core.batches_done(round + 1));
        // Who is alone need not be told.
        let n_rounds = if core.view.len() == 1 { 1 } else { state.lead };
        let batch = done + n_rounds * (next - done).max(1);
        (state.named, state.next) = (Some(batch), Some(batch));
        (1..self.core.view.len()).for_each(|rank| self.tell(rank, Kind::Tested, NAMED, encoded(&batch), out));
    }

    /// This peer's part of a test is done, if it was one within an epoch.
    pub(super) fn on_own_evaluation(&mut self, id: u64, score: Score, took: Duration, out: &mut Outbox) {
        let Some(at) = self.evaluations.running.iter().position(|(work, _)| *work == id) else { return };
        let (_, evaluation) = self.evaluations.running.remove(at);
        self.evaluations.took = took;
        self.tell_evaluation(Evaluation { test: score.into(), ..evaluation }, out);
    }

    fn tell_evaluation(&mut self, evaluation: Evaluation, out: &mut Outbox) {
        if self.core.rank == 0 {
            self.hear_evaluation(self.core.me, evaluation, out);
        } else {
            self.tell(0, Kind::Tested, PARTIAL, encoded(&evaluation), out);
        }
    }

    pub(super) fn on_evaluation(&mut self, from: PeerId, frame: &Frame, out: &mut Outbox) -> Result<(), Malformed> {
        let is_first = self.core.view.rank(from) == Some(0);
        match frame.head.part {
            NAMED if is_first && self.core.training.evaluate.interval().is_some() => {
                self.on_named(decoded(&frame.body)?, out);
            }
            PARTIAL if self.core.rank == 0 => {
                let evaluation = decoded(&frame.body)?;
                self.check_evaluation(&evaluation, 1)?;
                self.hear_evaluation(from, evaluation, out);
            }
            WHOLE if is_first => {
                let evaluation = decoded(&frame.body)?;
                self.check_evaluation(&evaluation, self.core.view.len())?;
                self.conclude_evaluation(&evaluation, out);
            }
            _ => return Err(Malformed::new("it speaks of a test in a way that is not its place")),
        }
        Ok(())
    }

    fn on_named(&mut self, batch: u64, out: &mut Outbox) {
        let state = &mut self.evaluations;
        if state.seen.is_none_or(|seen| seen < batch) {
            state.next = Some(batch);
            return;
        }
        let (epoch, step) = (self.core.place.ledger.epoch as f64, self.core.place.step);
        self.tell_evaluation(Evaluation { batch, epoch, step, test: PartialScore::default(), is_missed: true }, out);
    }

    /// Refuses what so many peers together cannot honestly tell.
    fn check_evaluation(&self, evaluation: &Evaluation, n_peers: usize) -> Result<(), Malformed> {
        let Evaluation { epoch, test, .. } = evaluation;
        let is_time = (0.0..=self.core.training.epochs as f64).contains(epoch);
        if !self.core.training.evaluate.is_on()
            || !is_time
            || !test.is_possible(n_peers * self.core.training.task.n_test())
        {
            return Err(Malformed::new(format!("its report on a test is impossible: {evaluation:?}")));
        }
        Ok(())
    }

    fn hear_evaluation(&mut self, from: PeerId, evaluation: Evaluation, out: &mut Outbox) {
        let state = &mut self.evaluations;
        let batch = evaluation.batch;
        if evaluation.is_missed {
            state.heard.remove(&batch);
            if state.named == Some(batch) {
                state.look_further_ahead();
            }
            return;
        }
        let heard = state.heard.entry(batch).or_default();
        heard.insert(from, evaluation);
        let members = &self.core.view.members;
        if !members.iter().all(|member| heard.contains_key(member)) {
            if state.heard.len() > MOST_OPEN {
                state.heard.pop_first();
            }
            return;
        }
        let mut whole = heard.values().copied().reduce(Evaluation::with).expect("all have told");
        // The rest of the sum has come from elsewhere; where it stands is this member's own.
        (whole.epoch, whole.step) =
            heard.get(&self.core.me).map_or((whole.epoch, whole.step), |own| (own.epoch, own.step));
        // Everybody tells of tests in their order, so what is missing of earlier ones will not come.
        state.heard = state.heard.split_off(&(batch + 1));
        if state.named == Some(batch) {
            state.named = None;
        }
        let body = encoded(&whole);
        (1..self.core.view.len()).for_each(|rank| self.tell(rank, Kind::Tested, WHOLE, body.clone(), out));
        self.conclude_evaluation(&whole, out);
    }

    fn conclude_evaluation(&mut self, whole: &Evaluation, out: &mut Outbox) {
        self.evaluations.since = Some(self.core.now);
        let test: Score = whole.test.into();
        out.records.push(self.core.record(Event::Evaluation {
            epoch: whole.epoch,
            step: whole.step,
            test_loss: test.loss(),
            test_accuracy: test.accuracy(),
            n_test: test.n as u64,
            test_s: self.evaluations.took.as_secs_f64(),
        }));
    }
}

impl Evaluation {
    /// Two parts of the same test together.
    fn with(self, other: Self) -> Self {
        let mut test: Score = self.test.into();
        test += other.test.into();
        Self { test: test.into(), ..self }
    }
}
