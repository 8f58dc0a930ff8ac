//! A run read back: what its events say, put together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use nettorrent_engine::measure::Measure;
use nettorrent_swarm::PeerId;

use crate::event::{
    Checkpoint, CheckpointFailed, Differs, Dropped, Epoch, Evaluation, Event, Joined, LeftOut, Line, LogFailed, Loss,
    Note, PeerAddress, Progress, Replicas, Rollback, Start, StateReceived, Stop, ViewChange,
};
use crate::log::HistoryError;
use crate::peer_work::{Resources, Times};

/// What happened in a run. All times are seconds of training since the very beginning: the time between a stop and a
/// resumption does not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// How it began, or how it went on the last time.
    pub start: Option<Start>,
    /// How each epoch went, once a second.
    pub progress: Vec<(f64, Progress)>,
    /// Epochs that are done.
    pub epochs: Vec<(f64, Epoch)>,
    /// Tests within epochs.
    pub evaluations: Vec<(f64, Evaluation)>,
    /// How far replicas were apart.
    pub replicas: Vec<(f64, Replicas)>,
    /// What is known of each peer.
    pub peers: BTreeMap<PeerId, PeerHistory>,
    /// Changes of the view, as each member saw them.
    pub views: Vec<(f64, ViewChange)>,
    /// What peers told.
    pub notes: Vec<(f64, Note)>,
    /// Samples that the split gave to nobody, for each number of peers that there was.
    pub dropped: Vec<(f64, Dropped)>,
    /// Training samples that were left out.
    pub left_out: Vec<(f64, LeftOut)>,
    /// States that peers which were behind have got from others, and when.
    pub states_received: Vec<(f64, StateReceived)>,
    /// Peers that joined, and when each had trained its first round.
    pub joined: Vec<(f64, Joined)>,
    /// Members that were lost, as each of the others saw it.
    pub losses: Vec<(f64, Loss)>,
    /// Peers whose parameters were not as they should be.
    pub differences: Vec<(f64, Differs)>,
    /// How often training diverged and went back.
    pub rollbacks: Vec<(f64, Rollback)>,
    /// Checkpoints that were written.
    pub checkpoints: Vec<(f64, Checkpoint)>,
    /// Those that could not be.
    pub failed_checkpoints: Vec<(f64, CheckpointFailed)>,
    /// Events that could not be written.
    pub log_failures: Vec<(f64, LogFailed)>,
    /// How many lines of the file are no events: they are damaged, and left out.
    pub n_damaged: usize,
    /// How it ended, unless it goes on.
    pub stop: Option<(f64, Stop)>,
    /// How much is added to the times of what follows, because the run was stopped and went on.
    offset_s: f64,
    /// Peers from before that who have not told anything since.
    former: BTreeSet<PeerId>,
    /// The time of the last event.
    pub last_s: f64,
}

/// What is known of one peer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PeerHistory {
    /// Where it can be reached.
    pub address: Option<PeerAddress>,
    /// Where its time went.
    pub times: Vec<(f64, Times)>,
    /// What it took of its machine.
    pub resources: Vec<(f64, Resources)>,
}

impl History {
    /// Reads a run's file.
    pub fn read(path: &Path) -> Result<Self, HistoryError> {
        let mut follower = Follower::new(path);
        follower.catch_up()?;
        Ok(follower.history)
    }

    /// What people judge the model by.
    pub fn measure(&self) -> Measure {
        self.start.as_ref().map_or_else(Measure::default, |start| start.measure)
    }

