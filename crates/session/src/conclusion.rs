//! How a run ends: concluded from what its peers told and from what is on the disk.

use std::path::PathBuf;
use std::time::Duration;

use nettorrent_engine::checkpoint::{self, CheckpointError};
use nettorrent_history::Reason;
use nettorrent_swarm::Place;

use crate::error::SessionError;
use crate::live_log::{End, LiveLog, Topology};
use crate::peer_event::{Ending, PeerEvent};
use crate::run_folder::RunFolder;

/// What came of a run.
pub struct Outcome {
    /// How it ended.
    pub ending: Ending,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// Whether nobody else was there at the end.
    pub was_alone: bool,
    /// Whether a model that guesses would have done as well in the last test.
    pub is_guessing: bool,
    /// The newest checkpoint, if one was written.
    pub checkpoint: Option<PathBuf>,
    /// Whether all that was learnt is in it.
    pub is_kept: bool,
    /// How long it took.
    pub took: Duration,
}

/// How far a run has come, and how its peers ended.
pub(crate) struct Conclusion {
    run: RunFolder,
    /// Whether the last checkpoint is to be in the run's folder, and not only in another peer's.
    keeps: bool,
    /// How far the best and most advanced is that ended; before that, the beginning.
    reached: Reached,
    peak_rss_bytes: Option<u64>,
    checkpoint: Option<PathBuf>,
    /// Why the last checkpoint that was tried is not on the disk, if it is not.
    write_problem: Option<String>,
    endings: Vec<Ending>,
    /// Why peers ended that did not say how.
    problems: Vec<SessionError>,
    /// Why all were stopped.
    stopped_by: Option<SessionError>,
}

/// How far a peer is, in the order of what counts: a peer that is told to leave a moment later than the one that writes may be a step
/// ahead of it, and that step is nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Reached {
    is_finished: bool,
    is_writer: bool,
    epoch: u64,
    step: u64,
    last_epoch: u64,
}

impl Conclusion {
    /// Of a run that begins at this place.
    pub(crate) fn new(run: RunFolder, topology: Topology, start: &Place) -> Self {
        Self {
            run,
            keeps: topology != Topology::OneOfMany,
            reached: Reached {
                is_finished: false,
                is_writer: false,
                epoch: start.ledger.epoch,
                step: start.step,
                last_epoch: 0,
            },
            peak_rss_bytes: None,
            checkpoint: None,
            write_problem: None,
            endings: Vec::new(),
            problems: Vec::new(),
            stopped_by: None,
        }
    }

    /// Takes in what a peer tells.
    pub(crate) fn on_event(&mut self, event: &PeerEvent) {
        match event {
            PeerEvent::Ended { ending, epoch, last_epoch, step, is_writer, peak_rss_bytes, .. } => {
                self.endings.push(ending.clone());
                let (is_finished, is_writer, last_epoch) = (*ending == Ending::Finished, *is_writer, *last_epoch);
                let reached = Reached { is_finished, is_writer, epoch: *epoch, step: *step, last_epoch };
                self.reached = self.reached.max(reached);
                self.keeps |= is_writer;
                self.peak_rss_bytes = self.peak_rss_bytes.max(*peak_rss_bytes);
            }
            PeerEvent::Checkpoint { path, .. } => {
                (self.checkpoint, self.write_problem) = (Some(path.clone()), None);
            }
            PeerEvent::CheckpointFailed { problem, .. } => self.write_problem = Some(problem.clone()),
            _ => {}
        }
    }

    /// Takes in why a peer is gone that did not say how it ended.
    pub(crate) fn on_problem(&mut self, problem: SessionError) {
        self.problems.push(problem);
    }

    /// Whatever peers told: all were stopped, for this reason.
    pub(crate) fn stop_by(&mut self, problem: SessionError) {
        self.stopped_by = Some(problem);
    }

    /// Writes the end of the run down, and returns it.
    pub(crate) fn conclude(&mut self, log: &mut LiveLog) -> Result<Outcome, SessionError> {
        let is_kept = self.verify();
        let result = self.ending(is_kept.as_ref().err());
        let reason = match &result {
            Ok(Ending::Finished) => Reason::Finished,
            Ok(Ending::Left) => Reason::Interrupted,
            Ok(Ending::Failed(problem)) => Reason::Failed(problem.clone()),
            Err(error) => Reason::Failed(error.to_string()),
        };
        let Reached { epoch, step, .. } = self.reached;
        log.stop(End { reason, epoch, step, peak_rss_bytes: self.peak_rss_bytes });
        let ending = result?;
        let is_guessing = ending == Ending::Finished && log.is_guessing();
        let (was_alone, is_kept, took) = (log.is_alone(), is_kept.is_ok(), log.elapsed());
        Ok(Outcome { ending, epoch, step, was_alone, is_guessing, checkpoint: self.checkpoint.take(), is_kept, took })
    }

    /// Whether what was reached is on the disk.
    fn verify(&self) -> Result<(), CheckpointError> {
        let path = self.run.checkpoint_path(self.reached.step);
        checkpoint::verify(&path)?;
        let (there, reached) = (checkpoint::progress(&path)?.epoch, self.reached.epoch);
        if there == reached {
            Ok(())
        } else {
            Err(CheckpointError::malformed(&path, format!("it is from epoch {there}, and epoch {reached} was reached")))
        }
    }

