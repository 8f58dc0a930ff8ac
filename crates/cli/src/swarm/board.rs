//! The display of a swarm: a bar for the whole, and a line for each peer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use nettorrent_engine::model::Score;
use nettorrent_engine::task::Task;
use nettorrent_net::speed::Speed;
use nettorrent_swarm::record::{Event as RecordEvent, Record};
use nettorrent_swarm::{PeerId, Phase, Place};

use super::material::Material;
use super::messages::{PeerEvent, Progress, Times};
use crate::events::{Event, EventLog};
use crate::progress::{EpochLine, clock, epoch_name, epoch_text};

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
pub(crate) enum Company {
    /// So many processes of this machine, all of which tell.
    Processes(usize),
    /// This process, with others on other machines, of whom it alone tells.
    OneOfMany,
}

/// What is known of a swarm from what its peers tell, shown and written down.
pub(crate) struct Board {
    bars: MultiProgress,
    whole: ProgressBar,
    peers: BTreeMap<PeerId, ProgressBar>,
    /// What each peer did since its times were written.
    times: BTreeMap<PeerId, Times>,
    quiet: bool,
    company: Company,
    /// How many members the last view has.
    n_members: usize,
    /// What was said of late, and when.
    said: Vec<(Instant, String)>,
    events: EventLog,
    epochs: u64,
    n_train: usize,
    began: Instant,
    written: Instant,
    epoch: EpochSoFar,
    /// How fast the epochs were that are done, but not tested yet; counted from 1.
    paces: BTreeMap<u64, Pace>,
    /// The last epoch that was told.
    told: u64,
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

impl Board {
    /// A board for a job that begins at this place; quiet if another program reads standard output.
    pub(crate) fn new(events: EventLog, material: &Material, company: Company, place: &Place) -> Self {
        let (epochs, n_train, quiet) = (material.job.epochs, material.learning.labels().len(), events.is_printed());
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
            times: BTreeMap::new(),
            quiet,
            company,
            n_members: 1,
            said: Vec::new(),
            events,
            epochs,
            n_train,
            began: Instant::now(),
            written: Instant::now(),
            epoch,
            paces: BTreeMap::new(),
            told: 0,
            kept: None,
            speed: Speed::default(),
        }
    }

    pub(crate) fn company(&self) -> Company {
        self.company
    }

