//! How long this machine takes to train a batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;
use nettorrent_engine::train_error::TrainError;

use crate::predict::StepTime;
use crate::timed::timed;

/// How many batches of one size are trained in a row.
const REPEATS: usize = 4;

/// How long a batch of a job takes with as many threads as the job says, by the number of its samples: whole batches and those that one
/// of so many peers trains are timed in turn, so that whatever else the machine does disturbs both alike.
pub(crate) fn step_time(
    job: &Job,
    task: Arc<dyn Task>,
    n_peers: usize,
    measure_for: Duration,
) -> Result<StepTime, TrainError> {
    // What is in a gradient does not matter for how long a step takes.
    let (mut values, gradient) = (task.init(job.seed), vec![0.0; task.n_values()]);
    let mut optimizer = Optimizer::new(job.optimizer.clone(), task.n_params());
    let (few, many) = sizes(job, n_peers);
    let n_train = task.labels().len().max(1);
    let mut worker = task.worker(job.threads)?;
    let mut times: [Vec<f64>; 3] = Default::default();
    let mut next = 0;
    timed(measure_for, || {
        for (n_samples, times) in [few, many].into_iter().zip(&mut times[..2]) {
            for repeat in 0..REPEATS {
                let indices: Vec<usize> = (0..n_samples).map(|k| (next + k) % n_train).collect();
                next += n_samples;
                let began = Instant::now();
                worker.gradient(&values, &indices, next as u64, &mut |_, _| {})?;
                // The first of another size finds neither memory nor caches as it needs them.
                if repeat > 0 {
                    times.push(began.elapsed().as_secs_f64());
                }
            }
        }
        let began = Instant::now();
        match worker.workspace() {
            Some(workspace) => {
                optimizer.step(job.optimizer.lr, &mut values, &gradient, workspace);
            }
            None => optimizer.step_alone(job.optimizer.lr, &mut values, &gradient),
        }
        times[2].push(began.elapsed().as_secs_f64());
        Ok::<(), TrainError>(())
    })?;
    let [few_s, many_s, update_s] = times.map(median);
    Ok(StepTime::through((few, few_s), (many, many_s), update_s))
}

/// How many samples a peer's batches have, and how many a whole batch has; where these are as many, half of them and all.
fn sizes(job: &Job, n_peers: usize) -> (usize, usize) {
    let own = job.swarm.scale.step_samples(job.batch, n_peers) / n_peers.max(1);
    (if own < job.batch { own } else { job.batch / 2 }.max(1), job.batch)
}

/// So that somebody else's turn on the processor in between does not count: it would be taken for a fixed cost.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::{Job, SwarmSpec};
    use nettorrent_engine::scale::Scale;

    use super::{median, sizes};

    #[test]
    fn batches_are_timed_as_large_as_peers_have_them() {
        let job = |scale| Job { batch: 32, swarm: SwarmSpec { scale, ..SwarmSpec::default() }, ..Job::default() };
        assert_eq!([2, 4, 100].map(|n| sizes(&job(Scale::GlobalBatch), n)), [(16, 32), (8, 32), (1, 32)]);
        assert_eq!(sizes(&job(Scale::None), 4), (16, 32));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
    }
}
