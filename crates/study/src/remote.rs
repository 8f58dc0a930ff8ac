//! Machines that are reached by ssh, or by a command that stands for it, and on each of which a peer of a run trains.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nettorrent_launch::{Host, Launch, LaunchError, Manner, News, Outcome, Package, ProgramSource, Shell, Transcript};
use nettorrent_session::RunFolder;

use crate::plan::RunSpec;
use crate::results::Machine;

/// The machines of a study. The first peers of every run are on the first of them.
#[derive(Clone, Debug)]
pub struct RemoteHosts {
    hosts: Vec<Host>,
    shell: Shell,
    program: ProgramSource,
}

impl RemoteHosts {
    /// These, which are reached so, and get the program from there.
    pub fn new(hosts: Vec<Host>, shell: Shell, program: ProgramSource) -> Self {
        Self { hosts, shell, program }
    }

    /// What each is called in measurements: its name, and what else they depend on.
    pub fn names(&self) -> Vec<String> {
        let name = |host: &Host| {
            let threads = host.threads.map(|threads| format!(" threads={threads}"));
            let address = host.address.as_ref().map(|address| format!(" address={address}"));
            [Some(host.name.clone()), threads, address].into_iter().flatten().collect()
        };
        self.hosts.iter().map(name).collect()
    }

    /// Asks the first so many what machines they are; whoever cannot be reached is named.
    pub fn machines(&self, n: usize) -> Result<Vec<Machine>, LaunchError> {
        std::thread::scope(|threads| {
            let ask = |host: &Host| Machine::at(&self.shell, &host.name);
            let asked: Vec<_> = self.hosts.iter().take(n).map(|host| threads.spawn(move || ask(host))).collect();
            asked.into_iter().map(|thread| thread.join().expect("asking does not panic")).collect()
        })
    }

    /// Trains a run's job, with its peers on the first machines. What happens is written into this folder, and so is what was learnt;
    /// nothing stays there.
    pub(crate) fn train(
        &self,
        run: &RunSpec,
        folder: &Path,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, LaunchError> {
        let kept = RunFolder::create(Some(folder), &run.job, None)?;
        let mut transcript = Transcript::new(&kept)?;
        let launch = Launch {
            hosts: self.hosts.iter().take(run.facts.n_peers).map(|host| with_threads(host, run.job.threads)).collect(),
            package: Package::new(&run.job)?,
            shell: self.shell.clone(),
            program: self.program.clone(),
            name: name(run),
            manner: Manner {
                is_alone: run.facts.strategy.is_none(),
                link: run.facts.link.clone(),
                needs_all: true,
                removes_runs: true,
            },
        };
        launch.run(&kept, is_stopped, |news| {
            if let News::Event(line) = news {
                transcript.keep(line);
            }
        })
    }
}

/// A name that no other run has at the hosts, nor an earlier attempt at this one.
fn name(run: &RunSpec) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("study-{}-{}-{}", now.as_millis(), std::process::id(), run.id)
}

/// As many as the job has, if the host does not say another number.
fn with_threads(host: &Host, threads: usize) -> Host {
    Host { threads: host.threads.or(Some(threads).filter(|threads| *threads > 0)), ..host.clone() }
}
