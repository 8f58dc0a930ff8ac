//! A block: a part of the network at one peer. Its replica says what is to be trained; its passes train it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::kernel::vectorised;
use nettorrent_engine::model::Mode;
use nettorrent_swarm::record::Event;
use nettorrent_swarm::{
    BatchPlace, Done, Input, Malformed, Outbox, Peer, PeerId, PhaseWork, Replica, State, View, What, Work,
};

use crate::early::{EarlyMessages, Sender};
use crate::evaluation::{Evaluation, batches};
use crate::message::{Message, Purpose};
use crate::pass::{Pass, Urgency};
use crate::position::{Key, Position};
use crate::work::{PartDone, PartWork, Samples};

/// A part of the network at one peer.
pub(crate) struct Block {
    pub position: Position,
    pub replica: Replica,
    passes: BTreeMap<Key, Pass>,
    /// By purpose, the first serial number that has not begun.
    n_begun: [u32; 3],
    /// The gradient that is waited for.
    wanted: Option<Wanted>,
    /// The local phase that it is for, if it is for one, and how the replica names that.
    phase: Option<(u64, Box<PhaseWork>)>,
    /// How many gradients the replica has been given.
    n_given: u32,
    evaluations: VecDeque<Evaluation>,
    /// What came for passes that have not begun.
    early: EarlyMessages,
    /// What goes into the record of the round.
    told: Told,
}

/// A gradient that is waited for.
struct Wanted {
    serial: u32,
    step: u64,
    since: Duration,
    whose: Whose,
}

/// Whose gradient it is.
enum Whose {
    /// The replica's, times this.
    Replica { id: u64, scale: f32 },
    /// Its local phase's.
    Phase,
}

/// What a pipeline adds to the record of a round.
#[derive(Default)]
struct Told {
    staleness: u32,
    waited: Duration,
    sent_bytes: u64,
    received_bytes: u64,
}

/// What a block wants done.
#[derive(Default)]
pub(crate) struct BlockOutbox {
    /// To other blocks of the pipeline.
    pub messages: Vec<Message>,
    /// What the replica wants done; its peers are named by their pipelines (see [`pipeline_id`]).
    pub replica: Outbox,
    /// Whose messages turned out to be malformed, by address.
    pub refused: Vec<(usize, Malformed)>,
}

/// How replicas of a block are named: by their pipelines, so that all blocks share out the samples alike.
pub(crate) fn pipeline_id(pipeline: usize) -> PeerId {
    PeerId::new(pipeline as u32, 0)
}

impl Block {
    pub(crate) fn new(position: Position, state: State) -> Self {
        let setup = position.setup.replica(position.slot).clone();
        let replica = Replica::new(pipeline_id(position.pipeline), setup, state).without_recovery();
        Self {
            position,
            replica,
            passes: BTreeMap::new(),
            n_begun: [0; 3],
            wanted: None,
            phase: None,
            n_given: 0,
            evaluations: VecDeque::new(),
            early: EarlyMessages::default(),
            told: Told::default(),
        }
    }

    /// All pipelines are there: it begins.
    pub(crate) fn start(&mut self, now: Duration, view: u32, n_pipelines: usize, out: &mut BlockOutbox) {
        let members = (0..n_pipelines).map(pipeline_id).collect();
        let told = self.feed(now, Input::View(View::new(view, members)), out);
        told.expect("a view that this block is part of");
    }

    /// Hands the replica an input, and does what it asks for.
    pub(crate) fn feed(&mut self, now: Duration, input: Input, out: &mut BlockOutbox) -> Result<(), Malformed> {
        let mut wishes = Outbox::default();
        let result = self.replica.handle(now, input, &mut wishes);
        let Outbox { frames, timers, work, mut records, refused, saved: _, failure } = wishes;
        for record in &mut records {
            self.told.write_into(&mut record.event);
        }
        out.replica.frames.extend(frames);
        out.replica.timers.extend(timers);
        out.replica.records.extend(records);
        out.replica.refused.extend(refused);
        out.replica.failure = out.replica.failure.take().or(failure);
        for work in work {
            self.on_work(now, work);
        }
        self.advance(now, out);
        result
    }

