//! Makes the runs of a plan, one after the other or side by side, and writes down what came of each.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use crate::cores::{Cores, Share};
use crate::folder::{Finished, StudyFolder, result};
use crate::making::Making;
use crate::plan::{Plan, RunSpec};
use crate::remote::RemoteHosts;
use crate::results::{Outcome, RunResult};
use crate::runner_error::RunnerError;
use crate::time_left::{Ahead, Usual, time_left};

/// How often it is told how far a study is.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Makes runs.
pub struct Runner<'a> {
    /// The program that trains.
    pub program: &'a Path,
    /// Where runs go.
    pub folder: &'a StudyFolder,
    /// Where peers are, if not on this machine.
    pub hosts: Option<&'a RemoteHosts>,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// What runs run on.
    pub cores: Cores,
    /// Whether somebody wants to stop.
    pub is_stopped: &'a (dyn Fn() -> bool + Sync),
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
    /// The runs that go on.
    pub running: Vec<&'a RunSpec>,
    /// What came of the run that has just come to its end, if one has.
    pub result: Option<&'a RunResult>,
    /// How much longer the study will take, by how long runs took so far.
    pub left: Option<Duration>,
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
        // Once one run cannot be made at all, nor can the others.
        let is_over = AtomicBool::new(false);
        let is_stopped = || is_over.load(Ordering::Relaxed) || (self.is_stopped)();
        let Self { program, folder, hosts, timeout, .. } = *self;
        let making = Making { program, folder, hosts, timeout, is_stopped: &is_stopped };
        thread::scope(|scope| {
            let mut work = Work { n_runs: plan.runs.len(), cores: self.cores.clone(), open, running: Vec::new(), done };
            let mut problem = None;
            loop {
                if !is_stopped() {
                    work.start(scope, &making);
                }
                if work.running.is_empty() {
                    break;
                }
                thread::park_timeout(TELL_EVERY);
                tell(&work.progress(None));
                while let Some(ended) = work.next_ended() {
                    match work.conclude(ended, self.folder) {
                        Ok(Some(result)) => tell(&work.progress(Some(&result))),
                        Ok(None) => {}
                        Err(error) => {
                            is_over.store(true, Ordering::Relaxed);
                            problem = Some(error);
                        }
                    }
                }
            }
            match problem {
                Some(problem) => Err(problem),
                None if work.open.is_empty() => Ok(RunnerEnd::Complete),
                None => Ok(RunnerEnd::Stopped),
            }
        })
    }
}

/// What is done, what goes on, and what is still to be done.
struct Work<'scope, 'a> {
    n_runs: usize,
    cores: Cores,
    open: Vec<&'a RunSpec>,
    running: Vec<Running<'scope, 'a>>,
    done: Vec<Finished>,
}

/// A run that goes on.
struct Running<'scope, 'a> {
    run: &'a RunSpec,
    began: Instant,
    share: Share,
    thread: ScopedJoinHandle<'scope, Result<Option<Outcome>, RunnerError>>,
}

