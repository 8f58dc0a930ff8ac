//! One run: trained, measured, and its model tested.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::folder::StudyFolder;
use crate::measure::{Evaluation, measure};
use crate::plan::RunSpec;
use crate::process::{self, Ended, Ending, Wish};
use crate::results::{Measurement, Outcome};
use crate::runner_error::RunnerError;

/// What runs are made with.
pub(crate) struct Making<'a> {
    /// The program that trains.
    pub program: &'a Path,
    pub folder: &'a StudyFolder,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
}

struct Stopped;

impl Making<'_> {
    /// Makes one run; none if it was stopped.
    pub(crate) fn make(&self, run: &RunSpec) -> Result<Option<Outcome>, RunnerError> {
        let folder = self.folder.clear(run)?;
        let mut command = Command::new(self.program);
        command.arg(run.command).arg(self.folder.job()).arg("--run").arg(&folder).args(&run.arguments);
        let Ok(ended) = self.process(&mut command)? else { return Ok(None) };
        if let Some(problem) = self.problem(&ended) {
            return Ok(Some(Outcome::Failed(problem)));
        }
        let mut measurement = match measure(&folder) {
            Ok(measurement) => measurement,
            Err(error) => return Ok(Some(Outcome::Failed(error.to_string()))),
        };
        let mut command = Command::new(self.program);
        command.arg("eval").arg(&folder).arg("--json");
        let Ok(ended) = self.process(&mut command)? else { return Ok(None) };
        let tested = self.problem(&ended).map_or_else(|| read_evaluation(&ended.stdout), Err);
        Ok(Some(
            conclude(tested, &mut measurement).map_or_else(Outcome::Failed, |()| Outcome::Done(Box::new(measurement))),
        ))
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
            (Ending::TimedOut, Some(timeout)) => Some(format!("took longer than {} s", timeout.as_secs_f64())),
            _ => ended.problem(),
        }
    }
}

fn read_evaluation(text: &str) -> Result<Evaluation, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn conclude(tested: Result<Evaluation, String>, measurement: &mut Measurement) -> Result<(), String> {
    let evaluation = tested.map_err(|problem| format!("the trained model could not be evaluated: {problem}"))?;
    measurement.add_evaluation(evaluation);
    Ok(())
}