    /// Takes one more event in.
    pub fn add(&mut self, line: Line) {
        if let Event::Start(_) = line.event {
            self.offset_s = self.last_s;
        }
        let at_s = self.offset_s + line.at_s;
        self.last_s = self.last_s.max(at_s);
        match line.event {
            Event::Start(start) => {
                self.forget_after(start.epoch, start.step);
                self.former = self.peers.keys().copied().collect();
                self.start = Some(start);
                self.stop = None;
            }
            Event::Progress(progress) => self.progress.push((at_s, progress)),
            Event::PeerProgress(_) => {}
            Event::Epoch(epoch) => self.epochs.push((at_s, epoch)),
            Event::Evaluation(evaluation) => self.evaluations.push((at_s, evaluation)),
            Event::Times(times) => self.peer(times.peer).times.push((at_s, times)),
            Event::Resources(resources) => self.peer(resources.peer).resources.push((at_s, resources)),
            Event::Replicas(replicas) => self.replicas.push((at_s, replicas)),
            Event::Peer(address) => self.peer(address.peer).address = Some(address),
            Event::Note(note) => self.notes.push((at_s, note)),
            Event::View(view) => self.views.push((at_s, view)),
            Event::Dropped(dropped) => self.dropped.push((at_s, dropped)),
            Event::LeftOut(left_out) => self.left_out.push((at_s, left_out)),
            Event::StateReceived(received) => self.states_received.push((at_s, received)),
            Event::Joined(joined) => self.joined.push((at_s, joined)),
            Event::Loss(loss) => self.losses.push((at_s, loss)),
            Event::Differs(differs) => self.differences.push((at_s, differs)),
            Event::Rollback(rollback) => {
                self.forget_after(rollback.epoch, rollback.step);
                self.rollbacks.push((at_s, rollback));
            }
            Event::Checkpoint(checkpoint) => self.checkpoints.push((at_s, checkpoint)),
            Event::CheckpointFailed(failed) => self.failed_checkpoints.push((at_s, failed)),
            Event::LogFailed(failed) => self.log_failures.push((at_s, failed)),
            Event::Stop(stop) => self.stop = Some((at_s, stop)),
        }
    }

    /// All tests in the order of training: those at the ends of epochs and those within.
    pub fn tests(&self) -> Vec<(f64, Evaluation)> {
        let of_epoch = |(at_s, epoch): &(f64, Epoch)| (*at_s, Evaluation::from(epoch));
        let mut tests: Vec<(f64, Evaluation)> = self.epochs.iter().map(of_epoch).collect();
        tests.extend(self.evaluations.iter().cloned());
        tests.sort_by(|(_, a), (_, b)| a.epoch.total_cmp(&b.epoch));
        tests
    }

    /// What was trained after so many epochs, or steps, is trained again.
    fn forget_after(&mut self, epoch: u64, step: u64) {
        self.epochs.retain(|(_, done)| done.epoch <= epoch);
        self.evaluations.retain(|(_, done)| done.step <= step);
        self.replicas.retain(|(_, replicas)| replicas.epoch <= epoch);
    }

    /// What is known of a peer. Of a run that went on, the peers have new names, but who has a join index is who had it before.
    fn peer(&mut self, peer: PeerId) -> &mut PeerHistory {
        let known = if self.peers.contains_key(&peer) {
            None
        } else {
            let former = self.former.iter().find(|former| former.join_index() == peer.join_index()).copied();
            former.and_then(|former| {
                self.former.remove(&former);
                self.peers.remove(&former)
            })
        };
        self.peers.entry(peer).or_insert_with(|| known.unwrap_or_default())
    }
}

/// Reads a run while it goes on.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    /// What is known so far.
    pub history: History,
    n_bytes: u64,
}