    /// The replica wants something computed.
    fn on_work(&mut self, now: Duration, work: Work) {
        let Work { id, what } = work;
        let n_batch = self.position.setup.learning.batch();
        let mut begin_evaluation = |purpose: Purpose, values: Arc<Vec<f32>>, batches: Vec<Samples>| {
            let before = self.evaluations.iter().rev().find(|evaluation| evaluation.purpose == purpose);
            let first = before.map_or(self.n_begun[purpose as usize], |evaluation| evaluation.serials().end);
            self.evaluations.push_back(Evaluation::new(purpose, id, values, batches, first));
        };
        match what {
            What::Test { values, samples, .. } => {
                let part = |range: std::ops::Range<usize>| {
                    Samples::Test(samples.start + range.start..samples.start + range.end)
                };
                begin_evaluation(Purpose::Test, values, batches(samples.len(), n_batch, part));
            }
            What::Score { values, samples } => {
                let part = |range| Samples::Train(samples.clone(), range);
                begin_evaluation(Purpose::Judge, values, batches(samples.len(), n_batch, part));
            }
            What::Gradient { place, scale, .. } => self.want(now, place, Whose::Replica { id, scale }),
            What::Local(phase) => {
                self.want(now, phase.place().clone(), Whose::Phase);
                self.phase = Some((id, phase));
            }
            What::Step(_) | What::Other { .. } => unreachable!("replicas of blocks want nothing else computed"),
        }
    }

    /// Has the gradient of a batch computed by the pipeline. Those that follow are begun before they are asked for.
    fn want(&mut self, now: Duration, place: BatchPlace, whose: Whose) {
        let BatchPlace { plan, slot, batch, step } = place;
        let serial = self.n_given;
        self.wanted = Some(Wanted { serial, step, since: now, whose });
        let n_left = (plan.n_batches(slot) - batch).min(self.position.setup.in_flight as usize) as u32;
        for ahead in (self.n_begun[Purpose::Train as usize] - serial)..n_left {
            let batch = batch + ahead as usize;
            let seed = self.replica.training().batch_seed(slot, step + u64::from(ahead));
            let samples = Samples::Batch { plan: plan.clone(), slot, batch };
            self.begin_pass(Key { purpose: Purpose::Train, serial: serial + ahead }, samples, Mode::Train { seed });
        }
    }

    fn begin_pass(&mut self, key: Key, samples: Samples, mode: Mode) {
        self.n_begun[key.purpose as usize] = key.serial + 1;
        self.passes.insert(key, Pass::new(&self.position, key, samples, mode));
    }

    /// Another block of the pipeline says something about a pass; whose it is, another peer's or also this one's, matters if it is
    /// early.
    pub(crate) fn on_message(
        &mut self,
        now: Duration,
        (message, sender): (Message, Sender),
        out: &mut BlockOutbox,
    ) -> Result<(), Malformed> {
        self.told.received_bytes += message.body.len() as u64;
        if message.round >= self.n_begun[message.label.purpose as usize] {
            return self.early.keep(message, sender);
        }
        self.take(&message, out)?;
        self.advance(now, out);
        Ok(())
    }

    fn take(&mut self, message: &Message, out: &mut BlockOutbox) -> Result<(), Malformed> {
        let Message { label, round, body } = message;
        let key = Key { purpose: label.purpose, serial: *round };
        let Some(pass) = self.passes.get_mut(&key) else {
            return Err(Malformed::new("it speaks of a batch that is over"));
        };
        let from = label.from % self.position.setup.n_slots();
        pass.take(&self.position, (*label, from), body, &mut out.messages)
    }

