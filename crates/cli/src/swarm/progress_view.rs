//! The display of a swarm: a bar for the whole, and a line for each peer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nettorrent_engine::measure::Measure;
use nettorrent_history::{Differs, Epoch, Event, Line, Note, PeerProgress, Progress};
use nettorrent_session::Training;
use nettorrent_session::event_log::Fate;
use nettorrent_session::live_log::Topology;
use nettorrent_swarm::PeerId;

use super::peer_line::peer_text;
use crate::output::{Unprinted, complain, print_event, say_line};
use crate::progress::{clock, epoch_name, epoch_text, evaluation_text, speed_text};

/// More lines than this help nobody.
const MOST_LINES: usize = 16;
/// What a peer did in a shorter time says little about how fast it is.
const LEAST_INTERVAL_S: f64 = 0.1;
/// What several peers notice within this time is said once.
const ECHO: Duration = Duration::from_secs(5);

/// Shows a run's events to people, or prints them for other programs.
pub(crate) struct ProgressView {
    bars: MultiProgress,
    whole: ProgressBar,
    peers: BTreeMap<PeerId, ProgressBar>,
    output: Output,
    topology: Topology,
    /// Losses that were said, by view: all others tell of each.
    told: BTreeSet<(PeerId, u32)>,
    /// What was said of late, and when.
    said: Vec<(Instant, String)>,
    epochs: u64,
    n_train: usize,
    measure: Measure,
}

/// What a view has to know of a training.
pub(crate) struct Shown {
    pub epochs: u64,
    pub n_train: usize,
    pub measure: Measure,
}

impl From<&Training> for Shown {
    fn from(training: &Training) -> Self {
        let (job, task) = (&training.job, &training.task);
        Self { epochs: job.epochs, n_train: task.labels().len(), measure: task.measure() }
    }
}

/// What is on standard output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Output {
    /// Words and bars.
    Words,
    /// Events as lines of JSON.
    Json,
    /// Events were, until they could not be written.
    Unwritable,
    /// Events were, until nobody read them any more.
    Closed,
}

impl ProgressView {
    /// The view of a training; with `json` for another program.
    pub(crate) fn new(&Shown { epochs, n_train, measure }: &Shown, topology: Topology, json: bool) -> Self {
        let bars = MultiProgress::new();
        let whole = if json { ProgressBar::hidden() } else { bars.add(ProgressBar::new(n_train as u64)) };
        let style = ProgressStyle::with_template("{prefix} {bar:24.cyan/dim} {msg}");
        whole.set_style(style.expect("the template is right").progress_chars("━╸─"));
        let output = if json { Output::Json } else { Output::Words };
        Self {
            bars,
            whole,
            peers: BTreeMap::new(),
            output,
            topology,
            told: BTreeSet::new(),
            said: Vec::new(),
            epochs,
            n_train,
            measure,
        }
    }

    pub(crate) fn topology(&self) -> Topology {
        self.topology
    }

    /// Prints a line above the bars.
    pub(crate) fn say(&self, line: &str) {
        if self.output == Output::Words {
            self.bars.suspend(|| say_line(line));
        }
    }

    /// Tells people something even when another program reads standard output.
    pub(crate) fn tell(&self, line: &str) {
        if self.output == Output::Words { self.say(line) } else { complain(line) }
    }

    /// Takes the bars away.
    pub(crate) fn finish(&mut self) {
        self.peers.values().for_each(ProgressBar::finish_and_clear);
        self.whole.finish_and_clear();
    }

    /// Shows what happens.
    pub(crate) fn show(&mut self, line: &Line, fate: Fate) {
        match self.output {
            Output::Words => self.show_event(&line.event),
            Output::Json | Output::Unwritable if fate == Fate::Written => {
                if self.output == Output::Json {
                    self.print(line);
                }
                // People need to know these even when another program reads standard output.
                match &line.event {
                    Event::LeftOut(left_out) => self.tell(&left_out.to_string()),
                    Event::Rollback(rollback) => self.tell(&rollback.to_string()),
                    Event::Differs(differs) => self.tell(&differs.to_string()),
                    Event::CheckpointFailed(failed) => self.tell(&failed.to_string()),
                    Event::LogFailed(failed) => self.tell(&failed.to_string()),
                    _ => {}
                }
            }
            Output::Json | Output::Unwritable | Output::Closed => {}
        }
    }

    fn print(&mut self, line: &Line) {
        // Who read the events may have seen enough; the run goes on, and its folder holds them all.
        match print_event(&line.to_json()) {
            Ok(()) => {}
            Err(Unprinted::Unread) => self.output = Output::Closed,
            Err(Unprinted::Unwritten) => self.output = Output::Unwritable,
        }
    }

