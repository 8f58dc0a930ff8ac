//! Slurm: a batch job with a peer a task, which leaves before its time is up and goes on when it is requeued.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use shell_words::quote;

use crate::error::LaunchError;
use crate::scheduler::{Scheduler, State};
use crate::shared_folder::{PEER_FILE, SharedFolder, last_line};

/// The batch script's name.
const SCRIPT_FILE: &str = "job.sbatch";
/// Where what the job says goes.
const LOG_FILE: &str = "slurm.log";
/// How long before its time is up the job is warned. Slurm may be a minute early.
const SECONDS_TO_LEAVE: u32 = 120;
/// What the script does behind its options.
const SCRIPT: &str = include_str!("slurm.sh");
/// The states from which no job returns.
const ENDS: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

/// What a batch job is to be like.
#[derive(Clone, Debug, Default)]
pub struct SlurmOptions {
    /// Its number of nodes.
    pub n_nodes: usize,
    /// The peers of each: one, or as many as it has GPUs.
    pub tasks_per_node: usize,
    /// Its time, as `sbatch` takes it.
    pub time: Option<String>,
    /// Where it is to run.
    pub partition: Option<String>,
    /// More options for `sbatch`, each as one would type it.
    pub options: Vec<String>,
}

/// A batch job.
#[derive(Debug)]
pub struct Slurm {
    options: SlurmOptions,
    /// Its number, once it is submitted.
    job: Option<String>,
    log: PathBuf,
}

impl SlurmOptions {
    /// The batch script.
    fn script(&self, folder: &SharedFolder) -> Result<String, LaunchError> {
        let log = folder.path.join(LOG_FILE).display().to_string().replace('%', "%%");
        let mut options = vec![
            "--job-name=nettorrent".to_owned(),
            format!("--nodes={}", self.n_nodes),
            format!("--ntasks-per-node={}", self.tasks_per_node),
            format!("--output={}", quote(&log)),
            "--open-mode=append".to_owned(),
            "--requeue".to_owned(),
            format!("--signal=B:USR1@{SECONDS_TO_LEAVE}"),
        ];
        options.extend(self.time.iter().map(|time| format!("--time={}", quote(time))));
        options.extend(self.partition.iter().map(|name| format!("--partition={}", quote(name))));
        for option in &self.options {
            if !option.starts_with('-') {
                return Err(LaunchError::SlurmOption { option: option.clone() });
            }
            options.push(option.clone());
        }
        let mut text = "#!/bin/sh\n".to_owned();
        for option in &options {
            if option.contains(char::is_control) {
                return Err(LaunchError::SlurmOption { option: option.clone() });
            }
            let _ = writeln!(text, "#SBATCH {option}");
        }
        let folder = folder.path.display().to_string();
        Ok(format!("{text}\nfolder={}\npeer_script={PEER_FILE}\n\n{SCRIPT}", quote(&folder)))
    }
}

impl Slurm {
    /// A job that is to be submitted.
    pub fn new(options: SlurmOptions) -> Self {
        Self { options, job: None, log: PathBuf::new() }
    }

    fn job(&self) -> &str {
        self.job.as_deref().unwrap_or_default()
    }

    /// Whether it still waits for its nodes.
    fn is_pending(&self) -> Result<bool, LaunchError> {
        Ok(matches!(self.ask()?, State::Active(text) if text.starts_with("PENDING")))
    }

    fn ask(&self) -> Result<State, LaunchError> {
        let output = run("squeue", &["--noheader", "--states=all", "--format=%T %r", "--jobs", self.job()])?;
        if output.status.success() {
            return Ok(state_of(&String::from_utf8_lossy(&output.stdout)));
        }
        let said = said(&output);
        // It has been forgotten: that happens some minutes after its end.
        if said.contains("Invalid job id") {
            return Ok(State::Over("Slurm does not know it any more".to_owned()));
        }
        // Its controller may be away for a while, and the job does not end by that.
        Ok(State::Active(format!("squeue says: {said}")))
    }
}

impl Scheduler for Slurm {
    fn files(&self, folder: &SharedFolder) -> Result<Vec<(String, String)>, LaunchError> {
        Ok(vec![(SCRIPT_FILE.to_owned(), self.options.script(folder)?)])
    }

