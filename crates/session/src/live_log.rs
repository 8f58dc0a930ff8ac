//! The events of a run that is going on, put together from what its peers tell.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nettorrent_engine::model::Score;
use nettorrent_history::{Checkpoint, CheckpointFailed, Event, Note, PeerProgress, Progress, Reason, Stop};
use nettorrent_net::speed::Speed;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{Event as RecordEvent, Record};
use tokio::time::Instant;

use crate::event_log::EventLog;
use crate::memory::peak_rss_bytes;
use crate::peer_event::PeerEvent;
use crate::run_log::{Course, RunLog};
use crate::start_point::StartPoint;
use crate::training::Training;

/// How often the whole is written to the file.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// How long the line of an epoch waits for those who have not told what they did in it: they do so once a second.
const LONGEST_WAIT: Duration = Duration::from_millis(1500);

/// Who trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// This process by itself.
    Alone,
    /// So many peers on this machine, all of which tell.
    Local(usize),
    /// This peer, with others on other machines, who tell the first of them about themselves.
    OneOfMany,
}

/// What is known of a run from what its peers tell.
pub struct LiveLog {
    run_log: RunLog,
    topology: Topology,
    written: Instant,
    epoch: EpochSoFar,
    /// How many samples all had trained when each peer's local phase began, and how many it has trained in it.
    phases: BTreeMap<PeerId, (u64, u64)>,
    /// Samples that were told.
    n_counted: u64,
    /// How fast the epochs were that are done, but not tested yet; counted from 1.
    paces: BTreeMap<u64, Pace>,
    /// Whether training has gone back, and it is not known yet how many samples count.
    went_back: bool,
    /// The one that tells everything, where it is one of many.
    me: Option<PeerId>,
    /// Of how many epochs each peer knew the test when it last told what it did.
    told: BTreeMap<PeerId, u64>,
    /// Epochs that are known, but not written yet: some have not told what they did in them.
    tested: VecDeque<Tested>,
    /// The last checkpoint that was written down.
    kept: Option<PathBuf>,
    /// The epoch and the step of the last one that could not be written.
    not_kept: Option<(u64, u64)>,
    speed: Speed,
}

/// The epoch that is going on, over all peers that tell.
struct EpochSoFar {
    number: u64,
    score: Score,
    began: Instant,
    first_sample: u64,
    n_samples_all: u64,
    step: u64,
    lr: f32,
}

/// An epoch that is done and was tested, and when that was known.
struct Tested {
    at: Duration,
    epoch: u64,
    record: Record,
    course: Course,
}

/// Samples trained, and how long that took.
#[derive(Clone, Copy)]
struct Pace {
    n_samples: u64,
    took: Duration,
}

/// How a run ends.
pub struct End {
    /// Why.
    pub reason: Reason,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// The peak memory of the largest process; this one's, if it is not known.
    pub peak_rss_bytes: Option<u64>,
}

impl LiveLog {
    /// The log of a training that begins at this place, and which is told of at once.
    pub fn start(
        events: EventLog,
        training: &Training,
        run: &Path,
        topology: Topology,
        start: &StartPoint,
        link: Option<String>,
    ) -> Self {
        let place = &start.place;
        let mut log = Self {
            run_log: RunLog::new(events, training.setup.clone()),
            topology,
            written: Instant::now(),
            phases: BTreeMap::new(),
            n_counted: place.version.n_samples,
            epoch: EpochSoFar {
                number: place.ledger.epoch,
                score: Score::default(),
                began: Instant::now(),
                first_sample: place.version.n_samples,
                n_samples_all: place.version.n_samples,
                step: place.step,
                lr: 0.0,
            },
            paces: BTreeMap::new(),
            went_back: false,
            me: None,
            told: BTreeMap::new(),
            tested: VecDeque::new(),
            kept: None,
            not_kept: None,
            speed: Speed::default(),
        };
        let n_peers = match topology {
            Topology::Local(n_peers) => Some(n_peers),
            Topology::Alone | Topology::OneOfMany => None,
        };
        log.write(Event::Start(training.start_event(run, n_peers, link, start)));
        if let Some(n_peers) = n_peers {
            log.run_log.share_out(log.elapsed(), n_peers);
        }
        log
    }

    /// Whether the last view has one member only.
    pub fn is_alone(&self) -> bool {
        self.run_log.members.len() <= 1
    }

    /// Whether the last test came to no more than guessing.
    pub fn is_guessing(&self) -> bool {
        self.run_log.is_guessing
    }

    /// The time since training began, or went on.
    pub fn elapsed(&self) -> Duration {
        self.run_log.events.elapsed()
    }

    /// Writes an event down.
    pub fn write(&mut self, event: Event) {
        self.run_log.events.write(event);
    }

    /// Writes what has not been written yet, and the end.
    pub fn stop(&mut self, end: End) {
        self.write_epochs(true);
        let at = self.elapsed();
        self.run_log.finish(at);
        let End { reason, epoch, step, peak_rss_bytes: peak } = end;
        let is_guessing = reason == Reason::Finished && self.is_guessing();
        let (seconds, peak_rss_bytes) = (at.as_secs_f64(), peak.or_else(peak_rss_bytes));
        self.write(Event::Stop(Stop { reason, epoch, step, seconds, peak_rss_bytes, is_guessing }));
    }

