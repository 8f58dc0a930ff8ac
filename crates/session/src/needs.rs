//! What a job asks of a machine, and what the machine may give. Who joins takes a job that others have written, and is on its guard; a job of
//! one's own is refused only where it cannot be done.

use std::fmt;
use std::path::Path;

use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::model::n_values;
use nettorrent_engine::optimizer::Optimizer;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

use crate::error::SessionError;
use crate::training::Training;

/// The vectors of a peer besides those of optimizer and strategy: parameters, their gradient, what it sends and what it receives.
const N_VECTORS: u64 = 4;
/// Besides the state that is trained there is one to go back to, and one that is being written to the disk.
const N_STATES_KEPT: u64 = 2;
const NUMBER: u64 = size_of::<f32>() as u64;

/// The most that a job may take, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineLimits {
    /// Of memory, this process's all told.
    pub memory: u64,
    /// Of the disk, for checkpoints.
    pub disk: u64,
}

impl MachineLimits {
    /// What is there: memory that nobody uses and what this process has, and room on the disk of a folder. What the system does not
    /// tell is not limited.
    pub fn available(folder: &Path) -> Self {
        let mut system = System::new();
        system.refresh_memory();
        let in_container = container_memory(&system);
        let free = match system.available_memory() {
            0 => u64::MAX,
            free => free.min(in_container),
        };
        Self { memory: free.saturating_add(resident_bytes()), disk: free_disk(folder).unwrap_or(u64::MAX) }
    }
}

/// What a job takes, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Memory for the data set and whatever else this process has already.
    pub held: u64,
    /// Memory for the copies of the model, and for what a batch leaves on its way through it.
    pub model: u64,
    /// Room on the disk for the checkpoints that are kept, and one more that is being written.
    pub checkpoints: u64,
}

impl Needs {
    /// What a training that is open, and has not begun, will take.
    pub fn of(training: &Training) -> Result<Self, SessionError> {
        let Training { job, task, setup, pipelines, .. } = training;
        let n_state_vectors = n_optimizer_vectors(job);
        let n_kept = setup.strategy().n_state_vectors() as u64;
        let state = 1 + n_state_vectors + n_kept;
        let n_whole = task.n_values() as u64;
        let n_held = pipelines.as_ref().map_or(n_whole, |setup| {
            (0..setup.n_slots()).map(|slot| setup.part(slot).n_values() as u64).max().unwrap_or(0)
        });
        let vectors = n_held.saturating_mul(N_VECTORS + n_state_vectors + n_kept + N_STATES_KEPT * state);
        let per_sample = match training.spec() {
            Some(spec) => {
                let steps = build_network(&job.model, spec)?.summary();
                let outputs = steps.iter().map(|step| n_values(&step.output) as u64);
                outputs.fold(n_values(&spec.input) as u64, u64::saturating_add)
            }
            None => 0,
        };
        let n_saved = job.epochs.checked_div(job.checkpoint.every).unwrap_or(1).min(job.checkpoint.keep as u64) + 1;
        Ok(Self {
            held: resident_bytes(),
            model: NUMBER.saturating_mul(vectors.saturating_add(per_sample.saturating_mul(job.batch as u64))),
            checkpoints: NUMBER.saturating_mul(n_whole).saturating_mul(state).saturating_mul(n_saved),
        })
    }

    /// Refuses what is more than a machine may give.
    pub fn check(&self, limits: &MachineLimits) -> Result<(), SessionError> {
        let memory = self.held.saturating_add(self.model);
        if memory > limits.memory {
            let (memory, limit) = (Bytes(memory), Bytes(limits.memory));
            return Err(SessionError::TooMuch(format!(
                "the swarm's job needs about {memory} of memory, and {limit} are allowed here; allow more with \
                 --max-memory SIZE, or use another machine"
            )));
        }
        if self.checkpoints > limits.disk {
            let (disk, limit) = (Bytes(self.checkpoints), Bytes(limits.disk));
            return Err(SessionError::TooMuch(format!(
                "the checkpoints that the swarm's job keeps need about {disk} of the disk, and {limit} are allowed here; allow \
                 more with --max-disk SIZE, or choose another disk with --run FOLDER"
            )));
        }
        Ok(())
    }
}

/// Refuses a job of one's own whose network this machine cannot hold so many times, whatever else may run there.
pub fn check_own(training: &Training, n_replicas: usize) -> Result<(), SessionError> {
    check_least(training, n_replicas, machine_memory())
}

/// The same for a machine with so much memory. Only what is surely taken counts: the parameters, and where one trains alone the gradient and
/// what the optimizer keeps of those that are trained. What comes on top is guessed at only where strangers ask for it.
fn check_least(training: &Training, n_replicas: usize, memory: u64) -> Result<(), SessionError> {
    // A model of Python is there already.
    if training.spec().is_none() {
        return Ok(());
    }
    let Training { job, task, .. } = training;
    let n_trained: u64 = task.layout().buckets().iter().map(|bucket| bucket.len() as u64).sum();
    let n_more = if training.is_alone() { 1 + n_optimizer_vectors(job) } else { 0 };
    let n_numbers = (task.n_values() as u64).saturating_add(n_trained.saturating_mul(n_more));
    let least = NUMBER.saturating_mul(n_numbers).saturating_mul(n_replicas as u64);
    if least <= memory {
        return Ok(());
    }
    let (model, least, memory) = (&job.model, Bytes(least), Bytes(memory));
    let times = if n_replicas > 1 { format!(", held {n_replicas} times,") } else { String::new() };
    Err(SessionError::TooMuch(format!(
        "the model `{model}`{times} takes at least {least} of memory, and this machine has {memory}; choose a smaller model, or share \
         its layers out among several machines (`nettorrent plan` says how)"
    )))
}