    /// Whether the last view has one member only.
    pub(crate) fn is_alone(&self) -> bool {
        self.n_members <= 1
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
    pub(crate) fn write(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.events.write(event)
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes the bars away.
    pub(crate) fn finish(&self) {
        self.peers.values().for_each(ProgressBar::finish_and_clear);
        self.whole.finish_and_clear();
    }

    /// Takes in what a peer tells.
    pub(crate) fn on_event(&mut self, event: &PeerEvent) -> anyhow::Result<()> {
        match event {
            PeerEvent::Listening { .. } | PeerEvent::Ended { .. } => Ok(()),
            PeerEvent::Progress(progress) => self.on_progress(progress),
            PeerEvent::Record(record) => self.on_record(record),
            PeerEvent::Note { peer, text, is_routine } => {
                self.show_note(*peer, text, *is_routine);
                self.write(&Event::Note { peer: *peer, text })
            }
            PeerEvent::Checkpoint { path, epoch, step } => self.on_checkpoint(path, *epoch, *step),
        }
    }

    /// Where all processes are one command's, it is no news that they come and go, nor what several of them noticed.
    fn show_note(&mut self, peer: PeerId, text: &str, is_routine: bool) {
        if let Company::OneOfMany = self.company {
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
        self.write(&Event::Checkpoint { path, epoch, step })
    }

    fn on_progress(&mut self, progress: &Progress) -> anyhow::Result<()> {
        self.write_times(progress)?;
        if progress.times.elapsed_s >= LEAST_INTERVAL.as_secs_f64() {
            self.show_peer(progress);
        }
        let new = progress.n_samples_all.saturating_sub(self.epoch.n_samples_all);
        if new > 0 {
            self.speed.count(self.began.elapsed(), new);
            self.epoch.n_samples_all += new;
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
            epoch.lr = progress.lr;
        }
        self.show_whole();
        // As long as nothing is trained there is nothing to tell.
        if self.epoch.score.n == 0 || self.written.elapsed() < EVENT_INTERVAL {
            return Ok(());
        }
        self.written = Instant::now();
        let EpochSoFar { number, score, step, lr, .. } = self.epoch;
        let (samples_per_s, seconds) = (self.speed.per_second(self.began.elapsed()), self.seconds());
        self.write(&Event::Progress {
            epoch: number + 1,
            step,
            loss: score.loss(),
            accuracy: score.accuracy(),
            lr,
            samples_per_s,
            seconds,
        })
    }

    /// Writes down where a peer's time went, about once a second.
    fn write_times(&mut self, progress: &Progress) -> anyhow::Result<()> {
        let sums = self.times.entry(progress.peer).or_default();
        *sums += progress.times;
        if sums.elapsed_s < EVENT_INTERVAL.as_secs_f64() {
            return Ok(());
        }
        let times = std::mem::take(sums);
        self.write(&Event::Times { peer: progress.peer, times })
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
        let samples_per_s = self.speed.per_second(self.began.elapsed());
        let done = self.epoch.pace().n_samples.min(self.n_train as u64);
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
        if !self.peers.contains_key(&progress.peer) && n_lines >= MOST_LINES {
            return;
        }
        // Below the whole, in the order of their seats.
        let (bars, at) = (&self.bars, 1 + self.peers.range(..progress.peer).count());
        let bar = self.peers.entry(progress.peer).or_insert_with(|| {
            let bar = bars.insert(at, ProgressBar::new_spinner());
            bar.set_style(ProgressStyle::with_template("  {msg}").expect("the template is right"));
            bar
        });
        bar.set_message(peer_text(progress));
    }

    fn on_record(&mut self, record: &Record) -> anyhow::Result<()> {
        match &record.event {
            RecordEvent::Epoch { epoch, step, train_loss, train_accuracy, test_loss, test_accuracy, .. } => {
                if *epoch <= self.told {
                    // Another peer took the first one's place and told again.
                    return Ok(());
                }
                self.told = *epoch;
                // Peers may be in the next epoch already when the last one's test is known.
                let pace = self.paces.remove(epoch).unwrap_or_else(|| self.epoch.pace());
                let (samples_per_s, seconds) = (pace.samples_per_s(), pace.took.as_secs_f64());
                self.say(&epoch_text(&EpochLine {
                    epoch: *epoch,
                    epochs: self.epochs,
                    train_loss: *train_loss,
                    train_accuracy: *train_accuracy,
                    test_loss: *test_loss,
                    test_accuracy: *test_accuracy,
                    samples_per_s,
                    seconds,
                }));
                self.write(&Event::Epoch {
                    epoch: *epoch,
                    step: *step,
                    train_loss: *train_loss,
                    train_accuracy: *train_accuracy,
                    test_loss: *test_loss,
                    test_accuracy: *test_accuracy,
                    lr: self.epoch.lr,
                    samples_per_s,
                    seconds,
                    test_seconds: None,
                })
            }
            RecordEvent::View { view, members, donor, was_behind, round } => {
                self.n_members = members.len();
                if self.epoch.pace().n_samples == 0 {
                    // Until they had agreed, nobody trained.
                    self.epoch.began = Instant::now();
                }
                let gone: Vec<PeerId> = self.peers.keys().copied().filter(|peer| !members.contains(peer)).collect();
                for peer in gone {
                    if let Some(bar) = self.peers.remove(&peer) {
                        bar.finish_and_clear();
                    }
                }
                let (peer, view, donor, was_behind, round) = (record.peer, *view, *donor, *was_behind, *round);
                self.write(&Event::View { peer, view, members, donor, was_behind, round })
            }
            RecordEvent::Round { .. } | RecordEvent::Finished { .. } => Ok(()),
        }
    }
}

impl EpochSoFar {
    fn pace(&self) -> Pace {
        Pace { n_samples: self.n_samples_all.saturating_sub(self.first_sample), took: self.began.elapsed() }
    }
}

impl Pace {
    fn samples_per_s(self) -> f64 {
        self.n_samples as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

/// What one peer is doing.
fn peer_text(progress: &Progress) -> String {
    let Progress { n_samples, times, .. } = progress;
    let Times { elapsed_s, compute_s, wait_s, sent_bytes, .. } = times;
    let share = |seconds: f64| (100.0 * seconds / elapsed_s.max(1e-9)).min(100.0);
    let doing = match progress.phase {
        Phase::Agreeing => "agreeing on whose parameters go on",
        Phase::Syncing => "bringing replicas together",
        Phase::Testing => "testing",
        Phase::Finished => "finished",
        Phase::Training | Phase::Exchanging => "",
    };
    let waits: Vec<String> = progress.waits_for.iter().take(3).map(|peer| peer.seat().to_string()).collect();
    let waits = if *n_samples == 0 && !waits.is_empty() {
        format!("waits for peer {}", waits.join(", "))
    } else {
        String::new()
    };
    format!(
        "{:<8} {:>7} samples/s  computes {:>3.0} %  waits {:>3.0} %  sends {:>10}/s  {doing}{waits}",
        progress.peer.to_string(),
        HumanCount((*n_samples as f64 / elapsed_s.max(1e-9)) as u64).to_string(),
        share(*compute_s),
        share(*wait_s),
        HumanBytes((*sent_bytes as f64 / elapsed_s.max(1e-9)) as u64).to_string(),
    )
}
