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

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::Duration;

    use super::{Runner, RunnerEnd};
    use crate::folder::{Origin, StudyFolder};
    use crate::plan::Plan;
    use crate::results::Outcome;
    use crate::study::{Form, Study};

    const EVENTS: &str = r#"{"at_s":0,"event":"start","run":"a","model":"mlp","n_params":10,"n_train":100,"n_test":10,"threads":1,"seed":1,"epochs":1,"epoch":0,"step":0,"version":"0"}
{"at_s":2,"event":"epoch","epoch":1,"step":5,"train_loss":1,"train_accuracy":0.5,"test_loss":1,"test_accuracy":0.75,"lr":0.1,"samples_per_s":50,"seconds":2,"test_seconds":0,"sent_bytes":0}
{"at_s":3,"event":"stop","reason":"finished","epoch":1,"step":5,"seconds":3,"peak_rss_bytes":null}
"#;

    /// A program that notes what it is asked for, and cannot train with batches of 16.
    fn program(place: &Path) -> PathBuf {
        std::fs::write(place.join("events.jsonl"), EVENTS).unwrap();
        let script = r#"#!/bin/sh
            here=$(dirname "$0")
            echo "$1" >> "$here/asked"
            case "$*" in
                eval*) echo '{"classes": ["a"], "confusion": [[7]]}' ;;
                *batch=16*) echo 'error: too large' >&2; exit 1 ;;
                *) cp "$here/events.jsonl" "$4" ;;
            esac
        "#;
        let path = place.join("program");
        // A shell writes it: if this process had it open, another test's child could hold it open, and it could not be run.
        let write = r#"printf '%s' "$1" > "$0"; chmod +x "$0""#;
        assert!(Command::new("sh").args(["-c", write]).arg(&path).arg(script).status().unwrap().success());
        path
    }

    fn opened(place: &Path) -> (StudyFolder, Plan) {
        let text = "name = \"a\"\n[matrix]\nbatch = [8, 16, 32]";
        let study = Study::parse("a.toml", text, Path::new(""), Form::Full).unwrap();
        let plan = Plan::new(&study).unwrap();
        let origin = Origin { command: String::new(), commit: "abc".into(), date: String::new() };
        (StudyFolder::open(&place.join("out"), &study, &plan, &origin).unwrap(), plan)
    }

    #[test]
    fn what_fails_is_written_down_and_tried_again_and_what_is_done_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (program, (folder, plan)) = (program(place.path()), opened(place.path()));
        let runner = Runner { program: &program, folder: &folder, timeout: None, is_stopped: &|| false };
        let mut told = Vec::new();
        let mut tell = |progress: &super::Progress<'_>| {
            if progress.result.is_some() {
                told.push((progress.n_done, progress.n_failed, progress.n_runs, progress.left.is_some()));
            }
        };
        assert_eq!(runner.run(&plan, &mut tell).unwrap(), RunnerEnd::Complete);
        assert_eq!(told, [(1, 0, 3, true), (2, 1, 3, true), (3, 1, 3, true)]);
        let results = folder.collect().unwrap();
        assert_eq!(results.runs[1].outcome, Outcome::Failed("too large".into()));
        let found = results.runs[0].measurement().unwrap();
        assert_eq!((found.final_accuracy, &found.confusion), (0.75, &vec![vec![7]]));
        runner.run(&plan, &mut |_| {}).unwrap();
        let asked = std::fs::read_to_string(place.path().join("asked")).unwrap();
        assert_eq!(asked.lines().collect::<Vec<_>>(), ["train", "eval", "train", "train", "eval", "train"]);
    }

    #[test]
    fn who_wants_to_stop_is_heard_and_nothing_is_written_down() {
        let place = tempfile::tempdir().unwrap();
        let (program, (folder, plan)) = (program(place.path()), opened(place.path()));
        let timeout = Some(Duration::from_secs(60));
        let runner = Runner { program: &program, folder: &folder, timeout, is_stopped: &|| true };
        assert_eq!(runner.run(&plan, &mut |_| {}).unwrap(), RunnerEnd::Stopped);
        assert!(folder.collect().unwrap().runs.is_empty());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_and_no_result() {
        let place = tempfile::tempdir().unwrap();
        let (folder, plan) = opened(place.path());
        let program = place.path().join("nothing");
        let runner = Runner { program: &program, folder: &folder, timeout: None, is_stopped: &|| false };
        assert!(runner.run(&plan, &mut |_| {}).unwrap_err().to_string().starts_with("cannot start"));
    }
}
