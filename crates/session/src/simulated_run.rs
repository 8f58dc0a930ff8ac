//! A simulated run, written down as if it had been a real one: in simulated time.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::checkpoint::Progress;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_history::{Checkpoint, Event, Reason, Stop, Times, Wait};
use nettorrent_sim::{Observer, Outcome, Scenario};
use nettorrent_swarm::record::{Event as RecordEvent, Record};
use nettorrent_swarm::{Peer, PeerId, Waiting};

use crate::error::SessionError;
use crate::memory::peak_rss_bytes;
use crate::run_folder::RunFolder;
use crate::run_log::{Course, RunLog};
use crate::start_point::StartPoint;
use crate::training::Training;

/// Among more peers than this nobody writes down for whom it waits: that grows with the square of their number, and there is
/// no figure that could show it.
const MOST_THAT_TELL_WAITS: usize = 32;

/// Writes a run's folder from what it observes of a simulation.
pub struct SimulatedRun {
    run: RunFolder,
    run_log: RunLog,
    /// For whom each peer waits; none among too many.
    waiting: Option<BTreeMap<PeerId, Waiting>>,
    /// When each peer's last round ended.
    last: BTreeMap<PeerId, f64>,
    epochs: Epochs,
}

/// What is known of epochs, by their numbers, counted from 1.
#[derive(Default)]
struct Epochs {
    /// When the last round ended so far, how many samples had been trained then, and at what rate.
    ends: BTreeMap<u64, (f64, u64, f32)>,
    /// How long the longest part of the test after it took.
    test_s: BTreeMap<u64, f64>,
    /// By how many epochs were done, in bits: how long the longest part of a test within one took.
    within_s: BTreeMap<u64, f64>,
}

impl SimulatedRun {
    /// Begins a run in this folder.
    pub fn start(path: &Path, training: &Training, n_peers: usize, scenario: &Scenario) -> Result<Self, SessionError> {
        let run = training.create_run(Some(path))?;
        let mut events = run.open_events(false)?;
        let link = Some(scenario.link.to_string());
        let start = training.start_event(run.path(), Some(n_peers), link, &StartPoint::default());
        events.write_at(Duration::ZERO, Event::Start(start));
        let mut run_log = RunLog::new(events, training.setup.clone());
        run_log.share_out(Duration::ZERO, n_peers);
        Ok(Self {
            run,
            run_log,
            waiting: (n_peers <= MOST_THAT_TELL_WAITS).then(BTreeMap::new),
            last: BTreeMap::new(),
            epochs: Epochs::default(),
        })
    }

    /// Writes down what a peer tells.
    fn add(&mut self, record: &Record) {
        let at = Duration::from_secs_f64(record.at_s);
        if let RecordEvent::Round { epoch, n_samples_all, lr, .. } = record.event {
            self.epochs.ends.insert(epoch + 1, (record.at_s, n_samples_all, lr));
        }
        let (epoch, trained, compute_s) = match record.event {
            RecordEvent::Round { epoch, n_samples, loss, compute_s, .. } => {
                (epoch + 1, (n_samples, loss * n_samples as f64), compute_s)
            }
            RecordEvent::Synced { epoch, .. } => (epoch, (0, 0.0), 0.0),
            _ => (0, (0, 0.0), 0.0),
        };
        if let RecordEvent::Round { wait_s, encode_s, decode_s, send_s, sent_bytes, received_bytes, .. }
        | RecordEvent::Synced { wait_s, encode_s, decode_s, send_s, sent_bytes, received_bytes, .. } = record.event
        {
            let began = self.last.insert(record.peer, record.at_s).unwrap_or(0.0);
            let times = Times {
                elapsed_s: record.at_s - began,
                compute_s,
                wait_s,
                encode_s,
                decode_s,
                send_s,
                sent_bytes,
                received_bytes,
                waits: self.take_waits(record.peer, at, wait_s),
                ..Times::of(record.peer)
            };
            self.run_log.add_work(at, epoch, trained, &times);
        }
        if let RecordEvent::View { members, .. } = &record.event {
            self.run_log.share_out(at, members.len());
        }
        if let RecordEvent::Epoch { epoch, test_s, .. } = record.event {
            let longest = self.epochs.test_s.entry(epoch).or_default();
            *longest = longest.max(test_s);
        }
        if let RecordEvent::Evaluation { epoch, test_s, .. } = record.event {
            // The bits of numbers above 0 are in their order.
            let longest = self.epochs.within_s.entry(epoch.to_bits()).or_default();
            *longest = longest.max(test_s);
        }
        self.run_log.add_record(at, record, |epoch| self.epochs.course(epoch));
    }

