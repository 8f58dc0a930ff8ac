//! A world: processes that train together while a plan is carried out.

use std::time::Duration;

use nettorrent_net::address::Address;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::network::{Host, Network};
use crate::plan::{Action, Plan};
use crate::process::{Beginning, Common, Fate, Process};
use crate::training::DEADLINE;

/// How long a sample takes: all epochs take one machine about ten seconds.
const SAMPLE_S: f64 = 0.014;
/// How long after the last action all must have ended. A machine that gets stuck before it has ever computed is given forty deadlines.
const PATIENCE: Duration = Duration::from_secs(100);
/// How often it is looked whether all have.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of a world.
pub struct Outcome {
    /// How many samples must have been trained by the end.
    pub n_samples: u64,
    /// What came of each process that was started.
    pub fates: Vec<Fate>,
    /// What happened of all that was planned: who has ended is hit by nothing.
    pub happened: Vec<Action>,
    /// How long it took, in its own time.
    pub took: Duration,
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
    let (setup, n_samples) = plan.parallelism.setup(plan.seed);
    let began = Instant::now();
    let common = Common { setup, network: Network::new(plan.seed), deadline: DEADLINE, sample_s: SAMPLE_S, began };
    let mut processes: Vec<Process> = (0..plan.n_peers)
        .map(|host| Process::start(host, common.clone(), Beginning::Together(plan.n_peers), tasks))
        .collect();
    let mut happened = Vec::new();
    for (at, action) in &plan.actions {
        sleep_until(began + *at).await;
        if apply(*action, &mut processes, &common, tasks) {
            happened.push(*action);
        }
    }
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until && !processes.iter().all(Process::has_ended) {
        sleep(LOOK_EVERY).await;
    }
    let fates = processes.iter().map(Process::fate).collect();
    Outcome { n_samples, fates, happened, took: began.elapsed() }
}

/// Has something happen, and says whether it happened to somebody.
fn apply(action: Action, processes: &mut Vec<Process>, common: &Common, tasks: &LocalSet) -> bool {
    let lives = |host: Host| processes.iter().any(|process| process.host == host && !process.has_ended());
    match action {
        Action::Cut(from, to, is_cut) => {
            let change = if is_cut { Network::cut } else { Network::mend };
            change(&common.network, from, to);
            lives(from) && lives(to)
        }
        Action::Reset(a, b) => {
            common.network.reset(a, b);
            lives(a) && lives(b)
        }
        Action::Join(host) => {
            let living = processes.iter().filter(|process| !process.has_ended());
            let addresses = living.map(|process| Address::InProcess(process.host)).collect();
            processes.push(Process::start(host, common.clone(), Beginning::Join(addresses), tasks));
            true
        }
        Action::Kill(host) | Action::Leave(host) | Action::Suspend(host, _) | Action::Stick(host, _) => {
            let lived = lives(host);
            // It may be one that comes later.
            let Some(process) = processes.iter_mut().find(|process| process.host == host) else { return false };
            match action {
                Action::Kill(_) => process.kill(),
                Action::Leave(_) => process.leave(),
                Action::Suspend(_, is_suspended) => process.suspend(is_suspended),
                Action::Stick(_, is_stuck) => process.stick(is_stuck),
                Action::Cut(..) | Action::Reset(..) | Action::Join(_) => {}
            }
            lived
        }
    }
}
