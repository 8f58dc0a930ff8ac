//! What all replicas of a network share: the task, who trains which samples, and how steps are taken.

use std::sync::{Arc, OnceLock};

use crate::alike::Alike;
use crate::sampling::ledger::Ledger;
use crate::sampling::sampler::{Rules, Sampler};
use nettorrent_engine::collapse::{Collapse, size};
use nettorrent_engine::guessing::Guessing;
use nettorrent_engine::job::{EvaluateSpec, Job, SwarmSpec};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::rng::mix;
use nettorrent_engine::schedule::ScheduleSpec;
use nettorrent_engine::task::Task;

use crate::malformed::Malformed;

/// More members than any swarm has.
const MOST_MEMBERS: usize = 1 << 17;

/// What all replicas of a network share. It never changes, so those in one process hold the same one.
pub struct TrainPlan {
    /// What is learnt.
    pub task: Arc<dyn Task>,
    /// Who trains which samples.
    pub sampler: Arc<Sampler>,
    /// Where all randomness comes from.
    pub seed: u64,
    /// Number of epochs.
    pub epochs: u64,
    /// How gradients become steps.
    pub optimizer: OptimizerSpec,
    /// How much of the parameters' average stays with each step; 0 if none is wanted.
    pub ema: f32,
    /// The learning rate's course.
    pub schedule: ScheduleSpec,
    /// How often to test within epochs.
    pub evaluate: EvaluateSpec,
    /// How peers train together.
    pub swarm: SwarmSpec,
    /// Whether it matters to the job's strategy who is near to whom.
    pub(crate) follows_sites: bool,
    guessing: Guessing,
    /// Known once somebody has asked.
    collapse: OnceLock<Collapse>,
    pub(crate) alike: Alike,
}

impl TrainPlan {
    /// The plan of a job, whose samples are shared out by these rules, and to whose strategy it may matter who is near to whom.
    pub(crate) fn new(job: &Job, task: Arc<dyn Task>, rules: Rules, follows_sites: bool) -> Self {
        Self {
            sampler: Arc::new(Sampler::new(task.labels().into(), rules)),
            guessing: task.guessing(),
            task,
            seed: job.seed,
            epochs: job.epochs,
            optimizer: job.optimizer.clone(),
            ema: job.ema,
            schedule: job.schedule.clone(),
            evaluate: job.evaluate.clone(),
            swarm: job.swarm.clone(),
            follows_sites,
            collapse: OnceLock::new(),
            alike: Alike::default(),
        }
    }

    /// The same for those who hold a part of the network.
    pub(crate) fn for_part(&self, task: Arc<dyn Task>) -> Self {
        Self {
            task,
            sampler: self.sampler.clone(),
            seed: self.seed,
            epochs: self.epochs,
            optimizer: self.optimizer.clone(),
            ema: self.ema,
            schedule: self.schedule.clone(),
            evaluate: self.evaluate.clone(),
            swarm: self.swarm.clone(),
            // Pipelines lie across sites.
            follows_sites: false,
            guessing: self.guessing,
            collapse: OnceLock::new(),
            alike: Alike::default(),
        }
    }

    /// Refuses a ledger that no honest peer of this swarm has.
    pub fn check_ledger(&self, ledger: &Ledger) -> Result<(), Malformed> {
        if ledger.segments.is_empty() && ledger.epoch <= self.epochs {
            return Ok(());
        }
        let limits = self.sampler.limits(self.epochs, MOST_MEMBERS);
        ledger.check(&limits).map_err(|error| Malformed::new(error.to_string()))
    }

    /// The seed for a batch: of the job and the step; and of the slot, or all peers would drop out the same neurons.
    pub fn batch_seed(&self, slot: usize, step: u64) -> u64 {
        seed_of_batch(self.seed, slot, step)
    }

    /// What guessing comes to.
    pub(crate) fn guessing(&self) -> Guessing {
        self.guessing
    }

    /// What tells models that are broken from those that have not begun to learn.
    pub(crate) fn collapse(&self) -> &Collapse {
        self.collapse.get_or_init(|| self.collapse_from(&self.task.init(self.seed)))
    }

    /// The parameters with which training begins.
    pub(crate) fn initial_values(&self) -> Vec<f32> {
        let initial = self.task.init(self.seed);
        // Now, as nobody wants to make them a second time beside all that training holds.
        self.collapse.get_or_init(|| self.collapse_from(&initial));
        initial
    }

    fn collapse_from(&self, initial: &[f32]) -> Collapse {
        Collapse::new(self.guessing, size(&initial[..self.task.n_params()]))
    }
}

fn seed_of_batch(job: u64, slot: usize, step: u64) -> u64 {
    let seed = mix(job ^ mix(step));
    // Slots count down from the largest number, so that none is mixed in as a step is.
    if slot == 0 { seed } else { mix(seed ^ mix(!(slot as u64))) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::seed_of_batch;

    #[test]
    fn no_two_batches_have_the_same_seed() {
        for job in 0..20 {
            let seeds: BTreeSet<u64> =
                (0..40).flat_map(|slot| (0..40).map(move |step| seed_of_batch(job, slot, step))).collect();
            assert_eq!(seeds.len(), 1600, "job seed {job}");
        }
    }
}
