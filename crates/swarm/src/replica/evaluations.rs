//! Evaluations within an epoch: every peer scores a part of the test set where all stand after the same round, and training goes on.
//!
//! If they go by batches, every peer knows by itself after which rounds they are. If they go by time, the first member's clock says so: it
//! names a batch a few rounds ahead, and all test when they come to it. Whoever hears of it too late says so, and the first member names
//! another one, further ahead. Where replicas differ between the ends of epochs, each scores its part with its own.
//!
//! A test that is not complete when the members change, or go back, is dropped. What is learnt depends on none of it.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

use super::core::Core;
use super::partial_score::{AboutTest, PartialScore, decoded_with_metrics, encoded_with_metrics, test_share};
use crate::effects::Outbox;
use crate::malformed::Malformed;
use crate::record::Event;
use crate::view::PeerId;
use crate::wire::{Frame, Kind, decoded, encoded};
use crate::work::{What, Work};

/// The first member names a batch; a peer tells of its part; the first member tells of the whole. They follow on the parts of the test at
/// an epoch's end.
const NAMED: u64 = 2;
const PARTIAL: u64 = 3;
const WHOLE: u64 = 4;

/// How many rounds ahead a batch is named at first, and at most.
const LEAD: u64 = 2;
const MOST_LEAD: u64 = 1 << 10;
/// More tests than this are never under way: peers that train asynchronously may be a few apart.
const MOST_OPEN: usize = 64;

/// How one peer's part of a test went, or all of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Evaluation {
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

    /// Whether this peer's own part of one is being computed.
    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    fn look_further_ahead(&mut self) {
        (self.named, self.next, self.since) = (None, None, Some(Duration::ZERO));
        self.lead = (2 * self.lead).min(MOST_LEAD);
    }
}

impl Evaluations {
    /// Another round is about to begin: if it is time to, this peer tests its part first.
    pub(super) fn evaluate_if_due(&mut self, core: &mut Core, out: &mut Outbox) {
        if !core.training.evaluate.is_on() {
            return;
        }
        let round = core.own_round();
        let done = core.batches_done(round);
        let before = self.seen.replace(done).unwrap_or(done).min(done);
        let is_epoch_start = core.epochs_done(round, 0.0) == core.place.ledger.epoch as f64;
        if is_epoch_start {
            // The test at the end of the last epoch has just begun.
            if self.next.is_some_and(|next| next <= done) {
                (self.next, self.named) = (None, None);
            }
            self.since = Some(core.now);
            return;
        }
        self.since.get_or_insert(core.now);
        self.name_batch_if_due(round, core, out);
        let due = match self.next.filter(|&next| next <= done) {
            Some(next) => Some(next),
            None => core.training.evaluate.last_due(before, done),
        };
        if let Some(batch) = due {
            self.next = None;
            self.evaluate(batch, round, core, out);
        }
    }

    fn evaluate(&mut self, batch: u64, round: usize, core: &mut Core, out: &mut Outbox) {
        let speeds = core.segment().map(|segment| segment.speeds.as_slice()).unwrap_or_default();
        let samples = test_share(core.training.task.n_test(), core.rank, core.view.len(), speeds);
        let (epoch, step) = (core.epochs_done(round, 0.0), core.place.step);
        let evaluation = Evaluation { batch, epoch, step, test: PartialScore::default(), is_missed: false };
        if samples.is_empty() {
            return self.tell(evaluation, core, out);
        }
        let id = core.next_work_id();
        self.running.push((id, evaluation));
        let values = core.judged();
        out.work.push(Work { id, what: What::Test { values, samples, is_compared: false } });
    }

    /// By time: if this is the first member and there was no test for long enough, it names a batch.
    fn name_batch_if_due(&mut self, round: usize, core: &Core, out: &mut Outbox) {
        let Some(interval) = core.training.evaluate.interval().filter(|_| core.rank == 0 && self.named.is_none())
        else {
            return;
        };
        if core.now.saturating_sub(self.since.unwrap_or(core.now)) < interval {
            return;
        }
        self.lead = self.lead.max(LEAD);
        let (done, next) = (core.batches_done(round), core.batches_done(round + 1));
        // Who is alone need not be told.
        let n_rounds = if core.view.len() == 1 { 0 } else { self.lead };
        let batch = done + n_rounds * (next - done).max(1);
        (self.named, self.next) = (Some(batch), Some(batch));
        core.tell_others(Kind::Tested, NAMED, &encoded(&batch), out);
    }