    /// Takes in what a peer tells.
    pub fn on_event(&mut self, event: &PeerEvent) {
        match event {
            PeerEvent::Listening { .. } | PeerEvent::Ended { .. } => {}
            PeerEvent::Progress(progress) => self.on_progress(progress),
            PeerEvent::Resources(resources) => self.write(Event::Resources(*resources)),
            PeerEvent::Record(record) => self.on_record(record),
            PeerEvent::Heard(events) => events.iter().for_each(|event| self.on_heard(event)),
            PeerEvent::Note { peer, text, is_routine } => {
                let (peer, text, is_routine) = (*peer, text.clone(), *is_routine);
                self.write(Event::Note(Note { peer, text, is_routine }));
            }
            PeerEvent::Checkpoint { path, epoch, step } => self.on_checkpoint(path, *epoch, *step),
            PeerEvent::CheckpointFailed { epoch, step, problem } => self.on_failed_checkpoint(*epoch, *step, problem),
        }
    }

    /// The last checkpoint may be that of the last epoch too, and whoever becomes first looks after it again.
    fn on_checkpoint(&mut self, path: &Path, epoch: u64, step: u64) {
        if self.kept.as_deref() == Some(path) {
            return;
        }
        self.kept = Some(path.to_owned());
        self.write(Event::Checkpoint(Checkpoint { path: path.to_owned(), epoch, step }));
    }

    /// The last one is tried again when the run ends, and the end tells what came of that.
    fn on_failed_checkpoint(&mut self, epoch: u64, step: u64, problem: &str) {
        if self.not_kept.replace((epoch, step)) != Some((epoch, step)) {
            self.write(Event::CheckpointFailed(CheckpointFailed { epoch, step, problem: problem.to_owned() }));
        }
    }

    fn on_progress(&mut self, progress: &PeerProgress) {
        self.me = Some(progress.times.peer);
        self.add_work(progress);
        if self.went_back && progress.epoch == self.epoch.number {
            self.went_back = false;
            self.n_counted = progress.n_samples_all;
            (self.epoch.first_sample, self.epoch.n_samples_all) = (self.n_counted, self.n_counted);
        }
        self.epoch.n_samples_all = self.epoch.n_samples_all.max(progress.n_samples_all);
        self.phases.insert(progress.times.peer, (progress.n_samples_all, progress.n_ahead));
        let new = self.n_samples_now().saturating_sub(self.n_counted);
        if new > 0 {
            self.speed.count(self.elapsed(), new);
            self.n_counted += new;
        }
        if progress.n_samples > 0 {
            self.epoch.lr = progress.lr;
        }
        if progress.epoch > self.epoch.number {
            self.begin_epoch(progress.epoch);
        }
        let epoch = &mut self.epoch;
        epoch.step = epoch.step.max(progress.step);
        // What is told when an epoch begins is about the one before.
        if progress.n_samples > 0 && progress.trained_in == epoch.number {
            let (n, n_correct) = (progress.n_samples as usize, progress.n_correct as usize);
            epoch.score += Score { loss_sum: progress.loss_sum, n_correct, n, ..Score::default() };
        }
        // As long as nothing is trained there is nothing to tell.
        if self.epoch.score.n == 0 {
            return;
        }
        let EpochSoFar { number, score, step, lr, first_sample, .. } = self.epoch;
        let event = Event::Progress(Progress {
            epoch: number + 1,
            step,
            n_samples: self.n_counted.saturating_sub(first_sample),
            loss: score.loss(),
            accuracy: self.run_log.counted(score.accuracy()),
            lr,
            samples_per_s: self.speed.per_second(self.elapsed()),
            seconds: self.elapsed().as_secs_f64(),
        });
        if self.written.elapsed() < EVENT_INTERVAL {
            self.run_log.events.show(event);
            return;
        }
        self.written = Instant::now();
        self.write(event);
    }

    /// Adds up what a peer did, and notes how far it is.
    fn add_work(&mut self, progress: &PeerProgress) {
        let PeerProgress { n_tested, trained_in, n_samples, loss_sum, times, .. } = progress;
        self.run_log.add_work(self.elapsed(), trained_in + 1, (*n_samples, *loss_sum), times);
        self.run_log.events.show(Event::PeerProgress(progress.clone()));
        self.told.insert(times.peer, *n_tested);
        self.write_epochs(false);
    }

    /// Takes in what a peer elsewhere tells about itself. Where the whole stands is known here, and need not be believed.
    fn on_heard(&mut self, event: &PeerEvent) {
        let PeerEvent::Progress(progress) = event else { return self.on_event(event) };
        self.add_work(progress);
        self.phases.insert(progress.times.peer, (progress.n_samples_all, progress.n_ahead));
        if progress.trained_in == self.epoch.number {
            let (n, n_correct) = (progress.n_samples as usize, progress.n_correct as usize);
            self.epoch.score += Score { loss_sum: progress.loss_sum, n_correct, n, ..Score::default() };
        }
    }

