//! The display of a swarm: a bar for the whole, and a line for each peer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use nettorrent_engine::model::Score;
use nettorrent_engine::task::Task;
use nettorrent_history::{self as history, Checkpoint, Event, HistoryError};
use nettorrent_net::speed::Speed;
use nettorrent_swarm::record::{Event as RecordEvent, Record};
use nettorrent_swarm::{PeerId, Place};

use super::messages::{PeerEvent, Progress};
use super::peer_line::peer_text;
use super::prepared_job::PreparedJob;
use super::run_log::{Course, RunLog, incident_text};
use crate::events::EventLog;
use crate::progress::{EpochLine, clock, epoch_name, epoch_text, evaluation_text};

/// More lines than this help nobody.
const MOST_LINES: usize = 16;
/// How often the whole is written to the events.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// What a peer did in a shorter time says little about how fast it is.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);
/// What several peers notice within this time is said once.
const ECHO: Duration = Duration::from_secs(5);

/// Who trains.
#[derive(Clone, Copy)]
pub(crate) enum Topology {
    /// So many processes of this machine, all of which tell.
    Processes(usize),
    /// This process, with others on other machines, of whom it alone tells.
    OneOfMany,
}

/// What is known of a swarm from what its peers tell, shown and written down.
pub(crate) struct ProgressView {
    bars: MultiProgress,
    whole: ProgressBar,
    peers: BTreeMap<PeerId, ProgressBar>,
    quiet: bool,
    company: Topology,
    /// What was said of late, and when.
    said: Vec<(Instant, String)>,
    run_log: RunLog,
    epochs: u64,
    n_train: usize,
    written: Instant,
    epoch: EpochSoFar,
    /// How many samples all had trained when each peer's turn began, and how many it has trained in it.
    turns: BTreeMap<PeerId, (u64, u64)>,
    /// Samples that were shown.
    n_counted: u64,
    /// How fast the epochs were that are done, but not tested yet; counted from 1.
    paces: BTreeMap<u64, Pace>,
    /// The last checkpoint that was written down.
    kept: Option<PathBuf>,
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

/// Samples trained, and how long that took.
#[derive(Clone, Copy)]
struct Pace {
    n_samples: u64,
    took: Duration,
}

impl ProgressView {
    /// The view of a job that begins at this place; quiet if another program reads standard output.
    pub(crate) fn new(events: EventLog, prepared: &PreparedJob, company: Topology, place: &Place) -> Self {
        let (epochs, n_train, quiet) = (prepared.job.epochs, prepared.learning.labels().len(), events.is_printed());
        let bars = MultiProgress::new();
        let whole = if quiet { ProgressBar::hidden() } else { bars.add(ProgressBar::new(n_train as u64)) };
        let style = ProgressStyle::with_template("{prefix} {bar:24.cyan/dim} {msg}");
        whole.set_style(style.expect("the template is right").progress_chars("━╸─"));
        let epoch = EpochSoFar {
            number: place.ledger.epoch,
            score: Score::default(),
            began: Instant::now(),
            first_sample: place.standing.n_samples,
            n_samples_all: place.standing.n_samples,
            step: place.step,
            lr: 0.0,
        };
        Self {
            bars,
            whole,
            peers: BTreeMap::new(),
            quiet,
            company,
            said: Vec::new(),
            run_log: RunLog::new(events, prepared.setup.clone()),
            epochs,
            n_train,
            written: Instant::now(),
            turns: BTreeMap::new(),
            n_counted: epoch.n_samples_all,
            epoch,
            paces: BTreeMap::new(),
            kept: None,
            speed: Speed::default(),
        }
    }

    pub(crate) fn company(&self) -> Topology {
        self.company
    }

    /// Whether the last view has one member only.
    pub(crate) fn is_alone(&self) -> bool {
        self.run_log.n_members <= 1
    }

    /// Prints a line above the bars.
    pub(crate) fn say(&self, line: &str) {
        if !self.quiet {
            self.bars.suspend(|| println!("{line}"));
        }
    }

    /// Tells people something even when another program reads standard output.
    pub(crate) fn tell(&self, line: &str) {
        if self.quiet { eprintln!("{line}") } else { self.say(line) }
    }

    /// Writes an event down.
    pub(crate) fn write(&mut self, event: Event) -> Result<(), HistoryError> {
        self.run_log.events.write(event)
    }

