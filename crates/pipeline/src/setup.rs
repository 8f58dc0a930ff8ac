//! From a job to what its peers share, where nobody holds the network whole.

use std::sync::Arc;

use nettorrent_engine::backend::Opened;
use nettorrent_engine::job::Job;
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
    /// Nobody can compute a part of it.
    #[error(
        "{what} cannot be cut into stages: its parts cannot be computed by themselves; leave `layers` out, or choose a backend that \
         offers parts, such as `cpu`"
    )]
    NoParts {
        /// What.
        what: String,
    },
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
    opened: &Opened,
    spec: Option<&ModelSpec>,
) -> Result<(Setup, Option<Arc<PipelineSetup>>), PipelineError> {
    let whole = Setup::new(job, opened.task.clone())?;
    let Some(pipeline) = &job.pipeline else { return Ok((whole, None)) };
    let (Some(parts), Some(spec)) = (&opened.parts, spec) else {
        return Err(PipelineError::NoParts { what: format!("what the backend `{}` computes", job.backend) });
    };
    if job.evaluate.interval().is_some() {
        return Err(PipelineError::Seconds);
    }
    if !whole.strategy().counts_all() {
        return Err(PipelineError::Strategy { strategy: job.swarm.strategy.clone() });
    }
    let save_every = job.checkpoint.every;
    let pipelines = Arc::new(PipelineSetup::new(&whole.replica, pipeline, parts.clone(), spec, save_every)?);
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nettorrent_engine::backend::Opened;
    use nettorrent_engine::fn_task::FnTask;
    use nettorrent_engine::job::{Job, PipelineSpec};
    use nettorrent_engine::model::{Layout, Score};

    use super::{PipelineError, setup};

    #[test]
    fn a_backend_without_parts_cannot_be_cut() {
        let layout = Layout::of_tensors([("w", [2].as_slice())]);
        let task = Arc::new(FnTask::new(layout, vec![0; 40], 1, |_, _, _| Score::default()));
        let opened = Opened { task, parts: None };
        let whole = Job::default();
        let spec = whole.model_spec(&[8, 8, 1], 10).unwrap();
        assert!(setup(&whole, &opened, Some(&spec)).is_ok_and(|(_, pipelines)| pipelines.is_none()));
        let cut = Job { pipeline: Some(PipelineSpec::default()), ..whole };
        let error = setup(&cut, &opened, Some(&spec)).err().unwrap();
        assert!(matches!(error, PipelineError::NoParts { .. }));
        assert!(error.to_string().starts_with("what the backend `cpu` computes cannot be cut into stages"), "{error}");
    }
}
