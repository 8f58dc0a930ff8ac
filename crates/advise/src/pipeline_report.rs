//! Which peers would hold which layers of a network, how fast that would be, and why.

mod picture;
mod text;

use nettorrent_engine::job::{Job, PipelineSpec, StageSpec, Stages};
use nettorrent_engine::model::{LayerSpec, ModelSpec};
use nettorrent_figures::Unit;
use nettorrent_pipeline::plan::{PipelinePlan, PlanError, Stage};
use nettorrent_pipeline::planner::{Candidate, Choice, Question, choose, estimate};

use crate::compute_speed::{ComputeSpeed, SpeedSource};

/// What estimates rest on.
pub const PIPELINE_ASSUMPTIONS: &str = "\
The network is cut into stages of consecutive layers, and each stage is shared by a grid of peers: rows are batch shards, \
columns are tensor shards, blocks of the outputs of the stage's first layer. Peers that are left over make further such \
pipelines (replicas), which share each batch (swarm.scale = \"global-batch\", as usual) or train batches of their own, and \
average.\n\n\
What is taken to be so: a layer's multiplications are made three times for each sample, and all else is free; links send and \
receive at their full rate at once, while peers compute; sums over rows and replicas go round rings, after computing. With one \
batch in flight (pipeline.in_flight) each waits for the one before; with many, the busiest peer or link decides; where there \
is one stage, one is in flight whatever the job says. Plans are compared by samples a second of all replicas together. Memory \
counts the network's numbers, what the optimizer remembers and the batches in flight, but neither the data nor the program. \
With batch norm, a stage's peers see whole batches, so it has one row.";

/// A plan for a job, chosen or the job's own, and what it was compared with.
pub struct PipelineReport<'a> {
    job: &'a Job,
    n_params: usize,
    question: Question<'a>,
    choice: Choice,
    /// One peer by itself, if it has the memory.
    alone: Option<Candidate>,
    speed_source: SpeedSource,
    /// Whether the job gives the stages itself.
    is_given: bool,
    /// Why there are no data, if there are none.
    without_data: Option<String>,
}

impl<'a> PipelineReport<'a> {
    /// Plans a job for so many peers that compute at this speed, each with so much memory.
    pub fn new(
        job: &'a Job,
        (spec, n_params): (&'a ModelSpec, usize),
        n_peers: usize,
        speed: ComputeSpeed,
        memory_limit: Option<u64>,
    ) -> Result<Self, PlanError> {
        let mut question = Question::of(job, spec, n_peers)?;
        question.multiplications_per_s = speed.multiplications_per_s;
        question.memory_limit = memory_limit;
        let given = job.pipeline.as_ref().and_then(|PipelineSpec { stages, .. }| match stages {
            Stages::Given(stages) => Some(stages),
            Stages::Auto(_) => None,
        });
        let choice = match given {
            None => choose(&question)?,
            Some(stages) => {
                Choice { best: estimate(&question, &PipelinePlan::new(spec, stages)?)?, runners_up: Vec::new() }
            }
        };
        let alone = alone(&question)?;
        let (speed_source, is_given) = (speed.source, given.is_some());
        Ok(Self { job, n_params, question, choice, alone, speed_source, is_given, without_data: None })
    }

    /// Says why the samples are taken to be as the model usually has them.
    pub fn without_data(self, problem: Option<String>) -> Self {
        Self { without_data: problem, ..self }
    }

    /// How many batches are on their way at a time.
    fn in_flight(&self) -> usize {
        self.question.in_flight(self.choice.best.plan.stages.len())
    }

    /// How batches are trained: how many at a time, and whether replicas share them.
    fn of_batches(&self) -> String {
        let mut text = match self.in_flight() {
            1 => String::new(),
            n => format!(", {n} in flight"),
        };
        let own = self.question.replica_batch(self.choice.best.estimate.n_replicas);
        if own < self.question.batch {
            text += &format!(", of each {own} samples for a replica");
        }
        text
    }

    /// The names of a stage's first and last layer.
    fn layers_of(&self, stage: &Stage) -> String {
        let layers = &self.question.spec.layers;
        let name = |index: usize| match layers[index].name() {
            Some(name) => name.to_owned(),
            None => format!("{index} {}", LayerSpec::kind(&layers[index])),
        };
        let (first, last) = (stage.layers.start, stage.layers.end - 1);
        if first == last { name(first) } else { format!("{} – {}", name(first), name(last)) }
    }
}

/// The fastest peer by itself; none where it has not the memory.
fn alone(question: &Question<'_>) -> Result<Option<Candidate>, PlanError> {
    let speeds = question.speeds.iter().copied().reduce(f64::max).into_iter().collect();
    let question = Question { n_peers: 1, speeds, in_flight: 1, copies: false, ..question.clone() };
    let whole = StageSpec { layers: question.spec.layers.len(), batch_shards: 1, tensor_shards: 1 };
    let alone = estimate(&question, &PipelinePlan::new(question.spec, &[whole])?)?;
    Ok(Some(alone).filter(|alone| question.memory_limit.is_none_or(|limit| alone.estimate.memory_bytes <= limit)))
}

/// Bytes in a unit that fits.
fn bytes(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { Unit::Bytes.format(n as f64) }
}