    /// Whether the last test came to no more than guessing.
    pub(crate) fn is_guessing(&self) -> bool {
        self.run_log.is_guessing
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.run_log.events.elapsed()
    }

    /// Takes the bars away, and writes what has not been written yet.
    pub(crate) fn finish(&mut self) -> Result<(), HistoryError> {
        self.peers.values().for_each(ProgressBar::finish_and_clear);
        self.whole.finish_and_clear();
        self.run_log.finish(self.elapsed())
    }

    /// Takes in what a peer tells.
    pub(crate) fn on_event(&mut self, event: &PeerEvent) -> anyhow::Result<()> {
        match event {
            PeerEvent::Listening { .. } | PeerEvent::Ended { .. } => Ok(()),
            PeerEvent::Progress(progress) => self.on_progress(progress),
            PeerEvent::Resources(resources) => Ok(self.write(Event::Resources(*resources))?),
            PeerEvent::Record(record) => self.on_record(record),
            PeerEvent::Note { peer, text, is_routine } => {
                self.show_note(*peer, text, *is_routine);
                Ok(self.write(Event::Note(history::Note { peer: *peer, text: text.clone() }))?)
            }
            PeerEvent::Checkpoint { path, epoch, step } => self.on_checkpoint(path, *epoch, *step),
        }
    }

    /// Where all processes are one command's, it is no news that they come and go, nor what several of them noticed.
    fn show_note(&mut self, peer: PeerId, text: &str, is_routine: bool) {
        if let Topology::OneOfMany = self.company {
            return self.say(text);
        }
        self.said.retain(|(when, _)| when.elapsed() < ECHO);
        if !is_routine && self.said.iter().all(|(_, said)| said != text) {
            self.say(&format!("{peer}: {text}"));
            self.said.push((Instant::now(), text.to_owned()));
        }
    }

    /// The last checkpoint may be that of the last epoch too, and whoever becomes first looks after it again.
    fn on_checkpoint(&mut self, path: &Path, epoch: u64, step: u64) -> anyhow::Result<()> {
        if self.kept.as_deref() == Some(path) {
            return Ok(());
        }
        self.kept = Some(path.to_owned());
        Ok(self.write(Event::Checkpoint(Checkpoint { path: path.to_owned(), epoch, step }))?)
    }

    fn on_progress(&mut self, progress: &Progress) -> anyhow::Result<()> {
        self.run_log.add_times(self.elapsed(), &progress.times)?;
        if progress.times.elapsed_s >= LEAST_INTERVAL.as_secs_f64() {
            self.show_peer(progress);
        }
        self.epoch.n_samples_all = self.epoch.n_samples_all.max(progress.n_samples_all);
        self.turns.insert(progress.times.peer, (progress.n_samples_all, progress.n_ahead));
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
            epoch.score += Score { loss_sum: progress.loss_sum, n_correct, n };
        }
        self.show_whole();
        // As long as nothing is trained there is nothing to tell.
        if self.epoch.score.n == 0 || self.written.elapsed() < EVENT_INTERVAL {
            return Ok(());
        }
        self.written = Instant::now();
        let EpochSoFar { number, score, step, lr, .. } = self.epoch;
        let (samples_per_s, seconds) = (self.speed.per_second(self.elapsed()), self.seconds());
        Ok(self.write(Event::Progress(history::Progress {
            epoch: number + 1,
            step,
            loss: score.loss(),
            accuracy: score.accuracy(),
            lr,
            samples_per_s,
            seconds,
        }))?)
    }