    /// How the whole ended: as the best of its peers did. But it is finished when its last epoch is on the disk, and not before; `unkept`
    /// says why what was reached is not there, if it is not.
    fn ending(&mut self, unkept: Option<&CheckpointError>) -> Result<Ending, SessionError> {
        if let Some(problem) = self.stopped_by.take() {
            return Err(problem);
        }
        let Reached { is_finished, epoch, step, last_epoch, .. } = self.reached;
        if is_finished && epoch < last_epoch {
            return Err(SessionError::Unfinished { epoch, last_epoch, newest: self.run.newest_text() });
        }
        if is_finished {
            let unkept = unkept.filter(|_| self.keeps);
            return unkept.map_or(Ok(Ending::Finished), |why| Err(self.not_kept("all epochs are trained".into(), why)));
        }
        if self.endings.contains(&Ending::Left) {
            // Who holds a part of the network has nothing to write.
            let unkept = unkept.filter(|_| self.write_problem.is_some());
            return unkept.map_or(Ok(Ending::Left), |why| Err(self.not_kept(format!("stopped at step {step}"), why)));
        }
        if let Some(failed) = self.endings.pop() {
            return Ok(failed);
        }
        let all_are_gone = || SessionError::Peers(format!("all peers are gone; {}", self.run.newest_text()));
        Err(self.problems.pop().unwrap_or_else(all_are_gone))
    }

    fn not_kept(&self, reached: String, unkept: &CheckpointError) -> SessionError {
        let why = if self.run.checkpoint_path(self.reached.step).exists() {
            unkept.to_string()
        } else {
            let why = self.write_problem.clone().or_else(|| self.problems.last().map(ToString::to_string));
            why.unwrap_or_else(|| "whoever was to write it is gone".into())
        };
        SessionError::NotKept { reached, why, newest: self.run.newest_text() }
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;
    use nettorrent_history::{History, Reason};
    use nettorrent_swarm::PeerId;

    use super::{Conclusion, Outcome};
    use crate::error::SessionError;
    use crate::live_log::{LiveLog, Topology};
    use crate::peer_event::{Ending, PeerEvent};
    use crate::run_folder::RunFolder;
    use crate::start_state::StartState;
    use crate::training::Training;

    /// Of a run of four epochs: a peer that is told to leave in the second.
    fn left_at(step: u64, is_writer: bool) -> PeerEvent {
        let (epoch, last_epoch, peak_rss_bytes) = (1, 4, None);
        PeerEvent::Ended {
            peer: PeerId(step),
            ending: Ending::Left,
            epoch,
            last_epoch,
            step,
            is_writer,
            peak_rss_bytes,
        }
    }

    /// Of a run of four epochs: a peer that ends after so many.
    fn ended(ending: Ending, epoch: u64) -> PeerEvent {
        let (last_epoch, step, is_writer, peak_rss_bytes) = (4, 10 * epoch, false, None);
        PeerEvent::Ended { peer: PeerId(epoch), ending, epoch, last_epoch, step, is_writer, peak_rss_bytes }
    }

    /// What is concluded when these are all that ended, and what is written down as the reason.
    fn conclude(topology: Topology, events: &[PeerEvent]) -> (Result<Outcome, SessionError>, Reason) {
        let folder = tempfile::tempdir().unwrap();
        let job = Job { model: "mlp:8".into(), epochs: 4, ..Job::default() };
        let training = Training::from_job(job, 2).unwrap();
        let run = RunFolder::create(Some(&folder.path().join("run")), &training.job, None).unwrap();
        let (written, start) = (run.open_events(false).unwrap(), StartState::fresh(&training));
        let mut log = LiveLog::start(written, &training, run.path(), topology, &start.point(), None);
        let mut conclusion = Conclusion::new(run.clone(), topology, start.place());
        events.iter().for_each(|event| conclusion.on_event(event));
        let outcome = conclusion.conclude(&mut log);
        let history = History::read(&run.path().join("events.jsonl")).unwrap();
        (outcome, history.stop.unwrap().1.reason)
    }

    #[test]
    fn a_run_whose_epochs_are_not_done_has_not_finished_whatever_its_peers_say() {
        for topology in [Topology::OneOfMany, Topology::Local(2)] {
            for events in [vec![ended(Ending::Finished, 0)], vec![ended(Ending::Left, 4), ended(Ending::Finished, 3)]] {
                let (outcome, reason) = conclude(topology, &events);
                let Err(error @ SessionError::Unfinished { last_epoch: 4, .. }) = outcome else {
                    panic!("{topology:?}: {events:?} is something else")
                };
                assert_eq!(reason, Reason::Failed(error.to_string()), "{topology:?}");
            }
        }
    }

    #[test]
    fn a_run_has_finished_if_one_of_its_peers_has_done_all_epochs() {
        let events = [ended(Ending::Failed("no memory".into()), 1), ended(Ending::Finished, 4), ended(Ending::Left, 2)];
        // This peer holds nothing that would have to be on its disk.
        let (outcome, reason) = conclude(Topology::OneOfMany, &events);
        let outcome = outcome.unwrap();
        assert_eq!((outcome.ending, outcome.epoch, reason), (Ending::Finished, 4, Reason::Finished));
    }

    #[test]
    fn whose_peers_are_all_gone_says_what_there_is_to_go_on_from() {
        let (outcome, reason) = conclude(Topology::Local(2), &[]);
        let error = outcome.err().expect("nobody finished").to_string();
        assert_eq!(error, "all peers are gone; there is no checkpoint");
        assert_eq!(reason, Reason::Failed(error));
    }

    #[test]
    fn a_run_that_is_left_has_come_as_far_as_whoever_wrote_its_checkpoint() {
        for events in [[left_at(10, true), left_at(11, false)], [left_at(11, false), left_at(10, true)]] {
            let outcome = conclude(Topology::Local(2), &events).0.unwrap();
            assert_eq!((outcome.ending, outcome.step), (Ending::Left, 10));
        }
        // If nobody wrote, it is told how far the most advanced was.
        let events = [left_at(10, false), left_at(11, false)];
        assert_eq!(conclude(Topology::Local(2), &events).0.unwrap().step, 11);
    }
}
