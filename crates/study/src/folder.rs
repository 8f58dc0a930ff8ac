//! A study's folder: what was planned, and the runs that are done.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use nettorrent_engine::job::Job;
use nettorrent_files::{WriteError, write_file};
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, RunSpec};
use crate::results::{Machine, Outcome, Results, RunResult};
use crate::run_prediction::run_prediction;
use crate::study::Study;

const NOTEBOOK: &str = "study.json";
const JOB: &str = "job.toml";
const RUNS: &str = "runs";
const RESULT: &str = "result.json";

/// The folder of a study. While this lives, nobody else may run the study.
#[derive(Debug)]
pub struct StudyFolder {
    path: PathBuf,
    notebook: Notebook,
    /// Locked until it is closed.
    _notebook_file: File,
}

/// What is known before the first run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Notebook {
    /// The results without any runs.
    results: Results,
    /// The times at which accuracies are compared.
    at_s: Vec<f64>,
    /// All runs that are wanted.
    planned: Vec<Identity>,
}

/// What a run is: one whose identity has changed is another run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Identity {
    id: String,
    command: String,
    arguments: Vec<String>,
    job: Job,
    /// The machine of each peer, where they are not on the one that ran the study.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
}

/// A run that is done, as its folder tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Finished {
    identity: Identity,
    /// The program that made it.
    commit: String,
    /// Where.
    machine: Machine,
    /// Where all peers but the first were, if they had a machine each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    other_machines: Vec<Machine>,
    is_side_by_side: bool,
    /// How long it took, with everything.
    pub took_s: f64,
    pub result: RunResult,
}

/// Who runs a study, and with what.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The command that was given.
    pub command: String,
    /// The program: its commit, or its version.
    pub commit: String,
    /// The time, in UTC: `2026-11-15 02:45:00`.
    pub date: String,
    /// Whether runs share the machine.
    pub is_side_by_side: bool,
    /// Where: on this machine, or on one for each peer of the largest swarm.
    pub machines: Vec<Machine>,
}

/// Why a study's folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// It holds something else.
    #[error("{} is not empty, and not the folder of this study; choose another with --out", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// It is none.
    #[error("{} is not a study folder: it has no {NOTEBOOK}", path.display())]
    NoStudy {
        /// The folder.
        path: PathBuf,
    },
    /// It holds what another form of the study has found.
    #[error(
        "{} was made with other settings or by another version of the program and would be overwritten; choose another \
         folder with --out, or remove that run",
        path.display()
    )]
    Changed {
        /// The run's folder.
        path: PathBuf,
    },
    /// Another process runs it.
    #[error("another process is running the study in {}; stop it first", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// The system refuses something.
    #[error("cannot access {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file is damaged.
    #[error("cannot parse {}: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl StudyFolder {
    /// Makes the folder of a study, or takes up the one that is there.
    pub fn open(path: &Path, study: &Study, plan: &Plan, origin: &Origin) -> Result<Self, FolderError> {
        std::fs::create_dir_all(path.join(RUNS)).map_err(|source| io(path, source))?;
        let head = &study.head;
        let mut date = origin.date.clone();
        match read_notebook(path) {
            Ok(old) if old.results.study.name == head.name && old.results.study.is_quick == head.is_quick => {
                date = old.results.date;
            }
            // Nothing but the empty folder that was made just now.
            Err(FolderError::NoStudy { .. }) if n_entries(path)? == 1 && n_entries(&path.join(RUNS))? == 0 => {}
            Ok(_) | Err(FolderError::NoStudy { .. }) => return Err(FolderError::Foreign { path: path.to_owned() }),
            Err(error) => return Err(error),
        }
        let results = Results {
            study: head.clone(),
            command: origin.command.clone(),
            commit: origin.commit.clone(),
            machines: origin.machines.clone(),
            is_side_by_side: origin.is_side_by_side,
            date,
            axes: plan.axes.clone(),
            runs: Vec::new(),
            published: study.published.clone(),
        };
        let planned: Vec<Identity> = plan.runs.iter().map(Identity::of).collect();
        planned.iter().try_for_each(|identity| check_unchanged(path, identity))?;
        let notebook = Notebook { results, at_s: study.at_s.clone(), planned };
        let lock = lock(path)?;
        write_json(&path.join(NOTEBOOK), &notebook)?;
        write_file(&path.join(JOB), plan.job.as_bytes())?;
        Ok(Self { path: path.to_owned(), notebook, _notebook_file: lock })
    }

    /// What is found in a study's folder, whether the study is complete or not.
    pub fn results(path: &Path) -> Result<Results, FolderError> {
        collect(path, &read_notebook(path)?)
    }

    /// Puts together what was found so far.
    pub fn collect(&self) -> Result<Results, FolderError> {
        collect(&self.path, &self.notebook)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The job that all runs start from.
    pub(crate) fn job(&self) -> PathBuf {
        self.path.join(JOB)
    }

    /// A run's folder.
    pub(crate) fn run(&self, run: &RunSpec) -> PathBuf {
        self.path.join(RUNS).join(&run.id)
    }

    /// What came of a run, if it is done; one that failed may be tried again.
    pub(crate) fn finished(&self, run: &RunSpec) -> Result<Option<Finished>, FolderError> {
        finished(&self.path, &Identity::of(run))
    }

    /// An empty place for a run: what a former attempt has left is removed.
    pub(crate) fn clear(&self, run: &RunSpec) -> Result<PathBuf, FolderError> {
        let path = self.run(run);
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(|source| io(&path, source))?;
        }
        std::fs::create_dir_all(&path).map_err(|source| io(&path, source))?;
        Ok(path)
    }

    /// Writes down what came of a run.
    pub(crate) fn finish(&self, run: &RunSpec, result: RunResult, took_s: f64) -> Result<Finished, FolderError> {
        let Results { commit, machines, is_side_by_side, .. } = &self.notebook.results;
        let mut machines = machines.iter().take(run.hosts.len().max(1)).cloned();
        let finished = Finished {
            identity: Identity::of(run),
            commit: commit.clone(),
            machine: machines.next().unwrap_or_default(),
            other_machines: machines.collect(),
            is_side_by_side: *is_side_by_side,
            took_s,
            result,
        };
        write_json(&self.run(run).join(RESULT), &finished)?;
        Ok(finished)
    }
}