    /// This peer's part of a test is done, if it was one within an epoch.
    pub(super) fn on_own_test(&mut self, id: u64, (score, took): (Score, Duration), core: &Core, out: &mut Outbox) {
        let Some(at) = self.running.iter().position(|(work, _)| *work == id) else { return };
        let (_, evaluation) = self.running.remove(at);
        self.took = took;
        self.tell(Evaluation { test: score.into(), ..evaluation }, core, out);
    }

    fn tell(&mut self, evaluation: Evaluation, core: &Core, out: &mut Outbox) {
        if core.rank == 0 {
            self.hear(core.me, evaluation, core, out);
        } else {
            core.tell(0, Kind::Tested, PARTIAL, encoded_with_metrics(&evaluation, core.task()), out);
        }
    }

    /// A member tells of its part, or the first one of the whole.
    pub(super) fn on_frame(
        &mut self,
        (from, frame): (PeerId, &Frame),
        core: &Core,
        out: &mut Outbox,
    ) -> Result<(), Malformed> {
        let is_first = core.view.rank(from) == Some(0);
        match frame.head.part {
            NAMED if is_first && core.training.evaluate.interval().is_some() => {
                self.on_named(decoded(&frame.body)?, core, out);
            }
            PARTIAL if core.rank == 0 => {
                let evaluation: Evaluation = decoded_with_metrics(&frame.body, core.task())?;
                evaluation.check(core, 1)?;
                self.hear(from, evaluation, core, out);
            }
            WHOLE if is_first => {
                let evaluation: Evaluation = decoded_with_metrics(&frame.body, core.task())?;
                evaluation.check(core, core.view.len())?;
                self.conclude(&evaluation, core, out);
            }
            _ => return Err(Malformed::new("it speaks of a test in a way that is not its place")),
        }
        Ok(())
    }

    fn on_named(&mut self, batch: u64, core: &Core, out: &mut Outbox) {
        if self.seen.is_none_or(|seen| seen < batch) {
            self.next = Some(batch);
            return;
        }
        let (epoch, step) = (core.place.ledger.epoch as f64, core.place.step);
        let missed = Evaluation { batch, epoch, step, test: PartialScore::default(), is_missed: true };
        self.tell(missed, core, out);
    }

    fn hear(&mut self, from: PeerId, evaluation: Evaluation, core: &Core, out: &mut Outbox) {
        let batch = evaluation.batch;
        if evaluation.is_missed {
            self.heard.remove(&batch);
            if self.named == Some(batch) {
                self.look_further_ahead();
            }
            return;
        }
        let heard = self.heard.entry(batch).or_default();
        heard.insert(from, evaluation);
        if !core.view.members.iter().all(|member| heard.contains_key(member)) {
            if self.heard.len() > MOST_OPEN {
                self.heard.pop_first();
            }
            return;
        }
        let mut whole = heard.values().copied().reduce(Evaluation::with).expect("all have told");
        // The rest of the sum has come from elsewhere; where it stands is this member's own.
        (whole.epoch, whole.step) = heard.get(&core.me).map_or((whole.epoch, whole.step), |own| (own.epoch, own.step));
        // Everybody tells of tests in their order, so what is missing of earlier ones will not come.
        self.heard = self.heard.split_off(&(batch + 1));
        if self.named == Some(batch) {
            self.named = None;
        }
        core.tell_others(Kind::Tested, WHOLE, &encoded_with_metrics(&whole, core.task()), out);
        self.conclude(&whole, core, out);
    }

    fn conclude(&mut self, whole: &Evaluation, core: &Core, out: &mut Outbox) {
        self.since = Some(core.now);
        let test: Score = whole.test.into();
        out.records.push(core.record(Event::Evaluation {
            epoch: whole.epoch,
            step: whole.step,
            test_loss: test.loss(),
            test_accuracy: test.accuracy(),
            n_test: test.n as u64,
            metrics: test.named_metrics(core.task().metrics()),
            test_s: self.took.as_secs_f64(),
        }));
    }
}

impl AboutTest for Evaluation {
    fn test(&mut self) -> &mut PartialScore {
        &mut self.test
    }
}

impl Evaluation {
    /// Refuses what so many peers together cannot honestly tell.
    fn check(&self, core: &Core, n_peers: usize) -> Result<(), Malformed> {
        let is_time = (0.0..=core.training.epochs as f64).contains(&self.epoch);
        let is_possible = self.test.is_possible(n_peers * core.training.task.n_test());
        if !core.training.evaluate.is_on() || !is_time || !is_possible {
            return Err(Malformed::new(format!("its report on a test is impossible: {self:?}")));
        }
        Ok(())
    }

    /// Two parts of the same test together.
    fn with(self, other: Self) -> Self {
        let mut test: Score = self.test.into();
        test += other.test.into();
        Self { test: test.into(), ..self }
    }
}