impl Follower {
    /// Follows the run that writes this file, from its beginning.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), history: History::default(), n_bytes: 0 }
    }

    /// Reads what is new; returns how many lines that were. Those that are damaged are left out and counted.
    pub fn catch_up(&mut self) -> Result<usize, HistoryError> {
        let failed = |source| HistoryError::Read { path: self.path.clone(), source };
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(self.n_bytes)).map_err(failed)?;
        let mut reader = BufReader::new(file);
        let mut n_lines = 0;
        let mut text = Vec::new();
        loop {
            text.clear();
            let n = reader.read_until(b'\n', &mut text).map_err(failed)?;
            // A line without its end is still being written.
            if text.last() != Some(&b'\n') {
                return Ok(n_lines);
            }
            self.n_bytes += n as u64;
            n_lines += 1;
            match serde_json::from_slice(&text) {
                Ok(line) => self.history.add(line),
                Err(_) => self.history.n_damaged += 1,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::measure::Measure;
    use std::collections::BTreeMap;
    use std::io::Write;

    use super::{Follower, History};
    use nettorrent_swarm::PeerId;

    use crate::event::{
        BadSample, Dropped, Epoch, Evaluation, Event, LeftOut, Line, Progress, Reason, Rollback, Start, Stop,
    };
    use crate::log::EventLog;
    use crate::peer_work::Times;

    fn start(epoch: u64) -> Event {
        Event::Start(Start {
            run: "runs/a".into(),
            model: "mlp".into(),
            n_params: 10,
            n_train: 100,
            n_test: 10,
            measure: Measure::default(),
            threads: 1,
            seed: 1,
            strategy: None,
            n_peers: None,
            link: None,
            epochs: 3,
            epoch,
            step: 0,
            version: "0".into(),
        })
    }

    fn epoch(epoch: u64) -> Event {
        Event::Epoch(Epoch {
            epoch,
            step: epoch * 10,
            train_loss: 1.0,
            train_accuracy: 0.5,
            test_loss: 1.0,
            test_accuracy: 0.5,
            metrics: [("mean error".to_owned(), 0.25)].into(),
            lr: 0.1,
            samples_per_s: 50.0,
            seconds: 2.0,
            test_seconds: 0.5,
            sent_bytes: 0,
            peers: Vec::new(),
        })
    }

    fn stop(reason: Reason) -> Event {
        Event::Stop(Stop { reason, epoch: 2, step: 20, seconds: 5.0, peak_rss_bytes: None, is_guessing: false })
    }

    #[test]
    fn a_resumed_run_goes_on_in_time_and_forgets_what_it_trains_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut log = EventLog::append(&path).unwrap();
        let lines = [(0.0, start(0)), (2.5, epoch(1)), (5.0, epoch(2)), (5.5, stop(Reason::Interrupted))];
        for (at_s, event) in lines.into_iter().chain([(0.0, start(1)), (2.5, epoch(2))]) {
            log.write(&Line { at_s, event }).unwrap();
        }
        let history = History::read(&path).unwrap();
        assert_eq!(
            history.epochs.iter().map(|(at, epoch)| (*at, epoch.epoch)).collect::<Vec<_>>(),
            [(2.5, 1), (8.0, 2)]
        );
        assert_eq!(history.stop, None);
        log.write(&Line { at_s: 3.0, event: stop(Reason::Failed("no".into())) }).unwrap();
        let (at_s, ending) = History::read(&path).unwrap().stop.unwrap();
        assert_eq!((at_s, ending.reason), (8.5, Reason::Failed("no".into())));
    }

    fn evaluation(epoch: f64) -> Event {
        let step = (epoch * 10.0) as u64;
        Event::Evaluation(Evaluation {
            epoch,
            step,
            test_loss: 1.0,
            test_accuracy: 0.5,
            metrics: BTreeMap::new(),
            test_seconds: 0.5,
            sent_bytes: 0,
        })
    }

    #[test]
    fn where_nothing_can_be_right_no_accuracy_is_written() {
        for line in [epoch(1), evaluation(0.5)].map(|event| Line { at_s: 1.0, event }.to_json()) {
            let none = line.replace("_accuracy\":0.5", "_accuracy\":null");
            let read: Line = serde_json::from_str(&none).unwrap();
            let written = read.to_json();
            assert!(line.contains("accuracy") && !written.contains("accuracy"), "{written}");
            let again: Line = serde_json::from_str(&written).unwrap();
            assert_eq!(again.to_json(), written);
        }
    }

    #[test]
    fn metrics_of_a_tasks_own_are_written_by_name_and_may_be_missing() {
        let text = Line { at_s: 1.0, event: epoch(1) }.to_json();
        assert!(text.contains(r#""metrics":{"mean error":0.25}"#), "{text}");
        let before = text.replace(r#""metrics":{"mean error":0.25},"#, "");
        for (text, n_metrics) in [(text, 1), (before, 0)] {
            let line: Line = serde_json::from_str(&text).unwrap();
            assert!(matches!(&line.event, Event::Epoch(epoch) if epoch.metrics.len() == n_metrics));
            let mut history = History::default();
            history.add(line);
            assert_eq!(history.tests()[0].1.metrics.len(), n_metrics);
        }
        assert!(!Line { at_s: 1.0, event: evaluation(0.5) }.to_json().contains("metrics"));
    }

    #[test]
    fn tests_within_epochs_come_in_the_order_of_training() {
        let mut history = History::default();
        let events = [start(0), evaluation(0.5), epoch(1), evaluation(1.5), epoch(2), evaluation(2.5)];
        for (at_s, event) in events.into_iter().enumerate() {
            history.add(Line { at_s: at_s as f64, event });
        }
        let epochs = |history: &History| history.tests().iter().map(|(_, test)| test.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(&history), [0.5, 1.0, 1.5, 2.0, 2.5]);
        history.add(Line { at_s: 6.0, event: Event::Rollback(rollback(1, true)) });
        assert_eq!(epochs(&history), [0.5, 1.0]);
    }

    fn rollback(epoch: u64, is_rate_halved: bool) -> Rollback {
        let why = "the loss became NaN".to_owned();
        Rollback { why, from_step: 25, epoch, step: 10 * epoch, is_rate_halved, lr_factor: 0.5 }
    }

    #[test]
    fn a_run_that_goes_back_forgets_what_it_trains_again() {
        let mut history = History::default();
        for event in [start(0), epoch(1), epoch(2), Event::Rollback(rollback(1, true)), epoch(2)] {
            history.add(Line { at_s: 1.0, event });
        }
        assert_eq!(history.epochs.iter().map(|(_, epoch)| epoch.epoch).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(history.rollbacks, [(1.0, rollback(1, true))]);
    }

    #[test]
    fn what_nobody_trains_is_told_in_words() {
        let dropped = Dropped { split: "equal".to_owned(), n_peers: 8, n_trained: 3760, n_dropped: 63 };
        let text = "An epoch trains 3,760 of 3,823 samples: `equal` drops 63; `equal-spread` trains all.";
        assert_eq!(dropped.to_string(), text);
    }

    #[test]
    fn what_went_wrong_is_told_in_words() {
        let diverged = "Training diverged at step 25: the loss became NaN. It goes back to step 10 and on with";
        assert_eq!(rollback(1, true).to_string(), format!("{diverged} half the learning rate (0.5 of the job's)."));
        assert_eq!(rollback(1, false).to_string(), format!("{diverged}out the samples that are to blame."));
        let sample = |index| BadSample { index, origin: (index == 7).then(|| "t.csv, line 9".to_owned()) };
        let text = |indices: &[usize]| {
            LeftOut { samples: indices.iter().map(|&index| sample(index)).collect(), step: 3 }.to_string()
        };
        let one = "Left out 1 training sample without a finite loss and gradient: sample 7 (t.csv, line 9)";
        assert_eq!(text(&[7]), one);
        assert!(text(&[1, 2, 3, 4, 5, 6, 7]).ends_with("sample 4; sample 5; and 2 more"), "{}", text(&[1, 2]));
    }

    #[test]
    fn who_has_a_join_index_in_a_resumed_run_is_who_had_it() {
        let times = |id: PeerId| Event::Times(Times { elapsed_s: 1.0, ..Times::of(id) });
        let mut history = History::default();
        let (first, second) = (|join_index| PeerId::new(join_index, 7), |join_index| PeerId::new(join_index, 8));
        let before = [start(0), times(first(0)), times(first(1))];
        let after = [start(0), times(second(1)), times(second(1)), times(second(2))];
        for event in before.into_iter().chain(after) {
            history.add(Line { at_s: 1.0, event });
        }
        let known: Vec<(PeerId, usize)> = history.peers.iter().map(|(id, peer)| (*id, peer.times.len())).collect();
        assert_eq!(known, [(first(0), 1), (second(1), 3), (second(2), 1)]);
    }

    #[test]
    fn a_loss_that_is_no_number_can_be_read_again() {
        for test_loss in [f64::NAN, f64::INFINITY] {
            let Event::Epoch(epoch) = epoch(1) else { panic!("an epoch") };
            let line = Line { at_s: 1.0, event: Event::Epoch(Epoch { test_loss, ..epoch }) };
            let text = serde_json::to_string(&line).unwrap();
            let Line { event: Event::Epoch(read), .. } = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
            assert!(read.test_loss.is_nan(), "{text}");
        }
    }

    #[test]
    fn half_a_line_waits_for_its_other_half_and_a_damaged_one_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let mut file = std::fs::File::create(&path).unwrap();
        let progress = Progress {
            epoch: 1,
            step: 2,
            n_samples: 7,
            loss: 0.5,
            accuracy: 0.5,
            lr: 0.1,
            samples_per_s: 9.0,
            seconds: 1.0,
        };
        let line = serde_json::to_string(&Line { at_s: 1.0, event: Event::Progress(progress) }).unwrap();
        let (first, rest) = line.split_at(20);
        let mut follower = Follower::new(&path);
        file.write_all(first.as_bytes()).unwrap();
        assert_eq!(follower.catch_up().unwrap(), 0);
        writeln!(file, "{rest}").unwrap();
        assert_eq!(follower.catch_up().unwrap(), 1);
        // A line that is glued to half of another, and bytes that are no text.
        file.write_all(b"{\"at_s\":1.0,\"ev").unwrap();
        writeln!(file, "{line}").unwrap();
        file.write_all(b"\xff\x00\n").unwrap();
        writeln!(file, "{line}").unwrap();
        assert_eq!(follower.catch_up().unwrap(), 3);
        assert_eq!((follower.history.progress.len(), follower.history.n_damaged), (2, 2));
    }
}
