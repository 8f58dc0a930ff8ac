//! The display of a swarm: a bar for the whole, and a line for each peer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use nettorrent_engine::model::Score;
use nettorrent_swarm::record::{Event as RecordEvent, Record};
use nettorrent_swarm::{PeerId, Phase};

use super::messages::{PeerEvent, Progress};
use crate::events::{Event, EventLog};
use crate::progress::{EpochLine, clock, epoch_text};

/// More lines than this help nobody.
const MOST_LINES: usize = 16;
/// How often the whole is written to the events.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);

/// What is known of a swarm from what its peers tell, shown and written down.
pub(crate) struct Board {
    bars: MultiProgress,
    whole: ProgressBar,
    peers: BTreeMap<PeerId, ProgressBar>,
    quiet: bool,
    /// Whether comings and goings are only written down: where all processes are one command's, they are no news.
    hides_routine: bool,
    events: EventLog,
    epochs: u64,
    n_train: usize,
    began: Instant,
    written: Instant,
    epoch: EpochSoFar,
    /// The last epoch that was told.
    told: u64,
    speed: nettorrent_net::speed::Speed,
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
    /// How long the one before took.
    last: Duration,
}

impl Board {
    /// A board for a job of so many epochs; `quiet` if another program reads standard output.
    pub(crate) fn new(events: EventLog, epochs: u64, n_train: usize) -> Self {
        let quiet = events.is_printed();
        let bars = MultiProgress::new();
        let whole = if quiet { ProgressBar::hidden() } else { bars.add(ProgressBar::new(n_train as u64)) };
        let style = ProgressStyle::with_template("{prefix} {bar:24.cyan/dim} {msg}");
        whole.set_style(style.expect("the template is right").progress_chars("━╸─"));
        let epoch = EpochSoFar {
            number: 0,
            score: Score::default(),
            began: Instant::now(),
            first_sample: 0,
            n_samples_all: 0,
            step: 0,
            lr: 0.0,
            last: Duration::ZERO,
        };
        let (began, written) = (Instant::now(), Instant::now());
        let (peers, speed) = (BTreeMap::new(), nettorrent_net::speed::Speed::default());
        Self {
            bars,
            whole,
            peers,
            quiet,
            hides_routine: false,
            events,
            epochs,
            n_train,
            began,
            written,
            epoch,
            told: 0,
            speed,
        }
    }

    /// The same board, which does not show who comes and goes as expected.
    pub(crate) fn hiding_routine(self) -> Self {
        Self { hides_routine: true, ..self }
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
                if !(*is_routine && self.hides_routine) {
                    self.say(&format!("{peer}: {text}"));
                }
                self.write(&Event::Note { peer: *peer, text })
            }
            PeerEvent::Checkpoint { path, epoch, step } => {
                self.write(&Event::Checkpoint { path, epoch: *epoch, step: *step })
            }
        }
    }

    fn on_progress(&mut self, progress: &Progress) -> anyhow::Result<()> {
        self.show_peer(progress);
        if progress.epoch > self.epoch.number {
            self.begin_epoch(progress.epoch);
        }
        let epoch = &mut self.epoch;
        if progress.n_samples_all > epoch.n_samples_all {
            let new = progress.n_samples_all - epoch.n_samples_all;
            self.speed.count(self.began.elapsed(), new);
            epoch.n_samples_all = progress.n_samples_all;
        }
        epoch.step = epoch.step.max(progress.step);
        epoch.score += Score {
            loss_sum: progress.loss_sum,
            n_correct: progress.n_correct as usize,
            n: progress.n_samples as usize,
        };
        if progress.n_samples > 0 {
            epoch.lr = progress.lr;
        }
        self.show_whole();
        if self.written.elapsed() < EVENT_INTERVAL {
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

    fn begin_epoch(&mut self, number: u64) {
        let EpochSoFar { n_samples_all, step, lr, began, .. } = self.epoch;
        let (score, last) = (Score::default(), began.elapsed());
        let (began, first_sample) = (Instant::now(), n_samples_all);
        self.epoch = EpochSoFar { number, score, began, first_sample, n_samples_all, step, lr, last };
    }

    fn show_whole(&self) {
        let EpochSoFar { number, score, first_sample, n_samples_all, .. } = self.epoch;
        let samples_per_s = self.speed.per_second(self.began.elapsed());
        let done = n_samples_all.saturating_sub(first_sample).min(self.n_train as u64);
        let left = (self.epochs.saturating_sub(number) * self.n_train as u64).saturating_sub(done);
        self.whole.set_position(done);
        self.whole.set_prefix(format!("epoch {}/{}", (number + 1).min(self.epochs), self.epochs));
        self.whole.set_message(format!(
            "loss {:.4}  accuracy {:.2} %  {} samples/s  {} left",
            score.loss(),
            100.0 * score.accuracy(),
            HumanCount(samples_per_s as u64),
            clock(Duration::from_secs_f64((left as f64 / samples_per_s.max(1e-9)).min(1e9))),
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
        let bars = &self.bars;
        let bar = self.peers.entry(progress.peer).or_insert_with(|| {
            let bar = bars.add(ProgressBar::new_spinner());
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
                let samples_per_s = self.speed.per_second(self.began.elapsed());
                // Peers may be in the next epoch already when the last one's test is known.
                let is_over = self.epoch.number >= *epoch;
                let seconds = if is_over { self.epoch.last } else { self.epoch.began.elapsed() }.as_secs_f64();
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

/// What one peer is doing.
fn peer_text(progress: &Progress) -> String {
    let Progress { elapsed_s, n_samples, compute_s, wait_s, sent_bytes, .. } = progress;
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
