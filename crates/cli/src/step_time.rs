//! How long this machine takes to train a batch.

use std::time::{Duration, Instant};

use nettorrent_engine::job::Job;
use nettorrent_engine::model::Workspace;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;

/// Steps before a measurement, so that memory is there and caches are warm.
const WARM_UP: usize = 3;

/// Takes steps for so long, at least one, after a few that do not count; how many, and how many seconds they took.
pub(crate) fn timed<E>(duration: Duration, mut step: impl FnMut() -> Result<(), E>) -> Result<(u64, f64), E> {
    for _ in 0..WARM_UP {
        step()?;
    }
    let (started, mut n_steps) = (Instant::now(), 0);
    while n_steps == 0 || started.elapsed() < duration {
        step()?;
        n_steps += 1;
    }
    Ok((n_steps, started.elapsed().as_secs_f64()))
}

/// How long a batch of a job takes with as many threads as the job says.
pub(crate) fn batch_time(job: &Job, task: &dyn Task, measure_for: Duration) -> anyhow::Result<Duration> {
    let (mut values, mut gradient) = (task.init(job.seed), vec![0.0; task.n_values()]);
    let mut optimizer = Optimizer::new(job.optimizer.clone(), task.n_params());
    let mut room = Workspace::new(job.threads)?;
    let n_train = task.labels().len().max(1);
    let mut next = 0;
    let (n_steps, seconds) = timed(measure_for, || {
        let indices: Vec<usize> = (0..job.batch).map(|k| (next * job.batch + k) % n_train).collect();
        task.gradient(&values, &indices, next as u64, &mut gradient, &mut room, &mut |_, _| {})?;
        optimizer.step(job.optimizer.lr, &mut values, &gradient, &room);
        next += 1;
        anyhow::Ok(())
    })?;
    Ok(Duration::from_secs_f64(seconds / n_steps as f64))
}
