//! What a replica begins with: the plan of its training, and its strategy.

use std::sync::Arc;

use crate::sampling::rounds::RoundRule;
use crate::sampling::sampler::Rules;
use nettorrent_engine::job::Warmup;
use nettorrent_engine::job::{Job, SwarmSpec, Work};
use nettorrent_engine::task::Task;
use toml::Table;

use crate::strategies::{build, find};
use crate::strategy::{AnyStrategy, Mixing, OnePeer, OptionError, Payload, Spec, Strategy};
use crate::train_plan::TrainPlan;

/// What a replica begins with.
pub struct ReplicaSetup {
    /// What all replicas share.
    pub training: Arc<TrainPlan>,
    strategy: &'static Spec,
}

/// After how many rounds work is dealt out anew, where peers exchange after every batch: often enough to follow a peer that turns
/// slow, seldom enough not to hold up those who are a few rounds ahead of others.
const REDEAL: u32 = 4;

impl ReplicaSetup {
    /// For a job.
    pub(crate) fn new(job: &Job, task: Arc<dyn Task>) -> Result<Self, OptionError> {
        let strategy = find(&job.swarm.strategy)?;
        let built = build(strategy, &job.swarm.options)?;
        let plan = built.round_plan();
        if job.ema > 0.0 && (plan.mixing != Mixing::Full || plan.payload == Payload::Updates) {
            return Err(OptionError::Average { strategy: strategy.name });
        }
        let rules = rules(job, &*built, task.labels().len());
        Ok(Self { training: Arc::new(TrainPlan::new(job, task, rules, built.follows_sites())), strategy })
    }

    /// The same for those who hold a part of the network.
    pub fn for_part(&self, task: Arc<dyn Task>) -> Self {
        Self { training: Arc::new(self.training.for_part(task)), strategy: self.strategy }
    }

    /// Whether in this epoch the job's own strategy has not taken over yet.
    pub(crate) fn is_warming_up(&self, epoch: u64) -> bool {
        matches!(self.training.swarm.warmup_rule().at(epoch), Some(Warmup::Dense | Warmup::OnePeer))
    }

    /// A strategy for one peer in this epoch.
    pub(crate) fn strategy_at(&self, epoch: u64) -> AnyStrategy {
        match self.training.swarm.warmup_rule().at(epoch) {
            Some(Warmup::Dense) => {
                let usual = find(&SwarmSpec::default().strategy).expect("the usual strategy is in the list");
                // Who is outvoted later is outvoted from the beginning, if it can be.
                let outvotes = |name: &String| ["aggregation", "bad_peers", "trim"].contains(&name.as_str());
                let rule = self.training.swarm.options.clone().into_iter().filter(|(name, _)| outvotes(name));
                let built = (usual.build)(&rule.collect()).or_else(|_| (usual.build)(&Table::new()));
                built.expect("it needs no options")
            }
            Some(Warmup::OnePeer) => AnyStrategy::round(OnePeer::default()),
            Some(Warmup::AllData) | None => self.strategy(),
        }
    }

    /// The job's strategy for one peer.
    pub fn strategy(&self) -> AnyStrategy {
        (self.strategy.build)(&self.training.swarm.options).expect("the options were checked when the setup was made")
    }
}

/// How a job's samples are shared out and trained.
fn rules(job: &Job, strategy: &dyn Strategy, n_train: usize) -> Rules {
    // Blocks of a pipeline have to agree on who trains what, without a word.
    let follows_speed = job.swarm.work == Work::Speed && job.pipeline.is_none() && strategy.follows_speed();
    let n_held_out = strategy.n_held_out(n_train);
    let redeal = if follows_speed { (f64::from(REDEAL) * (1.0 + strategy.delay())) as u32 } else { 0 };
    Rules {
        split: job.swarm.split,
        resplit: job.swarm.resplit,
        batches: job.batch_rule(),
        rounds: RoundRule {
            length: strategy.round_plan().length,
            scale: job.swarm.scale,
            redeal,
            overhead: n_held_out / 3,
        },
        warmup: job.swarm.warmup_rule(),
        n_held_out,
        seed: job.seed,
    }
}