impl<'scope, 'a: 'scope> Work<'scope, 'a> {
    /// Starts every run for which there are processors, in the order of the plan.
    fn start<'env>(&mut self, scope: &'scope Scope<'scope, 'env>, making: &'scope Making<'_>) {
        let mut waiting = Vec::new();
        for run in std::mem::take(&mut self.open) {
            let Some(share) = self.cores.take(run.n_threads) else {
                waiting.push(run);
                continue;
            };
            let (own, caller) = (share.clone(), thread::current());
            let make = move || {
                let outcome = own.confine_this_thread().map_err(RunnerError::Cores).and_then(|()| making.make(run));
                caller.unpark();
                outcome
            };
            self.running.push(Running { run, began: Instant::now(), share, thread: scope.spawn(make) });
        }
        self.open = waiting;
    }

    fn next_ended(&mut self) -> Option<Running<'scope, 'a>> {
        let k = self.running.iter().position(|running| running.thread.is_finished())?;
        Some(self.running.remove(k))
    }

    /// Writes down what came of a run; nothing if it was stopped, and is still to be made.
    fn conclude(&mut self, ended: Running<'scope, 'a>, folder: &StudyFolder) -> Result<Option<RunResult>, RunnerError> {
        let Running { run, began, share, thread } = ended;
        self.cores.give_back(share);
        let Some(outcome) = thread.join().expect("a run is made without panics")? else {
            self.open.push(run);
            return Ok(None);
        };
        let finished = folder.finish(run, result(run, outcome), began.elapsed().as_secs_f64())?;
        let result = finished.result.clone();
        self.done.push(finished);
        Ok(Some(result))
    }

    fn progress<'b>(&'b self, result: Option<&'b RunResult>) -> Progress<'b> {
        Progress {
            n_done: self.done.len(),
            n_failed: self.done.iter().filter(|finished| finished.result.measurement().is_none()).count(),
            n_runs: self.n_runs,
            running: self.running.iter().map(|running| running.run).collect(),
            result,
            left: self.left(),
        }
    }

    fn left(&self) -> Option<Duration> {
        let usual = Usual::of(&self.done)?;
        let running = self.running.iter().map(|Running { run, began, share, .. }| Ahead {
            seconds: (usual.seconds(run) - began.elapsed().as_secs_f64()).max(0.0),
            part: share.part,
        });
        let open =
            self.open.iter().map(|run| Ahead { seconds: usual.seconds(run), part: self.cores.part(run.n_threads) });
        Some(time_left(running.chain(open)))
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::Duration;

    use super::{Runner, RunnerEnd};
    use crate::cores::Cores;
    use crate::folder::{Origin, StudyFolder};
    use crate::plan::Plan;
    use crate::results::{Machine, Outcome};
    use crate::study::{Form, Study};

    const EVENTS: &str = r#"{"at_s":0,"event":"start","run":"a","model":"mlp","n_params":10,"n_train":100,"n_test":10,"threads":1,"seed":1,"epochs":1,"epoch":0,"step":0,"version":"0"}
{"at_s":2,"event":"epoch","epoch":1,"step":5,"train_loss":1,"train_accuracy":0.5,"test_loss":1,"test_accuracy":0.75,"lr":0.1,"samples_per_s":50,"seconds":2,"test_seconds":0,"sent_bytes":0}
{"at_s":3,"event":"stop","reason":"finished","epoch":1,"step":5,"seconds":3,"peak_rss_bytes":null}
"#;

    /// A program that notes what it is asked for, and cannot train with batches of 16.
    const CHOOSY: &str = r#"#!/bin/sh
        here=$(dirname "$0")
        echo "$1" >> "$here/asked"
        case "$*" in
            eval*) echo '{"classes": ["a"], "confusion": [[7]]}' ;;
            *batch=16*) echo 'error: too large' >&2; exit 1 ;;
            *) cp "$here/events.jsonl" "$4" ;;
        esac
    "#;

    /// One that trains only while another one does.
    const SOCIABLE: &str = r#"#!/bin/sh
        here=$(dirname "$0")
        case "$*" in
            eval*) echo '{"classes": ["a"], "confusion": [[7]]}' ;;
            *) touch "$here/began-$(basename "$4")"
               until test "$(ls "$here" | grep -c began)" -ge 2; do :; done
               cp "$here/events.jsonl" "$4" ;;
        esac
    "#;

    fn program(place: &Path, script: &str) -> PathBuf {
        std::fs::write(place.join("events.jsonl"), EVENTS).unwrap();
        let path = place.join("program");
        // A shell writes it: if this process had it open, another test's child could hold it open, and it could not be run.
        let write = r#"printf '%s' "$1" > "$0"; chmod +x "$0""#;
        assert!(Command::new("sh").args(["-c", write]).arg(&path).arg(script).status().unwrap().success());
        path
    }

    fn opened(place: &Path) -> (StudyFolder, Plan) {
        let text = "name = \"a\"\n[job]\nthreads = 2\n[matrix]\nbatch = [8, 16, 32]";
        let study = Study::parse("a.toml", text, Path::new(""), Form::Full).unwrap();
        let plan = Plan::new(&study).unwrap();
        let (command, commit, date) = (String::new(), "abc".into(), String::new());
        let origin = Origin { command, commit, date, is_side_by_side: false, machines: vec![Machine::here()] };
        (StudyFolder::open(&place.join("out"), &study, &plan, &origin).unwrap(), plan)
    }

    /// One after the other; a program that hangs is stopped.
    fn runner<'a>(program: &'a Path, folder: &'a StudyFolder) -> Runner<'a> {
        let timeout = Some(Duration::from_secs(60));
        Runner { program, folder, hosts: None, timeout, cores: Cores::undivided(), is_stopped: &|| false }
    }

    #[test]
    fn what_fails_is_written_down_and_tried_again_and_what_is_done_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (program, (folder, plan)) = (program(place.path(), CHOOSY), opened(place.path()));
        let runner = runner(&program, &folder);
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
        assert_eq!((found.final_value, &found.confusion), (0.75, &vec![vec![7]]));
        runner.run(&plan, &mut |_| {}).unwrap();
        let asked = std::fs::read_to_string(place.path().join("asked")).unwrap();
        assert_eq!(asked.lines().collect::<Vec<_>>(), ["train", "eval", "train", "train", "eval", "train"]);
    }

    #[test]
    fn runs_go_on_side_by_side_as_long_as_there_are_processors() {
        let place = tempfile::tempdir().unwrap();
        let (program, (folder, plan)) = (program(place.path(), SOCIABLE), opened(place.path()));
        let runner = Runner { cores: Cores::imagined(5), ..runner(&program, &folder) };
        let mut most = 0;
        let end = runner.run(&plan, &mut |progress| most = most.max(progress.running.len())).unwrap();
        assert_eq!((end, most), (RunnerEnd::Complete, 2));
        assert!(folder.collect().unwrap().runs.iter().all(|run| run.measurement().is_some()));
    }

    #[test]
    fn who_wants_to_stop_is_heard_and_nothing_is_written_down() {
        let place = tempfile::tempdir().unwrap();
        let (program, (folder, plan)) = (program(place.path(), CHOOSY), opened(place.path()));
        let runner = Runner { is_stopped: &|| true, ..runner(&program, &folder) };
        assert_eq!(runner.run(&plan, &mut |_| {}).unwrap(), RunnerEnd::Stopped);
        assert!(folder.collect().unwrap().runs.is_empty());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_and_no_result() {
        let place = tempfile::tempdir().unwrap();
        let (folder, plan) = opened(place.path());
        let program = place.path().join("nothing");
        let runner = runner(&program, &folder);
        assert!(runner.run(&plan, &mut |_| {}).unwrap_err().to_string().starts_with("cannot start"));
    }
}