    /// Samples that all have trained, with those of turns that go on. What others do of whom nothing is told is taken to be
    /// what those do who tell.
    fn n_samples_now(&self) -> u64 {
        let n_samples_all = self.epoch.n_samples_all;
        let ahead = self.turns.values().filter(|(since, _)| *since == n_samples_all).map(|(_, n_ahead)| n_ahead);
        let factor = match self.company {
            Topology::Processes(_) => 1,
            Topology::OneOfMany => self.run_log.n_members as u64,
        };
        n_samples_all + factor * ahead.sum::<u64>()
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

    fn show_whole(&self) {
        let EpochSoFar { number, score, .. } = self.epoch;
        let samples_per_s = self.speed.per_second(self.elapsed());
        let done = self.n_counted.saturating_sub(self.epoch.first_sample).min(self.n_train as u64);
        let left = (self.epochs.saturating_sub(number) * self.n_train as u64).saturating_sub(done);
        self.whole.set_position(done);
        self.whole.set_prefix(epoch_name((number + 1).min(self.epochs), self.epochs));
        if score.n == 0 || samples_per_s == 0.0 {
            return;
        }
        self.whole.set_message(format!(
            "loss {:.4}  accuracy {:.2} %  {} samples/s  {} left",
            score.loss(),
            100.0 * score.accuracy(),
            HumanCount(samples_per_s as u64),
            clock(Duration::from_secs_f64((left as f64 / samples_per_s).min(1e9))),
        ));
    }

    fn show_peer(&mut self, progress: &Progress) {
        if self.quiet {
            return;
        }
        let n_lines = self.peers.len();
        let peer = progress.times.peer;
        if !self.peers.contains_key(&peer) && n_lines >= MOST_LINES {
            return;
        }
        // Below the whole, in the order of their seats.
        let (bars, at) = (&self.bars, 1 + self.peers.range(..peer).count());
        let bar = self.peers.entry(peer).or_insert_with(|| {
            let bar = bars.insert(at, ProgressBar::new_spinner());
            bar.set_style(ProgressStyle::with_template("  {msg}").expect("the template is right"));
            bar
        });
        bar.set_message(peer_text(progress));
    }

    fn on_record(&mut self, record: &Record) -> anyhow::Result<()> {
        let at = self.elapsed();
        let (paces, now, lr) = (&mut self.paces, self.epoch.pace(), self.epoch.lr);
        // Peers may be in the next epoch already when the last one's test is known.
        let mut course = Course::default();
        let is_news = self.run_log.add_record(at, record, |epoch| {
            let pace = paces.remove(&epoch).unwrap_or(now);
            course = Course { lr, samples_per_s: pace.samples_per_s(), took: pace.took };
            course
        })?;
        match &record.event {
            RecordEvent::Epoch { epoch, train_loss, train_accuracy, test_loss, test_accuracy, test_s, .. }
                if is_news =>
            {
                if self.epoch.number == *epoch {
                    // The next one is said to have begun with the test of this one, but nobody trained before that was over.
                    self.epoch.leave_out(*test_s);
                }
                self.say(&epoch_text(&EpochLine {
                    epoch: *epoch,
                    epochs: self.epochs,
                    train_loss: *train_loss,
                    train_accuracy: *train_accuracy,
                    test_loss: *test_loss,
                    test_accuracy: *test_accuracy,
                    samples_per_s: course.samples_per_s,
                    seconds: course.took.as_secs_f64(),
                }));
            }
            RecordEvent::Evaluation { epoch, test_loss, test_accuracy, test_s, .. } if is_news => {
                self.epoch.leave_out(*test_s);
                self.say(&evaluation_text(*epoch, self.epochs, *test_loss, *test_accuracy));
            }
            RecordEvent::View { members, .. } => {
                self.show_members(members);
                self.tell_dropped(members.len())?;
            }
            event if is_news => incident_text(event).into_iter().for_each(|text| self.say(&text)),
            _ => {}
        }
        Ok(())
    }

    /// Tells what nobody trains when so many peers share the samples out, unless it is told.
    pub(crate) fn tell_dropped(&mut self, n_peers: usize) -> anyhow::Result<()> {
        let dropped = self.run_log.share_out(self.elapsed(), n_peers)?;
        dropped.iter().for_each(|dropped| self.say(&dropped.to_string()));
        Ok(())
    }

    /// Takes the lines of those away who are gone.
    fn show_members(&mut self, members: &[PeerId]) {
        if self.epoch.pace().n_samples == 0 {
            // Until they had agreed, nobody trained.
            self.epoch.began = Instant::now();
        }
        let gone: Vec<PeerId> = self.peers.keys().copied().filter(|peer| !members.contains(peer)).collect();
        self.turns.retain(|peer, _| members.contains(peer));
        for peer in gone {
            if let Some(bar) = self.peers.remove(&peer) {
                bar.finish_and_clear();
            }
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

impl Pace {
    fn samples_per_s(self) -> f64 {
        self.n_samples as f64 / self.took.as_secs_f64().max(1e-9)
    }
}
