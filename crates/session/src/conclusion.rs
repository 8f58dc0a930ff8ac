//! How a run ends: concluded from what its peers told and from what is on the disk.

use std::path::PathBuf;
use std::time::Duration;

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
    /// How long it took.
    pub took: Duration,
}

/// How far a run has come, and how its peers ended.
pub(crate) struct Conclusion {
    run: RunFolder,
    topology: Topology,
    /// Epochs and steps of the most advanced that ended; before that, of the beginning.
    place: (u64, u64),
    peak_rss_bytes: Option<u64>,
    checkpoint: Option<PathBuf>,
    endings: Vec<Ending>,
    /// Why peers ended that did not say how.
    problems: Vec<SessionError>,
    /// Why all were stopped.
    stopped_by: Option<SessionError>,
}

impl Conclusion {
    /// Of a run that begins at this place.
    pub(crate) fn new(run: RunFolder, topology: Topology, start: &Place) -> Self {
        Self {
            run,
            topology,
            place: (start.ledger.epoch, start.step),
            peak_rss_bytes: None,
            checkpoint: None,
            endings: Vec::new(),
            problems: Vec::new(),
            stopped_by: None,
        }
    }

    /// Takes in what a peer tells.
    pub(crate) fn on_event(&mut self, event: &PeerEvent) {
        match event {
            PeerEvent::Ended { ending, epoch, step, peak_rss_bytes, .. } => {
                self.endings.push(ending.clone());
                self.place = self.place.max((*epoch, *step));
                self.peak_rss_bytes = self.peak_rss_bytes.max(*peak_rss_bytes);
            }
            PeerEvent::Checkpoint { path, .. } => self.checkpoint = Some(path.clone()),
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
        let result = self.ending();
        let reason = match &result {
            Ok(Ending::Finished) => Reason::Finished,
            Ok(Ending::Left) => Reason::Interrupted,
            Ok(Ending::Failed(problem)) => Reason::Failed(problem.clone()),
            Err(error) => Reason::Failed(error.to_string()),
        };
        let (epoch, step) = self.place;
        let told = log.stop(End { reason, epoch, step, peak_rss_bytes: self.peak_rss_bytes });
        // If the end cannot be written either, the error to tell is the one that came first.
        let ending = result?;
        told?;
        let is_guessing = ending == Ending::Finished && log.is_guessing();
        let (was_alone, checkpoint, took) = (log.is_alone(), self.checkpoint.take(), log.elapsed());
        Ok(Outcome { ending, epoch, step, was_alone, is_guessing, checkpoint, took })
    }

    /// How the whole ended: as the best of its peers did. It is finished when what was learnt is on the disk.
    fn ending(&mut self) -> Result<Ending, SessionError> {
        if let Some(problem) = self.stopped_by.take() {
            return Err(problem);
        }
        let is_any = |wanted: &Ending| self.endings.contains(wanted);
        if is_any(&Ending::Finished) {
            return if self.is_kept() { Ok(Ending::Finished) } else { Err(self.not_kept()) };
        }
        if is_any(&Ending::Left) {
            return Ok(Ending::Left);
        }
        if let Some(failed) = self.endings.pop() {
            return Ok(failed);
        }
        Err(self.problems.pop().unwrap_or_else(|| SessionError::Peers("all peers are gone".into())))
    }

    fn is_kept(&self) -> bool {
        self.topology == Topology::OneOfMany || self.run.checkpoint_path(self.place.1).exists()
    }

    fn not_kept(&self) -> SessionError {
        let why = self.problems.last().map(ToString::to_string);
        SessionError::NotKept(why.unwrap_or_else(|| "whoever was to write it is gone".into()))
    }
}