    /// Takes what came for passes that have begun since.
    fn take_early(&mut self, out: &mut BlockOutbox) {
        let n_begun = self.n_begun;
        for message in self.early.release(|message| message.round < n_begun[message.label.purpose as usize]) {
            if let Err(malformed) = self.take(&message, out) {
                out.refused.push((message.label.from, malformed));
            }
        }
    }

    /// Begins what may begin, and hands the replica what is over, until nothing more follows.
    fn advance(&mut self, now: Duration, out: &mut BlockOutbox) {
        // With nothing coming down, two at a time keep neighbouring stages busy.
        let most = self.position.setup.in_flight.max(2);
        let mut begun = Vec::new();
        for purpose in [Purpose::Judge, Purpose::Test] {
            // One evaluation after the other, so that the serial numbers follow one another.
            let evaluation = self.evaluations.iter_mut().find(|evaluation| evaluation.purpose == purpose);
            begun.extend(
                evaluation.into_iter().flat_map(|evaluation| std::iter::from_fn(|| evaluation.begin_next(most))),
            );
        }
        begun.into_iter().for_each(|(key, samples)| self.begin_pass(key, samples, Mode::Test));
        self.take_early(out);
        if let Some((key, pass)) = self.next_that_is_over() {
            self.hand_over(now, key, pass, out);
            self.advance(now, out);
        }
    }

    /// A pass that is over and whose result is wanted.
    fn next_that_is_over(&mut self) -> Option<(Key, Pass)> {
        let wanted = self.wanted.as_ref().map(|wanted| wanted.serial);
        let is_wanted = |key: &Key| key.purpose != Purpose::Train || Some(key.serial) == wanted;
        let key = self.passes.iter().find(|(key, pass)| is_wanted(key) && pass.is_over()).map(|(key, _)| *key)?;
        self.passes.remove(&key).map(|pass| (key, pass))
    }

    fn hand_over(&mut self, now: Duration, key: Key, pass: Pass, out: &mut BlockOutbox) {
        let (compute, step) = (pass.compute, pass.step);
        let (score, gradient) = pass.into_result();
        if key.purpose != Purpose::Train {
            let at = self
                .evaluations
                .iter()
                .position(|evaluation| evaluation.purpose == key.purpose && evaluation.serials().contains(&key.serial));
            let Some(at) = at else { return };
            self.evaluations[at].count(score, compute);
            if let Some(done) = self.evaluations[at].result() {
                let evaluation = self.evaluations.remove(at).expect("it is there");
                self.give(now, done, evaluation.compute, out);
            }
            return;
        }
        let (Some(wanted), Some(mut gradient)) = (self.wanted.take(), gradient) else { return };
        self.n_given += 1;
        self.told.staleness = self.told.staleness.max((wanted.step - step) as u32);
        self.told.waited += now.saturating_sub(wanted.since).saturating_sub(compute);
        match wanted.whose {
            Whose::Replica { id, scale } => {
                vectorised(|| gradient.iter_mut().for_each(|number| *number *= scale));
                self.hand_over_gradient(now, id, gradient, compute, out);
                self.give(now, Done::Trained { id, score, left_out: Vec::new(), size: 0.0 }, compute, out);
            }
            Whose::Phase => {
                let Some((id, mut phase)) = self.phase.take() else { return };
                phase.put(gradient, score);
                let (stepped, rest) = phase.end_batch();
                if let Some(rest) = rest.filter(PhaseWork::goes_on) {
                    self.want(now, rest.place().clone(), Whose::Phase);
                    self.phase = Some((id, Box::new(rest)));
                }
                self.give(now, Done::Stepped { id, stepped }, compute, out);
            }
        }
    }

