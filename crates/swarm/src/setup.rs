//! What all peers of a swarm share: what a replica begins with, and who holds which part of the network.

use std::sync::Arc;

use nettorrent_engine::data::sampler::SamplerError;
use nettorrent_engine::job::Job;
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::ModelSpec;
use nettorrent_engine::task::Task;

use crate::layers::LayerNetwork;
use crate::layers::plan::PlanError;
use crate::replica_setup::ReplicaSetup;
use crate::strategy::{OptionError, Strategy};
use crate::train_plan::TrainPlan;

/// What all peers of a swarm share. It never changes, so those in one process hold the same one.
pub struct Setup {
    /// What a replica of the whole network begins with.
    pub replica: Arc<ReplicaSetup>,
    /// Who holds which part of the network, if nobody holds it whole.
    pub layers: Option<Arc<LayerNetwork>>,
}

/// Why a job cannot be done by a swarm.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The strategy or its options.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The split or the batches.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The plan of the layers.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// When to test, where blocks cannot agree on it.
    #[error(
        "evaluate.every_seconds cannot be combined with layers: clocks differ from block to block; set evaluate.every_batches"
    )]
    Seconds,
    /// A strategy that cannot be combined with layers.
    #[error(
        "{strategy} cannot be combined with layers: it counts who answered in time, and that may differ from block to block; \
         choose another strategy"
    )]
    Strategy {
        /// Its name.
        strategy: String,
    },
}

impl Setup {
    /// The setup of a job.
    pub fn new(job: &Job, task: Arc<dyn Task>) -> Result<Self, SetupError> {
        Ok(Self { replica: Arc::new(ReplicaSetup::new(job, task)?), layers: None })
    }

    /// The setup of a job whose network is shared out by its layers, if the job says so.
    pub fn with_layers(job: &Job, learning: Arc<Learning>, spec: &ModelSpec) -> Result<Self, SetupError> {
        let whole = Self::new(job, learning.clone())?;
        let Some(layers) = &job.layers else { return Ok(whole) };
        if job.evaluate.interval().is_some() {
            return Err(SetupError::Seconds);
        }
        if !whole.strategy().settles_all() {
            return Err(SetupError::Strategy { strategy: job.swarm.strategy.clone() });
        }
        let save_every = job.checkpoint.every;
        let network = LayerNetwork::new(&whole.replica, layers, learning, spec, save_every)?;
        Ok(Self { layers: Some(Arc::new(network)), ..whole })
    }

    /// The plan of the training.
    pub fn training(&self) -> &TrainPlan {
        &self.replica.training
    }

    /// The job's strategy for one peer.
    pub fn strategy(&self) -> Box<dyn Strategy> {
        self.replica.strategy()
    }

    /// Among how many the samples are shared out when there are so many peers: where layers are, among pipelines.
    pub fn n_replicas(&self, n_peers: usize) -> usize {
        self.layers.as_ref().map_or(n_peers, |network| network.n_pipelines(n_peers))
    }
}
