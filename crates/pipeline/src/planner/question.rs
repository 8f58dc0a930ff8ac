//! What a plan is wanted for.

use nettorrent_engine::job::{Job, PipelineSpec};
use nettorrent_engine::model::ModelSpec;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::scale::Scale;

use crate::plan::PlanError;
use nettorrent_swarm::link_spec::LinkSpec;

/// What a peer computes in a second where nobody has measured it: about a core with wide vectors.
pub const USUAL_MULTIPLICATIONS_PER_S: f64 = 3e10;

/// The link where nobody says one.
const USUAL_LINK: &str = "1gbit";

/// More peers than this are not planned for.
const MOST_PEERS: usize = 100_000;

/// What a plan is wanted for.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The network.
    pub spec: &'a ModelSpec,
    /// Samples in a batch.
    pub batch: usize,
    /// Whether replicas share a batch.
    pub scale: Scale,
    /// How many batches are on their way at a time, where there are several stages.
    pub in_flight: usize,
    /// How many peers there are.
    pub n_peers: usize,
    /// How fast they are by each other; fewer than peers are taken in turn, and none means all alike.
    pub speeds: Vec<f64>,
    /// Every peer's link.
    pub link: LinkSpec,
    /// How many numbers the optimizer remembers of each parameter.
    pub n_state_vectors: usize,
    /// Multiplications that a peer of speed 1 makes in a second of training.
    pub multiplications_per_s: f64,
    /// Whether a block that nobody else has is also kept by a neighbour.
    pub copies: bool,
    /// How many bytes each peer may take; as many as it wants if `None`.
    pub memory_limit: Option<u64>,
}

impl<'a> Question<'a> {
    /// What a job asks, for so many peers that are as fast as usual.
    pub fn of(job: &Job, spec: &'a ModelSpec, n_peers: usize) -> Result<Self, PlanError> {
        let usual = PipelineSpec::default();
        let pipeline = job.pipeline.as_ref().unwrap_or(&usual);
        Ok(Self {
            spec,
            batch: job.batch,
            scale: job.swarm.scale,
            in_flight: pipeline.in_flight,
            n_peers,
            speeds: pipeline.speeds.clone(),
            link: pipeline.link.as_deref().unwrap_or(USUAL_LINK).parse()?,
            n_state_vectors: Optimizer::new(job.optimizer.clone(), 0).state().1.count(),
            multiplications_per_s: USUAL_MULTIPLICATIONS_PER_S,
            copies: pipeline.copies,
            memory_limit: None,
        })
    }

    pub(super) fn check(&self) -> Result<(), PlanError> {
        let problem = |text: String| Err(PlanError::Setting(text));
        if !(1..=MOST_PEERS).contains(&self.n_peers) {
            return problem(format!("{} peers: plans are made for 1 to {MOST_PEERS}", self.n_peers));
        }
        if self.batch == 0 || self.in_flight == 0 {
            return problem("batch and pipeline.in_flight must be at least 1".into());
        }
        if let Some(speed) = self.speeds.iter().find(|speed| !(**speed > 0.0 && speed.is_finite())) {
            return problem(format!("a speed of {speed}: must be a number above 0, such as 1.0 or 0.5"));
        }
        if self.speeds.len() > self.n_peers {
            let (n, there) = (self.speeds.len(), self.n_peers);
            return problem(format!("{n} speeds for {there} peers: give at most as many as there are peers"));
        }
        if !(self.multiplications_per_s > 0.0 && self.multiplications_per_s.is_finite()) {
            return problem("a peer must make some multiplications in a second".into());
        }
        Ok(())
    }

    /// How many batches are on their way in a pipeline of so many stages.
    pub fn in_flight(&self, n_stages: usize) -> usize {
        if n_stages > 1 { self.in_flight } else { 1 }
    }

    /// How many samples one of so many replicas trains of a batch.
    pub fn replica_batch(&self, n_replicas: usize) -> usize {
        self.scale.step_samples(self.batch, n_replicas).div_ceil(n_replicas.max(1))
    }

    /// How fast a peer is.
    pub(super) fn speed(&self, peer: usize) -> f64 {
        if self.speeds.is_empty() { 1.0 } else { self.speeds[peer % self.speeds.len()] }
    }
}