    /// For whom a peer waited in the round that has just ended.
    fn take_waits(&mut self, peer: PeerId, at: Duration, wait_s: f64) -> Vec<Wait> {
        let Some(waiting) = self.waiting.as_mut().and_then(|all| all.get_mut(&peer)) else { return Vec::new() };
        waiting.pass(at);
        let waits = waiting.take(Duration::from_secs_f64(wait_s));
        waits.into_iter().map(|(peer, time)| Wait { peer, seconds: time.as_secs_f64() }).collect()
    }

    /// Writes the end, and what was learnt.
    pub fn finish(mut self, training: &Training, outcome: &Outcome) -> Result<(), SessionError> {
        self.run_log.finish(outcome.time);
        let Training { job, task, .. } = training;
        let most_advanced = outcome.live().max_by_key(|peer| (peer.place.step, std::cmp::Reverse(peer.id)));
        let (mut epoch, mut step) = (0, 0);
        if let Some(peer) = most_advanced {
            (epoch, step) = (peer.place.ledger.epoch, peer.place.step);
        }
        let values = most_advanced.and_then(|peer| match &job.pipeline {
            // There nobody has all of it.
            Some(_) => outcome.whole(0, task.n_values()).map(Arc::new),
            None => Some(peer.values.clone()),
        });
        if let Some(values) = values {
            let optimizer = Optimizer::new(job.optimizer.clone(), task.n_params());
            let progress = Progress { seed: job.seed, step, epoch, ..Progress::default() };
            let path = self.run.save(task.layout(), &values, &optimizer, &progress)?;
            self.run_log.events.write_at(outcome.time, Event::Checkpoint(Checkpoint { path, epoch, step }));
        }
        let reason = match outcome.failures.first() {
            Some(failure) => Reason::Failed(format!("{}: {}", failure.peer, failure.problem)),
            None => Reason::Finished,
        };
        let (seconds, peak_rss_bytes) = (outcome.time.as_secs_f64(), peak_rss_bytes());
        let is_guessing = reason == Reason::Finished && self.run_log.is_guessing;
        let stop = Stop { reason, epoch, step, seconds, peak_rss_bytes, is_guessing };
        self.run_log.events.write_at(outcome.time, Event::Stop(stop));
        Ok(())
    }
}

impl Observer for SimulatedRun {
    fn record(&mut self, record: Record) {
        self.add(&record);
    }

    fn handled(&mut self, at: Duration, peer: PeerId, state: &dyn Peer) {
        if let Some(waiting) = &mut self.waiting {
            let waiting = waiting.entry(peer).or_default();
            waiting.pass(at);
            waiting.go_on(state.status());
        }
    }
}

impl Epochs {
    /// How fast an epoch was. It began when the last round of the one before had ended and that one was tested; the others
    /// wait for who takes the longest for that.
    fn course(&self, epoch: u64) -> Course {
        let Some(&(end_s, n_samples, lr)) = self.ends.get(&epoch) else { return Course::default() };
        let former = epoch - 1;
        let (former_end_s, n_before) = self.ends.get(&former).map_or((0.0, 0), |&(end_s, n, _)| (end_s, n));
        let began_s = former_end_s + self.test_s.get(&former).copied().unwrap_or(0.0);
        let [first, last] = [former, epoch].map(|epoch| (epoch as f64).to_bits());
        let within_s: f64 = self.within_s.range(first..last).map(|(_, test_s)| test_s).sum();
        let took = Duration::from_secs_f64((end_s - began_s - within_s).max(0.0));
        Course { lr, n_samples: n_samples.saturating_sub(n_before), took }
    }
}