/// Where a run lies within its study.
fn within_study(run: &RunSpec) -> PathBuf {
    Path::new(RUNS).join(&run.id)
}

/// What came of a run, as it is kept.
pub(crate) fn result(run: &RunSpec, outcome: Outcome) -> RunResult {
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

impl Identity {
    fn of(run: &RunSpec) -> Self {
        let (id, command) = (run.id.clone(), run.command.to_owned());
        Self { id, command, arguments: run.arguments.clone(), job: run.job.clone(), hosts: run.hosts.clone() }
    }
}

fn collect(path: &Path, notebook: &Notebook) -> Result<Results, FolderError> {
    let mut results = notebook.results.clone();
    let (mut commits, mut machines, mut is_side_by_side) = (BTreeSet::new(), Vec::new(), false);
    for identity in &notebook.planned {
        if let Some(finished) = finished(path, identity)? {
            commits.insert(finished.commit);
            is_side_by_side |= finished.is_side_by_side;
            for machine in [finished.machine].into_iter().chain(finished.other_machines) {
                if !machines.contains(&machine) {
                    machines.push(machine);
                }
            }
            let (mut run, host) = (finished.result, results.study.host);
            let facts = run.facts.clone();
            if let Some(found) = run.measurement_mut() {
                found.prediction = run_prediction(&identity.job, &facts, host, found);
            }
            results.runs.push(run);
        }
    }
    if !commits.is_empty() {
        results.commit = commits.into_iter().collect::<Vec<_>>().join(", ");
        (results.machines, results.is_side_by_side) = (machines, is_side_by_side);
    }
    let at_s = if notebook.at_s.is_empty() { usual_times(&results) } else { notebook.at_s.clone() };
    let targets = results.study.targets;
    let found = results.runs.iter_mut().filter_map(RunResult::measurement_mut);
    found.for_each(|found| found.judge(targets.of(found.measure), &at_s));
    Ok(results)
}

/// Round numbers of seconds up to the length of the longest run: the last few of 1, 2, 5, 10, 20, 50 and so on.
fn usual_times(results: &Results) -> Vec<f64> {
    const MOST: usize = 5;
    let longest = results.runs.iter().filter_map(RunResult::measurement).map(|found| found.total_s).fold(0.0, f64::max);
    let powers = (-3..8).map(|power| 10_f64.powi(power));
    let times: Vec<f64> = powers.flat_map(|ten| [ten, 2.0 * ten, 5.0 * ten]).filter(|time| *time <= longest).collect();
    times[times.len().saturating_sub(MOST)..].to_vec()
}

fn finished(path: &Path, identity: &Identity) -> Result<Option<Finished>, FolderError> {
    let finished = written(path, identity)?.and_then(|text| serde_json::from_slice(&text).ok());
    Ok(finished.filter(|finished: &Finished| finished.identity == *identity))
}

/// That a run which is to be made does not take the place of one that is done, and is another.
fn check_unchanged(path: &Path, identity: &Identity) -> Result<(), FolderError> {
    let Some(text) = written(path, identity)? else { return Ok(()) };
    let is_worth_keeping = match serde_json::from_slice::<Finished>(&text) {
        Ok(finished) => finished.identity != *identity && finished.result.measurement().is_some(),
        // Another version of the program may still understand it.
        Err(_) => true,
    };
    if is_worth_keeping {
        return Err(FolderError::Changed { path: path.join(RUNS).join(&identity.id) });
    }
    Ok(())
}

/// The result of a run of this name.
fn written(path: &Path, identity: &Identity) -> Result<Option<Vec<u8>>, FolderError> {
    let path = path.join(RUNS).join(&identity.id).join(RESULT);
    match std::fs::read(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(io(&path, source)),
    }
}

fn read_notebook(path: &Path) -> Result<Notebook, FolderError> {
    let file = path.join(NOTEBOOK);
    match std::fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).map_err(|source| FolderError::Damaged { path: file, source }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(FolderError::NoStudy { path: path.to_owned() })
        }
        Err(source) => Err(io(&file, source)),
    }
}

