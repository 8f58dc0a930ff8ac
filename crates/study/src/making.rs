//! One run: trained, measured, and its model tested.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nettorrent_swarm::PeerId;

use crate::folder::StudyFolder;
use crate::measure::{Evaluation, measure};
use crate::plan::RunSpec;
use crate::process::{self, Ended, Ending, Wish};
use crate::remote::RemoteHosts;
use crate::results::{Measurement, Outcome};
use crate::runner_error::RunnerError;

/// What runs are made with.
pub(crate) struct Making<'a> {
    /// The program that trains here, and tests what was learnt.
    pub program: &'a Path,
    pub folder: &'a StudyFolder,
    /// Where peers are, if not on this machine.
    pub hosts: Option<&'a RemoteHosts>,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

struct Stopped;

/// How the training of a run ended.
enum Trained {
    /// As it should; which peer was at which host, if they were elsewhere.
    Done(Vec<(PeerId, String)>),
    Failed(String),
    Stopped,
}

impl Making<'_> {
    /// Makes one run; none if it was stopped.
    pub(crate) fn make(&self, run: &RunSpec) -> Result<Option<Outcome>, RunnerError> {
        let folder = self.folder.clear(run)?;
        let trained = match self.hosts {
            Some(hosts) => self.train_at(hosts, run, &folder)?,
            None => self.train_here(run, &folder)?,
        };
        let places = match trained {
            Trained::Done(places) => places,
            Trained::Failed(problem) => return Ok(Some(Outcome::Failed(problem))),
            Trained::Stopped => return Ok(None),
        };
        let mut measurement = match measure(&folder) {
            Ok(measurement) => measurement,
            Err(error) => return Ok(Some(Outcome::Failed(error.to_string()))),
        };
        measurement.add_hosts(&places);
        let mut command = Command::new(self.program);
        command.arg("eval").arg(&folder).arg("--json");
        let Ok(ended) = self.process(&mut command)? else { return Ok(None) };
        let tested = self.problem(&ended).map_or_else(|| read_evaluation(&ended.stdout), Err);
        Ok(Some(
            conclude(tested, &mut measurement).map_or_else(Outcome::Failed, |()| Outcome::Done(Box::new(measurement))),
        ))
    }

    fn train_here(&self, run: &RunSpec, folder: &Path) -> Result<Trained, RunnerError> {
        let mut command = Command::new(self.program);
        command.arg(run.command).arg(self.folder.job()).arg("--run").arg(folder).args(&run.arguments);
        let Ok(ended) = self.process(&mut command)? else { return Ok(Trained::Stopped) };
        Ok(self.problem(&ended).map_or(Trained::Done(Vec::new()), Trained::Failed))
    }

    /// A host that cannot be reached is no result of this run: the study stops, and the run is still to be made. A peer
    /// that fails is one: the others alone would be another run.
    fn train_at(&self, hosts: &RemoteHosts, run: &RunSpec, folder: &Path) -> Result<Trained, RunnerError> {
        let began = Instant::now();
        let is_late = || self.timeout.is_some_and(|timeout| began.elapsed() > timeout);
        let outcome = hosts.train(run, folder, &|| (self.is_stopped)() || is_late())?;
        if (self.is_stopped)() {
            return Ok(Trained::Stopped);
        }
        if let (true, Some(timeout)) = (is_late(), self.timeout) {
            return Ok(Trained::Failed(too_long(timeout)));
        }
        Ok(match outcome.failed.first() {
            Some((host, said)) => Trained::Failed(format!("{host}: {}", said.trim_start_matches("error: "))),
            None => Trained::Done(outcome.peers),
        })
    }

    /// A process to its end, or the news that it was stopped.
    fn process(&self, command: &mut Command) -> Result<Result<Ended, Stopped>, RunnerError> {
        let mut look = || if (self.is_stopped)() { Wish::Stop } else { Wish::GoOn };
        let ended = process::run(command, self.timeout, &mut look);
        let ended = ended.map_err(|source| RunnerError::Start { program: PathBuf::from(self.program), source })?;
        // It may have come to its end just then, as if it had failed.
        Ok(if matches!(ended.ending, Ending::Stopped) || (self.is_stopped)() { Err(Stopped) } else { Ok(ended) })
    }

    fn problem(&self, ended: &Ended) -> Option<String> {
        match (&ended.ending, self.timeout) {
            (Ending::TimedOut, Some(timeout)) => Some(too_long(timeout)),
            _ => ended.problem(),
        }
    }
}

fn too_long(timeout: Duration) -> String {
    format!("took longer than {} s", timeout.as_secs_f64())
}

fn read_evaluation(text: &str) -> Result<Evaluation, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn conclude(tested: Result<Evaluation, String>, measurement: &mut Measurement) -> Result<(), String> {
    let evaluation = tested.map_err(|problem| format!("the trained model could not be evaluated: {problem}"))?;
    measurement.add_evaluation(evaluation);
    Ok(())
}