    /// Buckets come from the end of the trained numbers to their beginning, and then the statistics: nothing is copied that can be cut
    /// off.
    fn hand_over_gradient(
        &mut self,
        now: Duration,
        id: u64,
        mut gradient: Vec<f32>,
        took: Duration,
        out: &mut BlockOutbox,
    ) {
        let task = self.replica.training().task.clone();
        let mut statistics = gradient.split_off(task.n_params());
        for (bucket, range) in task.buckets().iter().enumerate() {
            let numbers = match range.start {
                0 => std::mem::take(&mut gradient),
                start if start < task.n_params() => gradient.split_off(start),
                _ => std::mem::take(&mut statistics),
            };
            self.give(now, Done::Bucket { id, bucket, numbers }, took, out);
        }
    }

    /// The parameters as they are now.
    fn values(&self) -> Arc<Vec<f32>> {
        self.phase.as_ref().map_or_else(|| self.replica.values(), |(_, phase)| phase.values().clone())
    }

    fn give(&mut self, now: Duration, done: Done, took: Duration, out: &mut BlockOutbox) {
        let taken = self.feed(now, Input::Done { done, took }, out);
        taken.expect("what this peer itself computed is not malformed");
    }

    /// The pass that should be computed with next, and how urgent it is.
    pub(crate) fn most_urgent(&mut self, out: &mut BlockOutbox) -> Option<(Urgency, Key)> {
        let Self { position, passes, .. } = self;
        let urgencies =
            passes.iter_mut().filter_map(|(key, pass)| Some((pass.urgency(position, &mut out.messages)?, *key)));
        // Of equals the oldest; and tests first, for they hold on to parameters that are otherwise past.
        urgencies.min_by_key(|(urgency, key)| (*urgency, key.purpose == Purpose::Train, key.serial))
    }

    /// Goes on after passes may have ended without anything computed.
    pub(crate) fn go_on(&mut self, now: Duration, out: &mut BlockOutbox) {
        self.advance(now, out);
    }

    /// Begins to compute with a pass.
    pub(crate) fn begin(&mut self, key: Key) -> (PartWork, Arc<Vec<f32>>) {
        let evaluation = self
            .evaluations
            .iter()
            .find(|evaluation| evaluation.purpose == key.purpose && evaluation.serials().contains(&key.serial));
        let values = evaluation.map_or_else(|| self.values(), |evaluation| evaluation.values.clone());
        let step = self.wanted.as_ref().map_or(self.replica.place().step, |wanted| wanted.step);
        let pass = self.passes.get_mut(&key).expect("it was just found");
        pass.begin(&self.position, &values, step)
    }

    /// A pass has been computed with. An error is this peer's own.
    pub(crate) fn on_done(
        &mut self,
        now: Duration,
        key: Key,
        (done, took): (PartDone, Duration),
        out: &mut BlockOutbox,
    ) -> Result<(), String> {
        let Some(pass) = self.passes.get_mut(&key) else { return Ok(()) };
        pass.on_done(&self.position, done, took, &mut out.messages)?;
        self.advance(now, out);
        Ok(())
    }

    /// Counts what was sent for this block.
    pub(crate) fn count_sent(&mut self, n_bytes: usize) {
        self.told.sent_bytes += n_bytes as u64;
    }

    /// Whether it and all its replicas have done everything.
    pub(crate) fn is_finished(&self) -> bool {
        self.replica.is_finished()
    }

    /// The slots that its passes wait for.
    pub(crate) fn waits_for(&self) -> Vec<usize> {
        self.passes.values().flat_map(|pass| pass.waits_for(&self.position)).collect()
    }
}

impl Told {
    fn write_into(&mut self, event: &mut Event) {
        if let Event::Round { staleness, .. } = event {
            *staleness = (*staleness).max(self.staleness);
        }
        if let Event::Round { wait_s, sent_bytes, received_bytes, .. }
        | Event::Synced { wait_s, sent_bytes, received_bytes, .. } = event
        {
            let told = std::mem::take(self);
            *wait_s += told.waited.as_secs_f64();
            *sent_bytes += told.sent_bytes;
            *received_bytes += told.received_bytes;
        }
    }
}
