//! A world: processes that train together while a plan is carried out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nettorrent_net::address::Address;
use nettorrent_session::Training;
use tempfile::TempDir;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::network::{Host, Network};
use crate::plan::{Action, Plan};
use crate::process::{Beginning, Common, Fate, Process};

/// How long a sample takes: all epochs take one machine about ten seconds.
const SAMPLE_S: f64 = 0.014;
/// How long after the last action all must have ended. A machine that gets stuck before it has ever computed is given forty deadlines.
const PATIENCE: Duration = Duration::from_secs(100);
/// How often it is looked whether all have.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of a world.
pub struct Outcome {
    /// What was trained.
    pub training: Arc<Training>,
    /// How many samples must have been trained by the end.
    pub n_samples: u64,
    /// What came of each process that was started.
    pub fates: Vec<Fate>,
    /// What happened of all that was planned: who has ended is hit by nothing.
    pub happened: Vec<Action>,
    /// How long it took, in its own time.
    pub took: Duration,
    /// Where the runs are, until this is dropped.
    _folders: TempDir,
}

/// Runs a plan from beginning to end.
///
/// # Panics
/// If a process does, or if this machine cannot make a runtime.
pub fn run(plan: &Plan) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let tasks = LocalSet::new();
    tasks.block_on(&runtime.expect("a runtime without threads and sockets"), carry_out(plan, &tasks))
}

async fn carry_out(plan: &Plan, tasks: &LocalSet) -> Outcome {
    let (training, n_samples) = plan.parallelism.training(plan.seed);
    let (began, folders) = (Instant::now(), folders());
    let common = Common { training: training.clone(), network: Network::new(plan.seed), sample_s: SAMPLE_S, began };
    let mut world = World { processes: Vec::new(), folders: folders.path(), common, tasks };
    (0..plan.n_peers).for_each(|host| world.start(host, Beginning::Together(plan.n_peers)));
    let mut happened = Vec::new();
    for (at, action) in &plan.actions {
        sleep_until(began + *at).await;
        if world.apply(*action) {
            happened.push(*action);
        }
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && !world.processes.iter().all(Process::has_ended) {
        sleep(LOOK_EVERY).await;
    }
    let fates = world.processes.iter().map(Process::fate).collect();
    Outcome { training, n_samples, fates, happened, took: began.elapsed(), _folders: folders }
}

/// Where the runs of a world are: in memory, where the system has files there.
fn folders() -> TempDir {
    let in_memory = Path::new("/dev/shm");
    let made = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
    made.expect("this machine has room for a few small files")
}

/// The processes that were started, and what others begin with.
struct World<'a> {
    processes: Vec<Process>,
    folders: &'a Path,
    common: Common,
    tasks: &'a LocalSet,
}

impl World<'_> {
    fn start(&mut self, host: Host, beginning: Beginning) {
        self.start_in(self.folders.join(host.to_string()), host, beginning);
    }

    fn start_in(&mut self, folder: PathBuf, host: Host, beginning: Beginning) {
        self.processes.push(Process::start(host, folder, self.common.clone(), beginning, self.tasks));
    }

    /// Where those are who live.
    fn addresses(&self) -> Vec<Address> {
        let living = self.processes.iter().filter(|process| !process.has_ended());
        living.map(|process| Address::InProcess(process.host)).collect()
    }

    fn lives(&self, host: Host) -> bool {
        self.processes.iter().any(|process| process.host == host && !process.has_ended())
    }

    /// Whether somebody was started again in a folder.
    fn is_reused(&self, folder: &Path) -> bool {
        self.processes.iter().filter(|process| process.folder() == folder).count() > 1
    }

    /// Has something happen, and says whether it happened to somebody.
    fn apply(&mut self, action: Action) -> bool {
        let network = &self.common.network;
        match action {
            Action::Cut(from, to, is_cut) => {
                let change = if is_cut { Network::cut } else { Network::mend };
                change(network, from, to);
                self.lives(from) && self.lives(to)
            }
            Action::Reset(a, b) => {
                network.reset(a, b);
                self.lives(a) && self.lives(b)
            }
            Action::Join(host) => {
                self.start(host, Beginning::Join(self.addresses()));
                true
            }
            Action::Restart(old, host) => {
                let killed = self.processes.iter().find(|process| process.host == old && process.is_dead());
                // It may have been killed before it had a folder.
                let folder = killed.map(Process::folder).filter(|folder| folder.exists() && !self.is_reused(folder));
                let Some(folder) = folder.cloned() else { return false };
                self.start_in(folder, host, Beginning::Join(self.addresses()));
                true
            }
            Action::Kill(host) => self.to(host, Process::kill),
            Action::Leave(host) => self.to(host, |process| process.leave()),
            Action::Suspend(host, is_suspended) => self.to(host, |process| process.suspend(is_suspended)),
            Action::Stick(host, is_stuck) => self.to(host, |process| process.stick(is_stuck)),
            Action::Mute(host, is_mute) => self.to(host, |process| process.mute(is_mute)),
            Action::Disk(host, health) => self.to(host, |process| process.set_disk(health)),
        }
    }

    /// Does something to a process, and says whether it lived. It may be one that comes later.
    fn to(&mut self, host: Host, act: impl FnOnce(&mut Process)) -> bool {
        let lived = self.lives(host);
        if let Some(process) = self.processes.iter_mut().find(|process| process.host == host) {
            act(process);
        }
        lived
    }
}