/// The folder of runs is locked rather than the notebook, which is replaced.
fn lock(path: &Path) -> Result<File, FolderError> {
    let file_path = path.join(RUNS).join(".lock");
    let opened = File::options().create(true).truncate(false).write(true).open(&file_path);
    let file = opened.map_err(|source| io(&file_path, source))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(FolderError::Locked { path: path.to_owned() }),
        // Some file systems have no locks; there people must take care themselves.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

fn n_entries(path: &Path) -> Result<usize, FolderError> {
    Ok(std::fs::read_dir(path).map_err(|source| io(path, source))?.count())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), FolderError> {
    let text = serde_json::to_vec(value).expect("plain data");
    Ok(write_file(path, &text)?)
}

fn io(path: &Path, source: std::io::Error) -> FolderError {
    FolderError::Io { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FolderError, Origin, StudyFolder, result};
    use crate::plan::Plan;
    use crate::results::{EpochPoint, Machine, Measurement, Outcome};
    use crate::study::{Form, Study};

    fn open(path: &Path, text: &str) -> Result<(StudyFolder, Plan), FolderError> {
        let study = Study::parse("study.toml", text, Path::new(""), Form::Full).unwrap();
        let plan = Plan::new(&study).unwrap();
        Ok((StudyFolder::open(path, &study, &plan, &origin(vec![Machine::here()]))?, plan))
    }

    fn origin(machines: Vec<Machine>) -> Origin {
        let (command, commit, date) = ("study".into(), "abc".into(), "today".into());
        Origin { command, commit, date, is_side_by_side: false, machines }
    }

    fn measurement() -> Outcome {
        let point = |epoch: u64, test_accuracy: f64| EpochPoint {
            epoch,
            seconds: 3.0 * epoch as f64,
            test_accuracy,
            test_loss: 0.0,
            train_loss: 0.0,
            sent_bytes: 0,
        };
        let epochs = vec![point(1, 0.5), point(2, 0.9)];
        Outcome::Done(Box::new(Measurement { epochs, total_s: 6.0, ..Measurement::default() }))
    }

    const STUDY: &str = "name = \"a\"\ntarget_accuracy = 0.8\n[matrix]\nbatch = [8, 16]";

    #[test]
    fn what_is_done_is_found_again_and_judged_by_the_present_target() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("out");
        let (folder, plan) = open(&path, STUDY).unwrap();
        let [first, second] = plan.runs.as_slice() else { panic!("two runs") };
        folder.clear(first).unwrap();
        folder.finish(first, result(first, measurement()), 7.0).unwrap();
        folder.clear(second).unwrap();
        assert!(matches!(open(&path, STUDY), Err(FolderError::Locked { .. })));
        drop(folder);
        let (folder, _) = open(&path, &STUDY.replace("0.8", "0.4")).unwrap();
        assert_eq!(folder.finished(first).unwrap().unwrap().took_s, 7.0);
        assert!(folder.finished(second).unwrap().is_none());
        let results = folder.collect().unwrap();
        assert_eq!((results.runs.len(), results.commit.as_str()), (1, "abc"));
        let found = results.runs[0].measurement().unwrap();
        assert_eq!(found.convergence_s, Some(3.0));
        let times: Vec<f64> = found.value_at.iter().map(|at| at.seconds).collect();
        assert_eq!(times, [0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(StudyFolder::results(&path).unwrap(), results);
        // Where a run was made is known by the run, whoever opens the study later.
        let file = path.join("runs").join(&first.id).join("result.json");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, text.replacen("\"cpu\":\"", "\"cpu\":\"Other ", 1)).unwrap();
        let machines = folder.collect().unwrap().machines;
        assert!(machines.len() == 1 && machines[0].cpu.starts_with("Other "), "{machines:?}");
    }

    #[test]
    fn what_is_done_is_not_lost_to_a_run_whose_job_has_changed() {
        let place = tempfile::tempdir().unwrap();
        let changed = format!("{STUDY}\n[job]\nepochs = 3");
        let (folder, plan) = open(place.path(), STUDY).unwrap();
        let path = folder.clear(&plan.runs[0]).unwrap();
        folder.finish(&plan.runs[0], result(&plan.runs[0], Outcome::Failed("no".into())), 1.0).unwrap();
        drop(folder);
        let (folder, _) = open(place.path(), &changed).unwrap();
        assert!(folder.collect().unwrap().runs.is_empty(), "what failed may go");
        drop(folder);
        let (folder, plan) = open(place.path(), STUDY).unwrap();
        folder.finish(&plan.runs[0], result(&plan.runs[0], measurement()), 1.0).unwrap();
        drop(folder);
        let message = open(place.path(), &changed).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("other settings") && message.contains("--out"), "{message}");
        assert_eq!(open(place.path(), STUDY).unwrap().0.collect().unwrap().runs.len(), 1);
        std::fs::write(path.join("result.json"), "{").unwrap();
        assert!(matches!(open(place.path(), STUDY), Err(FolderError::Changed { .. })));
    }

    #[test]
    fn a_run_on_other_machines_is_another_one() {
        let place = tempfile::tempdir().unwrap();
        let study =
            Study::parse("study.toml", "name = \"a\"\n[matrix]\npeers = [2]", Path::new(""), Form::Full).unwrap();
        let there = |hosts: [&str; 3]| {
            let mut plan = Plan::new(&study).unwrap();
            plan.place(&hosts.map(String::from)).unwrap();
            let machine = |host: &&str| Machine { host: Some((*host).to_owned()), ..Machine::here() };
            let folder = StudyFolder::open(place.path(), &study, &plan, &origin(hosts.iter().map(machine).collect()));
            folder.map(|folder| (folder, plan))
        };
        let (folder, plan) = there(["one", "two", "three"]).unwrap();
        folder.clear(&plan.runs[0]).unwrap();
        folder.finish(&plan.runs[0], result(&plan.runs[0], measurement()), 1.0).unwrap();
        let machines = folder.collect().unwrap().machines;
        let names: Vec<_> = machines.iter().filter_map(|machine| machine.host.as_deref()).collect();
        assert_eq!(names, ["one", "two"], "the third had nothing to do");
        drop(folder);
        assert!(matches!(there(["two", "one", "three"]), Err(FolderError::Changed { .. })));
        assert!(there(["one", "two", "four"]).unwrap().0.finished(&plan.runs[0]).unwrap().is_some());
    }

    #[test]
    fn half_a_run_is_removed_before_it_is_made_again() {
        let place = tempfile::tempdir().unwrap();
        let (folder, plan) = open(place.path(), STUDY).unwrap();
        let path = folder.clear(&plan.runs[0]).unwrap();
        std::fs::write(path.join("job.toml"), "").unwrap();
        assert!(!folder.clear(&plan.runs[0]).unwrap().join("job.toml").exists());
    }

    #[test]
    fn nothing_else_is_touched() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("letter.txt"), "dear").unwrap();
        assert!(matches!(open(place.path(), STUDY), Err(FolderError::Foreign { .. })));
        assert!(matches!(StudyFolder::results(place.path()), Err(FolderError::NoStudy { .. })));
        let place = tempfile::tempdir().unwrap();
        drop(open(place.path(), STUDY).unwrap());
        assert!(matches!(open(place.path(), "name = \"b\""), Err(FolderError::Foreign { .. })));
    }
}