    fn show_event(&mut self, event: &Event) {
        match event {
            Event::PeerProgress(progress)
                if self.topology != Topology::Alone && progress.times.elapsed_s >= LEAST_INTERVAL_S =>
            {
                self.show_peer(progress);
            }
            Event::Progress(progress) => self.show_whole(progress),
            Event::Epoch(epoch) => {
                let Epoch { epoch: number, .. } = *epoch;
                self.whole.set_prefix(epoch_name((number + 1).min(self.epochs), self.epochs));
                self.say(&epoch_text(epoch, self.epochs, self.measure));
            }
            Event::Evaluation(evaluation) => self.say(&evaluation_text(evaluation, self.epochs, self.measure)),
            Event::View(view) => self.show_members(&view.members),
            Event::Note(note) => self.show_note(note),
            Event::Dropped(dropped) => self.say(&dropped.to_string()),
            Event::LeftOut(left_out) => self.say(&left_out.to_string()),
            Event::StateReceived(received) => self.say(&received.to_string()),
            Event::Joined(joined) => self.say(&joined.to_string()),
            Event::Loss(loss) => {
                if self.told.insert((loss.lost, loss.view)) {
                    self.say(&loss.to_string());
                }
            }
            Event::Differs(differs) => self.show_difference(differs),
            Event::Rollback(rollback) => self.say(&rollback.to_string()),
            Event::CheckpointFailed(failed) => self.say(&failed.to_string()),
            Event::LogFailed(failed) => self.say(&failed.to_string()),
            Event::PeerProgress(_)
            | Event::Start(_)
            | Event::Times(_)
            | Event::Resources(_)
            | Event::Replicas(_)
            | Event::Peer(_)
            | Event::Checkpoint(_)
            | Event::Stop(_) => {}
        }
    }

    /// Where all processes are one command's, it is no news that they come and go, nor what several of them noticed.
    fn show_note(&mut self, Note { peer, text, is_routine }: &Note) {
        if let Topology::OneOfMany = self.topology {
            return self.say(text);
        }
        self.said.retain(|(when, _)| when.elapsed() < ECHO);
        if !is_routine && self.said.iter().all(|(_, said)| said != text) {
            self.say(&format!("{peer}: {text}"));
            self.said.push((Instant::now(), text.to_owned()));
        }
    }

    /// The first member tells of it, and who differs.
    fn show_difference(&mut self, differs: &Differs) {
        let text = differs.to_string();
        self.said.retain(|(when, _)| when.elapsed() < ECHO);
        if self.said.iter().all(|(_, said)| *said != text) {
            self.say(&text);
            self.said.push((Instant::now(), text));
        }
    }

    fn show_whole(&self, progress: &Progress) {
        let Progress { epoch, n_samples, loss, accuracy, samples_per_s, .. } = *progress;
        let done = n_samples.min(self.n_train as u64);
        let left = ((self.epochs + 1).saturating_sub(epoch) * self.n_train as u64).saturating_sub(done);
        self.whole.set_position(done);
        self.whole.set_prefix(epoch_name(epoch.min(self.epochs), self.epochs));
        if samples_per_s == 0.0 {
            return;
        }
        self.whole.set_message(format!(
            "{}  {}  {} left",
            self.measure.text(loss, accuracy),
            speed_text(samples_per_s, self.measure).trim_start(),
            clock(Duration::from_secs_f64((left as f64 / samples_per_s).min(1e9))),
        ));
    }

    fn show_peer(&mut self, progress: &PeerProgress) {
        let n_lines = self.peers.len();
        let peer = progress.times.peer;
        if !self.peers.contains_key(&peer) && n_lines >= MOST_LINES {
            return;
        }
        // Below the whole, in the order of their join indices.
        let (bars, at) = (&self.bars, 1 + self.peers.range(..peer).count());
        let bar = self.peers.entry(peer).or_insert_with(|| {
            let bar = bars.insert(at, ProgressBar::new_spinner());
            bar.set_style(ProgressStyle::with_template("  {msg}").expect("the template is right"));
            bar
        });
        bar.set_message(peer_text(progress));
    }

    /// Takes the lines of those away who are gone.
    fn show_members(&mut self, members: &[PeerId]) {
        let gone: Vec<PeerId> = self.peers.keys().copied().filter(|peer| !members.contains(peer)).collect();
        for peer in gone {
            if let Some(bar) = self.peers.remove(&peer) {
                bar.finish_and_clear();
            }
        }
    }
}
