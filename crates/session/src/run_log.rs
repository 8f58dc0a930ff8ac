//! What is written down of a swarm, put together from what its peers tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use nettorrent_history::{
    BadSample, Differs, Dropped, Epoch, Evaluation, Event, Joined, LeftOut, Loss, Note, Replicas, Rollback,
    StateReceived, Times, ViewChange,
};
use nettorrent_swarm::record::{Event as RecordEvent, Record};
use nettorrent_swarm::sketch::spread;
use nettorrent_swarm::{PeerId, Setup};

use crate::event_log::EventLog;
use crate::peer_epochs::PeerEpochs;

/// How often a peer's times are written.
const INTERVAL_S: f64 = 1.0;

/// The events of a swarm's run, and what is gathered for those to come.
pub struct RunLog {
    /// Where they go.
    pub events: EventLog,
    setup: Arc<Setup>,
    /// Among how many peers samples are shared out, as far as it is written what that drops.
    n_sharing: usize,
    /// What each peer did since its times were written.
    times: BTreeMap<PeerId, Times>,
    /// What each did in the epochs that are not written yet.
    peer_epochs: PeerEpochs,
    /// What replicas looked like at the ends of epochs of which not all have told.
    sketches: BTreeMap<u64, Vec<Vec<f32>>>,
    /// The members of the last view.
    pub members: Vec<PeerId>,
    sent_bytes: u64,
    /// The last epoch that was written.
    epoch: u64,
    /// The round that it ended with, and the last one that is void because training has gone back since.
    round: Option<u32>,
    void_until: Option<u32>,
    /// Whether the last test came to no more than guessing.
    pub is_guessing: bool,
    /// How many epochs were done at the last test within one that was written.
    evaluated: f64,
    /// Whether it is written why the run ended early.
    has_ended: bool,
    /// Samples of which it is written that they were left out.
    left_out: BTreeSet<usize>,
}

/// How an epoch's training went.
#[derive(Clone, Copy, Default)]
pub struct Course {
    /// The learning rate.
    pub lr: f32,
    /// How many samples were trained.
    pub n_samples: u64,
    /// How long it took, without its test.
    pub took: Duration,
}

impl RunLog {
    /// The log of a run that begins.
    pub fn new(events: EventLog, setup: Arc<Setup>) -> Self {
        Self {
            events,
            setup,
            n_sharing: 0,
            times: BTreeMap::new(),
            peer_epochs: PeerEpochs::default(),
            sketches: BTreeMap::new(),
            members: Vec::new(),
            sent_bytes: 0,
            epoch: 0,
            round: None,
            void_until: None,
            is_guessing: false,
            evaluated: 0.0,
            has_ended: false,
            left_out: BTreeSet::new(),
        }
    }

    /// Writes what the split gives to nobody, if that is news: so many peers share the samples out. It is returned, to be told.
    pub fn share_out(&mut self, at: Duration, n_peers: usize) -> Option<Dropped> {
        if std::mem::replace(&mut self.n_sharing, n_peers) == n_peers {
            return None;
        }
        let dropped = dropped(&self.setup, n_peers);
        dropped.iter().for_each(|dropped| self.events.write_at(at, Event::Dropped(dropped.clone())));
        dropped
    }

    /// Adds what a peer did in an epoch, counted from 1: samples, their losses added up, and where its time went. The times are written
    /// about once a second.
    pub fn add_work(&mut self, at: Duration, epoch: u64, (n_samples, loss_sum): (u64, f64), times: &Times) {
        self.sent_bytes += times.sent_bytes;
        self.peer_epochs.add(epoch, n_samples, loss_sum, times);
        let sums = self.times.entry(times.peer).or_insert_with(|| Times::of(times.peer));
        *sums += times;
        if sums.elapsed_s < INTERVAL_S {
            return;
        }
        let times = std::mem::replace(sums, Times::of(times.peer));
        self.events.write_at(at, Event::Times(times));
    }

    /// An accuracy as events tell it: no number if the task counts nothing that is right.
    pub fn counted(&self, accuracy: f64) -> f64 {
        self.setup.training().task.measure().counted(accuracy).unwrap_or(f64::NAN)
    }

    /// Writes what has not been written yet.
    pub fn finish(&mut self, at: Duration) {
        for times in std::mem::take(&mut self.times).into_values().filter(|times| times.elapsed_s > 0.0) {
            self.events.write_at(at, Event::Times(times));
        }
        self.events.tell_missing(at);
    }

