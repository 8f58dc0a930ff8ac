//! From a job to what its peers share, where nobody holds the network whole.

use std::sync::Arc;

use nettorrent_engine::job::Job;
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::ModelSpec;
use nettorrent_swarm::strategy::OptionError;
use nettorrent_swarm::{Partition, Peer, PeerId, Setup, State};

use crate::peer::PipelinePeer;
use crate::pipeline_setup::PipelineSetup;
use crate::plan::PlanError;

/// Why a job cannot be done by pipelines.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// The strategy or its options.
    #[error(transparent)]
    Option(#[from] OptionError),
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

/// The setup of a job, and that of its pipelines if the job has any.
pub fn setup(
    job: &Job,
    learning: Arc<Learning>,
    spec: &ModelSpec,
) -> Result<(Setup, Option<Arc<PipelineSetup>>), PipelineError> {
    let whole = Setup::new(job, learning.clone())?;
    let Some(layers) = &job.layers else { return Ok((whole, None)) };
    if job.evaluate.interval().is_some() {
        return Err(PipelineError::Seconds);
    }
    if !whole.strategy().counts_all() {
        return Err(PipelineError::Strategy { strategy: job.swarm.strategy.clone() });
    }
    let save_every = job.checkpoint.every;
    let pipelines = Arc::new(PipelineSetup::new(&whole.replica, layers, learning, spec, save_every)?);
    Ok((whole.with_partition(pipelines.clone()), Some(pipelines)))
}

impl Partition for PipelineSetup {
    fn n_replicas(&self, n_peers: usize) -> usize {
        self.n_pipelines(n_peers)
    }

    fn peer(self: Arc<Self>, id: PeerId, whole: State) -> Box<dyn Peer> {
        let origin = self.origin(whole);
        Box::new(PipelinePeer::new(id, self, origin))
    }
}
