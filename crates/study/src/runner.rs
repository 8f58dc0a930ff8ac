//! Makes the runs of a plan, one after the other, and writes down what came of each.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::folder::{Finished, FolderError, StudyFolder, within_study};
use crate::measure::{Evaluation, measure};
use crate::plan::{Plan, RunSpec};
use crate::process::{self, Ended, Ending, Wish};
use crate::results::{Measurement, Outcome, RunResult};

/// Makes runs.
pub struct Runner<'a> {
    /// The program that trains.
    pub program: &'a Path,
    /// Where runs go.
    pub folder: &'a StudyFolder,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// Whether somebody wants to stop.
    pub is_stopped: &'a dyn Fn() -> bool,
}

/// Why no more runs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerEnd {
    /// All are done.
    Complete,
    /// Somebody wanted to stop.
    Stopped,
}

/// How far a study is.
pub struct Progress<'a> {
    /// Runs that are done, or have failed.
    pub n_done: usize,
    /// Those of them that have failed.
    pub n_failed: usize,
    /// All runs.
    pub n_runs: usize,
    /// The run that goes on, or that has just come to its end.
    pub run: &'a RunSpec,
    /// What came of it, if it is done.
    pub result: Option<&'a RunResult>,
    /// How much longer the study will take, by how long runs took so far.
    pub left: Option<Duration>,
}

/// Why runs cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// The study's folder cannot be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The program cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

impl Runner<'_> {
    /// Makes all runs that are not done yet, telling often how far it is. What fails is written down, and tried again the next
    /// time.
    pub fn run(&self, plan: &Plan, tell: &mut dyn FnMut(&Progress<'_>)) -> Result<RunnerEnd, RunnerError> {
        let mut done = Vec::new();
        let mut open = Vec::new();
        for run in &plan.runs {
            match self.folder.finished(run)?.filter(|finished| finished.result.measurement().is_some()) {
                Some(finished) => done.push(finished),
                None => open.push(run),
            }
        }
        for (k, run) in open.iter().enumerate() {
            let began = Instant::now();
            let left = left(&done, &open[k..]);
            let progress = |done: &[Finished], left| Progress {
                n_done: done.len(),
                n_failed: done.iter().filter(|finished| finished.result.measurement().is_none()).count(),
                n_runs: plan.runs.len(),
                run,
                result: None,
                left,
            };
            let outcome = self.make(run, &mut || {
                tell(&progress(&done, left.map(|left| left.saturating_sub(began.elapsed()))));
            })?;
            let Some(outcome) = outcome else { return Ok(RunnerEnd::Stopped) };
            let finished = self.folder.finish(run, result(run, outcome), began.elapsed().as_secs_f64())?;
            done.push(finished);
            let result = done.last().map(|finished| &finished.result);
            tell(&Progress { result, ..progress(&done, self::left(&done, &open[k + 1..])) });
        }
        Ok(RunnerEnd::Complete)
    }

    /// Makes one run; none if it was stopped.
    fn make(&self, run: &RunSpec, look: &mut dyn FnMut()) -> Result<Option<Outcome>, RunnerError> {
        let folder = self.folder.clear(run)?;
        let mut command = Command::new(self.program);
        command.arg(run.command).arg(self.folder.job()).arg("--run").arg(&folder).args(&run.arguments);
        let Ok(ended) = self.process(&mut command, look)? else { return Ok(None) };
        if let Some(problem) = self.problem(&ended) {
            return Ok(Some(Outcome::Failed(problem)));
        }
        let mut measurement = match measure(&folder) {
            Ok(measurement) => measurement,
            Err(error) => return Ok(Some(Outcome::Failed(error.to_string()))),
        };
        let mut command = Command::new(self.program);
        command.arg("eval").arg(&folder).arg("--json");
        let Ok(ended) = self.process(&mut command, look)? else { return Ok(None) };
        let tested = self.problem(&ended).map_or_else(|| read_evaluation(&ended.stdout), Err);
        Ok(Some(
            conclude(tested, &mut measurement).map_or_else(Outcome::Failed, |()| Outcome::Done(Box::new(measurement))),
        ))
    }

    /// A process to its end, or the news that it was stopped.
    fn process(&self, command: &mut Command, look: &mut dyn FnMut()) -> Result<Result<Ended, Stopped>, RunnerError> {
        let mut look = || {
            look();
            if (self.is_stopped)() { Wish::Stop } else { Wish::GoOn }
        };
        let ended = process::run(command, self.timeout, &mut look);
        let ended = ended.map_err(|source| RunnerError::Start { program: self.program.to_owned(), source })?;
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

struct Stopped;

fn read_evaluation(text: &str) -> Result<Evaluation, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn conclude(tested: Result<Evaluation, String>, measurement: &mut Measurement) -> Result<(), String> {
    let evaluation = tested.map_err(|problem| format!("the trained model could not be tested: {problem}"))?;
    measurement.add_evaluation(evaluation);
    Ok(())
}

fn result(run: &RunSpec, outcome: Outcome) -> RunResult {
    RunResult {
        id: run.id.clone(),
        setting: run.setting.clone(),
        facts: run.facts.clone(),
        trial: run.trial,
        seed: run.seed,
        outcome,
        folder: within_study(run),
    }
}

/// How long the runs that are open will take: as long as those of the same setting, or else as all in the mean.
fn left(done: &[Finished], open: &[&RunSpec]) -> Option<Duration> {
    let mean = |of: &mut dyn Iterator<Item = &Finished>| {
        let (n, sum) = of.fold((0, 0.0), |(n, sum), finished| (n + 1, sum + finished.took_s));
        (n > 0).then(|| sum / f64::from(n))
    };
    let usual = mean(&mut done.iter())?;
    let of_setting = |run: &RunSpec| mean(&mut done.iter().filter(|finished| finished.result.setting == run.setting));
    let seconds: f64 = open.iter().map(|run| of_setting(run).unwrap_or(usual)).sum();
    Some(Duration::from_secs_f64(seconds))
}