    /// Whether this tells of an epoch that is not written yet. Of one that is void, some may tell after others have gone back.
    pub fn is_news(&self, record: &Record) -> bool {
        matches!(record.event, RecordEvent::Epoch { epoch, round, .. }
            if epoch > self.epoch && Some(round) > self.void_until)
    }

    /// Writes down what a peer records, but for its rounds. Of a test, and of why a run ends, all peers tell the same: whether
    /// this is the first to tell of it is returned.
    pub fn add_record(&mut self, at: Duration, record: &Record, course: impl FnOnce(u64) -> Course) -> bool {
        match &record.event {
            RecordEvent::Epoch { epoch, .. } => {
                let is_news = self.is_news(record);
                if is_news {
                    self.write_epoch(at, record, course(*epoch));
                }
                is_news
            }
            RecordEvent::Evaluation { epoch, .. } => {
                let is_news = *epoch > self.evaluated;
                if is_news {
                    self.write_evaluation(at, record);
                }
                is_news
            }
            RecordEvent::Replica { epoch, sketch } => {
                self.add_sketch(at, *epoch, sketch);
                false
            }
            RecordEvent::View { members, .. } => {
                self.members.clone_from(members);
                self.write_plain(at, record)
            }
            RecordEvent::RolledBack { epoch, .. } => {
                self.epoch = self.epoch.min(*epoch);
                self.void_until = self.round;
                self.evaluated = self.evaluated.min(*epoch as f64);
                self.peer_epochs.forget();
                self.write_plain(at, record)
            }
            RecordEvent::LeftOut { samples, step } => {
                // They come again in every epoch, and one word is enough.
                let fresh: Vec<usize> =
                    samples.iter().copied().filter(|&sample| self.left_out.insert(sample)).collect();
                if !fresh.is_empty() {
                    self.events.write_at(at, Event::LeftOut(left_out(&fresh, *step, &self.setup)));
                }
                !fresh.is_empty()
            }
            // All peers tell the same.
            RecordEvent::Ended { .. } if std::mem::replace(&mut self.has_ended, true) => false,
            RecordEvent::Differs { .. }
            | RecordEvent::Ended { .. }
            | RecordEvent::GivenUp { .. }
            | RecordEvent::Joined { .. }
            | RecordEvent::LateDonor { .. }
            | RecordEvent::Lost { .. }
            | RecordEvent::StateReceived { .. } => self.write_plain(at, record),
            RecordEvent::Batch { .. }
            | RecordEvent::Finished { .. }
            | RecordEvent::Round { .. }
            | RecordEvent::Synced { .. } => false,
        }
    }

    fn write_epoch(&mut self, at: Duration, record: &Record, course: Course) {
        let RecordEvent::Epoch {
            epoch,
            round,
            step,
            train_loss,
            train_accuracy,
            test_loss,
            test_accuracy,
            ref metrics,
            test_s,
            is_guessing,
            ..
        } = record.event
        else {
            return;
        };
        (self.epoch, self.round, self.is_guessing) = (epoch, Some(round), is_guessing);
        self.write_replicas(at, epoch);
        let Course { lr, n_samples, took } = course;
        let peers = self.peer_epochs.take(epoch);
        // It took as long as any peer computed. What is told late and all at once would make it seem shorter.
        let computed_s = peers.iter().map(|peer| peer.times.compute_s).fold(0.0, f64::max);
        let seconds = took.as_secs_f64().max(computed_s);
        let epoch = Epoch {
            epoch,
            step,
            train_loss,
            train_accuracy: self.counted(train_accuracy),
            test_loss,
            test_accuracy: self.counted(test_accuracy),
            metrics: metrics.clone(),
            lr,
            samples_per_s: n_samples as f64 / seconds.max(1e-9),
            seconds,
            test_seconds: test_s,
            sent_bytes: self.sent_bytes,
            peers,
        };
        self.events.write_at(at, Event::Epoch(epoch));
    }

    fn write_evaluation(&mut self, at: Duration, record: &Record) {
        let RecordEvent::Evaluation { epoch, step, test_loss, test_accuracy, ref metrics, test_s, .. } = record.event
        else {
            return;
        };
        self.evaluated = epoch;
        let (metrics, test_seconds, sent_bytes) = (metrics.clone(), test_s, self.sent_bytes);
        let test_accuracy = self.counted(test_accuracy);
        let evaluation = Evaluation { epoch, step, test_loss, test_accuracy, metrics, test_seconds, sent_bytes };
        self.events.write_at(at, Event::Evaluation(evaluation));
    }