/// How many numbers an optimizer keeps of each parameter.
fn n_optimizer_vectors(job: &Job) -> u64 {
    Optimizer::new(job.optimizer.clone(), 0).state().1.count() as u64
}

/// All the memory that processes of this machine can have, and what it can swap out. What the system does not tell is not limited.
fn machine_memory() -> u64 {
    let mut system = System::new();
    system.refresh_memory();
    let in_container = container_memory(&system);
    match system.total_memory() {
        0 => u64::MAX,
        all => all.min(in_container).saturating_add(system.total_swap()),
    }
}

/// The memory that the container has in which this process is.
fn container_memory(system: &System) -> u64 {
    // Where the system tells nothing, as in a folder that is its root and has no /proc, the library must not be asked: it would panic.
    match system.total_memory() {
        0 => u64::MAX,
        _ => system.cgroup_limits().map_or(u64::MAX, |limits| limits.total_memory),
    }
}

/// A number of bytes, as people read it.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB")];
        let (unit, name) = units.into_iter().find(|(unit, _)| self.0 as f64 >= *unit).unwrap_or((1e3, "kB"));
        write!(f, "{:.1} {name}", self.0 as f64 / unit)
    }
}

/// What this process has of the memory; 0 where the system does not tell.
fn resident_bytes() -> u64 {
    let Ok(pid) = get_current_pid() else { return 0 };
    let mut system = System::new();
    system.refresh_processes_specifics(
        ProcessesToUpdate::Some(&[pid]),
        false,
        ProcessRefreshKind::nothing().with_memory(),
    );
    system.process(pid).map_or(0, sysinfo::Process::memory)
}

/// Room on the disk of a folder, which need not be there yet.
#[cfg(unix)]
fn free_disk(folder: &Path) -> Option<u64> {
    let folder = std::path::absolute(folder).ok()?;
    let status = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}

#[cfg(not(unix))]
fn free_disk(_: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::{CheckpointSpec, Job};

    use sysinfo::System;

    use super::{MachineLimits, Needs, check_least, check_own, container_memory};
    use crate::training::Training;

    fn needs(job: &Job) -> Needs {
        Needs::of(&Training::from_job(job.clone(), 1).unwrap()).unwrap()
    }

    #[test]
    fn a_system_that_tells_nothing_limits_nothing() {
        // Nor does one that was not asked.
        assert_eq!(container_memory(&System::new()), u64::MAX);
    }

    #[test]
    fn larger_models_batches_and_more_checkpoints_need_more() {
        let job = Job { model: "mlp:64".into(), epochs: 100, ..Job::default() };
        let few = needs(&job);
        assert!(few.held > 1 << 20, "the program itself takes memory");
        // 64 inputs, 64 and 10 outputs: 4,810 numbers, which sgd with a momentum keeps twice.
        assert!(few.model > 4 * 4 * 4810 && few.model < 100 * 4 * 4810, "{few:?}");
        assert!(needs(&Job { model: "mlp:640".into(), ..job.clone() }).model > 5 * few.model);
        assert!(needs(&Job { batch: 3200, ..job.clone() }).model > 5 * few.model);
        let keeping = |keep| needs(&Job { checkpoint: CheckpointSpec { every: 1, keep }, ..job.clone() }).checkpoints;
        assert_eq!(keeping(20) / 21, keeping(2) / 3);
        assert_eq!(keeping(5000), keeping(100), "there are no more than epochs");
    }

    #[test]
    fn what_is_too_much_is_refused_with_the_figure_and_the_option() {
        let needs = Needs { held: 1 << 20, model: 3_000_000_000, checkpoints: 7_000_000_000_000 };
        let enough = MachineLimits { memory: 4_000_000_000, disk: 8_000_000_000_000 };
        assert!(needs.check(&enough).is_ok());
        let error = needs.check(&MachineLimits { memory: 2_000_000_000, ..enough }).unwrap_err().to_string();
        assert!(
            error.contains("3.0 GB of memory") && error.contains("2.0 GB are") && error.contains("--max-memory"),
            "{error}"
        );
        let error = needs.check(&MachineLimits { disk: 1000, ..enough }).unwrap_err().to_string();
        assert!(error.contains("7.0 TB of the disk") && error.contains("--max-disk"), "{error}");
    }

    #[test]
    fn a_job_of_ones_own_is_refused_only_where_its_network_cannot_be_held() {
        let mut job = Job { model: "mlp:64".into(), ..Job::default() };
        job.optimizer.momentum = 0.9;
        // 64 inputs, 64 and 10 outputs: 4,810 numbers; alone with a gradient and a momentum.
        let alone = Training::alone(job.clone(), None).unwrap();
        assert!(check_least(&alone, 1, 3 * 4 * 4810).is_ok());
        assert!(check_least(&alone, 1, 3 * 4 * 4810 - 1).is_err());
        let shared = Training::from_job(job, 3).unwrap();
        assert!(check_least(&shared, 3, 3 * 4 * 4810).is_ok());
        let error = check_least(&shared, 3, 50_000).unwrap_err().to_string();
        assert!(error.contains("held 3 times, takes at least 57.7 kB of memory"), "{error}");
        assert!(error.contains("this machine has 50.0 kB"), "{error}");
        assert!(check_own(&alone, 1).is_ok());
    }

    #[test]
    fn this_machine_has_some_memory_and_some_disk() {
        let folder = tempfile::tempdir().unwrap();
        let MachineLimits { memory, disk } = MachineLimits::available(&folder.path().join("not/yet/there"));
        assert!(memory > 1 << 20 && disk > 0);
    }
}