    /// Samples that all have trained, with those of local phases that go on. What others do of whom nothing is told is taken to be
    /// what those do who tell.
    fn n_samples_now(&self) -> u64 {
        let n_samples_all = self.epoch.n_samples_all;
        let ahead = || self.phases.values().filter(|(since, _)| *since == n_samples_all).map(|(_, n_ahead)| n_ahead);
        let ahead_of_all = match self.topology {
            Topology::Alone | Topology::Local(_) => ahead().sum(),
            Topology::OneOfMany => {
                self.run_log.members.len().max(1) as u64 * ahead().sum::<u64>() / ahead().count().max(1) as u64
            }
        };
        n_samples_all + ahead_of_all
    }

    fn go_back(&mut self, number: u64, step: u64) {
        let (score, began, lr) = (Score::default(), Instant::now(), self.epoch.lr);
        self.epoch = EpochSoFar { number, score, began, first_sample: u64::MAX, n_samples_all: 0, step, lr };
        self.paces.clear();
        self.phases.clear();
        self.went_back = true;
    }

    fn begin_epoch(&mut self, number: u64) {
        let EpochSoFar { number: former, n_samples_all, step, lr, .. } = self.epoch;
        // Who comes late passes by many epochs at once.
        if number == former + 1 {
            self.paces.insert(number, self.epoch.pace());
        }
        let (score, began, first_sample) = (Score::default(), Instant::now(), n_samples_all);
        self.epoch = EpochSoFar { number, score, began, first_sample, n_samples_all, step, lr };
    }

    /// Writes the epochs that are known and of which all have told what they did, or which are not to wait any longer.
    fn write_epochs(&mut self, at_once: bool) {
        while let Some(tested) = self.tested.front() {
            let is_late = at_once || self.elapsed() >= tested.at + LONGEST_WAIT;
            if !is_late && !self.is_told(tested.epoch) {
                break;
            }
            let Some(Tested { at, record, course, .. }) = self.tested.pop_front() else { break };
            self.run_log.add_record(at, &record, |_| course);
        }
    }

    /// Whether all that can be heard have told what they did in an epoch. Who is not the first of many hears nobody else.
    fn is_told(&self, epoch: u64) -> bool {
        let members = &self.run_log.members;
        let hears_all = self.topology != Topology::OneOfMany || members.first().copied() == self.me;
        let mut expected = members.iter().filter(|&&peer| hears_all || Some(peer) == self.me);
        expected.all(|peer| self.told.get(peer).is_some_and(|&n_tested| n_tested >= epoch))
    }

    /// Has an epoch's line written in time; whether its test is news.
    fn hold_epoch(&mut self, (epoch, n_train): (u64, u64), record: &Record) -> bool {
        if self.tested.back().is_some_and(|tested| tested.epoch >= epoch) || !self.run_log.is_news(record) {
            return false;
        }
        // Peers may be in the next epoch already when the last one's test is known.
        let pace = self.paces.remove(&epoch).unwrap_or(self.epoch.pace());
        // After going back nobody may have told of the epoch before its end.
        let n_samples = if pace.n_samples > 0 { pace.n_samples } else { n_train };
        let course = Course { lr: self.epoch.lr, n_samples, took: pace.took };
        self.tested.push_back(Tested { at: self.elapsed(), epoch, record: record.clone(), course });
        self.write_epochs(false);
        true
    }

    fn on_record(&mut self, record: &Record) {
        let at = self.elapsed();
        let is_news = match record.event {
            RecordEvent::Epoch { epoch, n_train, .. } => self.hold_epoch((epoch, n_train), record),
            RecordEvent::View { .. } | RecordEvent::RolledBack { .. } => {
                self.write_epochs(true);
                self.run_log.add_record(at, record, |_| Course::default())
            }
            _ => self.run_log.add_record(at, record, |_| Course::default()),
        };
        match &record.event {
            // The next one is said to have begun with the test of this one, but nobody trained before that was over.
            RecordEvent::Epoch { epoch, test_s, .. } if is_news && self.epoch.number == *epoch => {
                self.epoch.leave_out(*test_s);
            }
            RecordEvent::Evaluation { test_s, .. } if is_news => self.epoch.leave_out(*test_s),
            RecordEvent::RolledBack { epoch, step, .. } => self.go_back(*epoch, *step),
            RecordEvent::View { members, .. } => {
                if self.epoch.pace().n_samples == 0 {
                    // Until they had agreed, nobody trained.
                    self.epoch.began = Instant::now();
                }
                self.phases.retain(|peer, _| members.contains(peer));
                self.run_log.share_out(at, members.len());
            }
            _ => {}
        }
    }
}

impl EpochSoFar {
    /// The time of tests is none of training.
    fn leave_out(&mut self, test_s: f64) {
        self.began = (self.began + Duration::from_secs_f64(test_s)).min(Instant::now());
    }

    fn pace(&self) -> Pace {
        Pace { n_samples: self.n_samples_all.saturating_sub(self.first_sample), took: self.began.elapsed() }
    }
}