    fn add_sketch(&mut self, at: Duration, epoch: u64, sketch: &[f32]) {
        if epoch > self.epoch {
            let sketches = self.sketches.entry(epoch).or_default();
            sketches.push(sketch.to_vec());
            if sketches.len() >= self.members.len() {
                self.write_replicas(at, epoch);
            }
        }
    }

    /// Writes what can be written as it was told; returns whether people should hear of it.
    fn write_plain(&mut self, at: Duration, record: &Record) -> bool {
        let is_routine = matches!(
            record.event,
            RecordEvent::View { .. }
                | RecordEvent::StateReceived { .. }
                | RecordEvent::Joined { .. }
                | RecordEvent::Lost { .. }
        );
        let event = plain_event(record);
        let is_told = event.is_some() && !is_routine;
        event.into_iter().for_each(|event| self.events.write_at(at, event));
        is_told
    }

    /// Says how far replicas were apart, if there are several.
    fn write_replicas(&mut self, at: Duration, epoch: u64) {
        let sketches = self.sketches.remove(&epoch).unwrap_or_default();
        self.sketches.retain(|&other, _| other > epoch);
        if sketches.len() < 2 {
            return;
        }
        let replicas = Replicas { epoch, distance: spread(&sketches), n_peers: sketches.len() };
        self.events.write_at(at, Event::Replicas(replicas));
    }
}

/// What the split gives to nobody, if anything, when so many peers share the samples out.
pub fn dropped(setup: &Setup, n_peers: usize) -> Option<Dropped> {
    // Where so many cannot share them out by the rule, samples are dealt in turn, and none is dropped.
    let report =
        setup.training().sampler.check(setup.n_replicas(n_peers)).ok().filter(|report| report.n_dropped > 0)?;
    let (split, n_trained, n_dropped) = (report.split.to_string(), report.n_trained, report.n_dropped);
    Some(Dropped { split, n_peers, n_trained, n_dropped })
}

/// What people are told of what a peer records when something went wrong, or the run ends early.
pub fn incident_text(event: &RecordEvent, setup: &Setup) -> Option<String> {
    match event {
        RecordEvent::RolledBack { why, from_step, epoch, step, lr_factor } => {
            Some(rollback(why, [*from_step, *epoch, *step], *lr_factor).to_string())
        }
        RecordEvent::LeftOut { samples, step } => Some(left_out(samples, *step, setup).to_string()),
        RecordEvent::Ended { reason } => Some(format!("The run ends here: {reason}.")),
        _ => None,
    }
}

/// What a peer tells, as it is written, where that takes nothing else.
fn plain_event(record: &Record) -> Option<Event> {
    let peer = record.peer;
    let note = |text| Some(Event::Note(Note { peer, text, is_routine: false }));
    match record.event.clone() {
        RecordEvent::View { view, members, donor, was_behind, round, sites } => {
            Some(Event::View(ViewChange { peer, view, members, donor, was_behind, round, sites }))
        }
        RecordEvent::RolledBack { why, from_step, epoch, step, lr_factor } => {
            Some(Event::Rollback(rollback(&why, [from_step, epoch, step], lr_factor)))
        }
        RecordEvent::GivenUp { n_samples, donor } => note(format!(
            "{n_samples} samples that were trained without most of the members are given up: the state of {donor} goes on"
        )),
        RecordEvent::StateReceived { n_bytes, seconds, donors } => {
            Some(Event::StateReceived(StateReceived { peer, n_bytes, seconds, donors }))
        }
        RecordEvent::Joined { admission_s, round_s } => Some(Event::Joined(Joined { peer, admission_s, round_s })),
        RecordEvent::Lost { who, cause, view, detection_s, recovery_s } => {
            Some(Event::Loss(Loss { peer, lost: who, cause, view, detection_s, recovery_s }))
        }
        RecordEvent::LateDonor { who, instead } => {
            note(format!("{who} was asked for its state and has sent nothing for long: {instead} is asked instead"))
        }
        RecordEvent::Differs { who, from, epoch, is_outvoted } => {
            Some(Event::Differs(Differs { peer, who, from, epoch, is_outvoted }))
        }
        RecordEvent::Ended { reason } => note(format!("the run ends here: {reason}")),
        _ => None,
    }
}

fn rollback(why: &str, [from_step, epoch, step]: [u64; 3], lr_factor: f32) -> Rollback {
    Rollback { why: why.to_owned(), from_step, epoch, step, is_rate_halved: true, lr_factor }
}

fn left_out(samples: &[usize], step: u64, setup: &Setup) -> LeftOut {
    let task = &setup.training().task;
    LeftOut { samples: samples.iter().map(|&index| BadSample { index, origin: task.origin(index) }).collect(), step }
}