    fn command(&self, folder: &SharedFolder) -> Vec<String> {
        ["sbatch", "--parsable", &folder.path.join(SCRIPT_FILE).display().to_string()].map(String::from).to_vec()
    }

    fn start(&mut self, folder: &SharedFolder) -> Result<String, LaunchError> {
        let words = self.command(folder);
        let output = run(&words[0], &words[1..])?;
        // The job's number, and a cluster's name behind it where there are several.
        let answer = String::from_utf8_lossy(&output.stdout).into_owned();
        let job = answer.trim().split(';').next().unwrap_or_default();
        if !output.status.success() || job.is_empty() {
            return Err(LaunchError::host("sbatch", said(&output)));
        }
        self.job = Some(job.to_owned());
        self.log = folder.path.join(LOG_FILE);
        Ok(format!("Slurm job {job}"))
    }

    fn state(&mut self) -> Result<State, LaunchError> {
        Ok(match (self.ask()?, last_line(&self.log)) {
            (State::Over(why), Some(said)) => State::Over(format!("{why}: {said}")),
            (state, _) => state,
        })
    }

    fn leave(&mut self, _: &SharedFolder) -> Result<(), LaunchError> {
        // Nobody is there yet to be asked.
        let how: &[&str] = if self.is_pending()? { &[] } else { &["--signal=TERM"] };
        let output = run("scancel", &[how, &[self.job()]].concat())?;
        if output.status.success() { Ok(()) } else { Err(LaunchError::host("scancel", said(&output))) }
    }
}

pub(crate) fn run(program: &str, arguments: &[impl AsRef<std::ffi::OsStr>]) -> Result<Output, LaunchError> {
    let output = Command::new(program).args(arguments).output();
    output.map_err(|source| LaunchError::NoSlurm { program: program.to_owned(), source })
}

/// What a program says for people, in its last line.
pub(crate) fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.map_or_else(|| format!("failed with {}", output.status), str::to_owned)
}

/// What `squeue` says: a state, and why.
fn state_of(answer: &str) -> State {
    let answer = answer.lines().next().unwrap_or_default().trim();
    let (state, why) = answer.split_once(' ').unwrap_or((answer, ""));
    let text = if ["", "None", "(null)"].contains(&why) { state.to_owned() } else { format!("{state} ({why})") };
    match state {
        "" => State::Over("Slurm does not know it any more".to_owned()),
        _ if ENDS.contains(&state) => State::Over(text),
        _ => State::Active(text),
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;

    use super::{SlurmOptions, state_of};
    use crate::package::Package;
    use crate::scheduler::State;
    use crate::shared_folder::{PeerSettings, SharedFolder};

    #[test]
    fn states_are_told_apart() {
        assert_eq!(state_of("RUNNING None\n"), State::Active("RUNNING".into()));
        assert_eq!(state_of("PENDING Resources\n"), State::Active("PENDING (Resources)".into()));
        assert_eq!(state_of("FAILED NonZeroExitCode\n"), State::Over("FAILED (NonZeroExitCode)".into()));
        assert!(matches!(state_of(""), State::Over(_)));
    }

    #[test]
    fn options_stay_on_their_lines() {
        let package = Package::new(&Job::parse("a job", "", &[]).unwrap()).unwrap();
        let settings = PeerSettings { n_peers: 4, ..PeerSettings::default() };
        let folder = SharedFolder::plan("/shared/it's 100% mine".as_ref(), &package, &settings).unwrap();
        let slurm =
            SlurmOptions { n_nodes: 2, tasks_per_node: 2, time: Some("1:00:00".into()), ..SlurmOptions::default() };
        let script = slurm.script(&folder).unwrap();
        for line in ["--nodes=2", "--ntasks-per-node=2", "--time=1:00:00", "--requeue", "--signal=B:USR1@120"] {
            assert!(script.contains(&format!("#SBATCH {line}\n")), "{script}");
        }
        assert!(script.contains("100%% mine/slurm.log"), "{script}");
        for bad in ["gpu", "--mem=1G\ntouch hacked"] {
            let slurm = SlurmOptions { options: vec![bad.into()], ..slurm.clone() };
            assert!(slurm.script(&folder).is_err(), "{bad}");
        }
        let slurm = SlurmOptions { time: Some("1\ntouch hacked".into()), ..slurm };
        assert!(slurm.script(&folder).is_err());
    }
}
