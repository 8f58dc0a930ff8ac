//! A job: everything that decides what a training run computes, as a TOML file.
//!
//! Wrong fields are answered with line, column and the nearest name that exists; every field can be set from outside too.

mod bounds;
mod evaluate;
mod pipeline;
mod read;
mod sharing;
mod swarm;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data::Batch;
use crate::data::augment::{Flip, crop_flip};
use crate::data::batches::{BatchRule, LastBatch, Order};
use crate::data::source::DataSpec;
use crate::model::{LossSpec, ModelError, ModelSpec, Network, zoo};
use crate::optimizer::{OptimizerError, OptimizerSpec};
use crate::rng::Rng;
use crate::schedule::{ScheduleError, ScheduleSpec};

pub use evaluate::{EvaluateError, EvaluateSpec};
pub use pipeline::{Auto, PipelineSpec, PipelineSpecError, StageSpec, Stages};
pub use read::{ReadError, read_toml, set_field};
pub use sharing::{Resplit, Warmup, WarmupRule};
pub use swarm::{Quorum, SwarmError, SwarmSpec, Work};

/// The most threads of a process. More than there are cores only wait for each other, and starting thousands takes longer than training.
pub const MOST_THREADS: usize = 1024;

/// What to train, on what, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Job {
    /// The model: a name from the zoo (`mnist-cnn`, `mlp:512,512`) or the path of a description (`*.toml`).
    pub model: String,
    /// Number of epochs.
    pub epochs: u64,
    /// Samples in a batch.
    pub batch: usize,
    /// The most samples that are computed at a time: the gradients of a larger batch's parts are accumulated, which takes less memory. 0
    /// for the whole batch at once.
    pub micro_batch: usize,
    /// How much of the parameters' exponential moving average stays with each step, as 0.999: it is then what is tested and what checkpoints
    /// have as the model, while training goes on with the parameters themselves. In the first steps less stays. 0 for no average.
    pub ema: f32,
    /// What a batch is made of: `shuffled`, `balanced` or `balanced-repeat`.
    pub order: Order,
    /// What becomes of a last batch that is not full: `keep` or `drop`.
    pub last: LastBatch,
    /// Where all randomness comes from.
    pub seed: u64,
    /// What computes: the name of a backend (`cpu`).
    pub backend: String,
    /// Number of compute threads; 0 for as many as the machine has.
    pub threads: usize,
    /// Changes to the pictures while training: `none`, or `{ crop-flip = { padding = 4, flip = true } }`.
    pub augment: Augmentation,
    /// The data.
    pub data: DataSpec,
    /// The loss.
    pub loss: LossSpec,
    /// The optimizer.
    pub optimizer: OptimizerSpec,
    /// The learning rate's course.
    pub schedule: ScheduleSpec,
    /// When to save.
    pub checkpoint: CheckpointSpec,
    /// How often to test within epochs.
    pub evaluate: EvaluateSpec,
    /// How peers train together.
    pub swarm: SwarmSpec,
    /// Which peers hold which layers; without it, each holds all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineSpec>,
}

/// Random changes to pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Augmentation {
    /// Shifted by up to `padding` pixels each way, and half of them mirrored if `flip`.
    CropFlip {
        /// How far.
        padding: usize,
        /// Whether mirroring is allowed.
        flip: bool,
    },
    /// As they are.
    #[default]
    None,
}

impl Augmentation {
    /// Changes samples of this shape; the seed decides how.
    pub(crate) fn apply(self, batch: &mut Batch, shape: &[usize], seed: u64) {
        if let (Self::CropFlip { padding, flip }, [height, width, channels]) = (self, shape) {
            let mut rng = Rng::stream(seed, "augment", 0);
            let flip = if flip { Flip::Horizontal } else { Flip::Never };
            crop_flip(batch, [*height, *width, *channels], padding, flip, &mut rng);
        }
    }
}

/// When checkpoints are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointSpec {
    /// After every so many epochs; 0 for only at the end.
    pub every: u64,
    /// How many are kept; older ones are removed once a newer one is whole.
    pub keep: usize,
}

impl Default for CheckpointSpec {
    fn default() -> Self {
        Self { every: 1, keep: 2 }
    }
}

/// What holds where a job says nothing.
impl Default for Job {
    fn default() -> Self {
        Self {
            model: "digits-cnn".into(),
            epochs: 10,
            batch: 32,
            micro_batch: 0,
            ema: 0.0,
            order: Order::default(),
            last: LastBatch::default(),
            seed: 1,
            backend: "cpu".into(),
            threads: 0,
            augment: Augmentation::default(),
            data: DataSpec { name: Some("digits".into()), ..DataSpec::default() },
            loss: LossSpec::default(),
            optimizer: OptimizerSpec::default(),
            schedule: ScheduleSpec::default(),
            checkpoint: CheckpointSpec::default(),
            evaluate: EvaluateSpec::default(),
            swarm: SwarmSpec::default(),
            pipeline: None,
        }
    }
}

/// Why a job cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no job.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A number makes no sense.
    #[error("{0}")]
    Setting(String),
    /// The optimizer's settings.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// The schedule's settings.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// When to test.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The swarm's settings.
    #[error(transparent)]
    Swarm(#[from] SwarmError),
    /// How layers are shared out.
    #[error(transparent)]
    Pipeline(#[from] PipelineSpecError),
    /// The model's name.
    #[error(transparent)]
    Zoo(#[from] zoo::ZooError),
    /// The model's layers.
    #[error("model {model}: {source}")]
    Model {
        /// Its name or path.
        model: String,
        /// What is wrong.
        source: ModelError,
    },
}

impl Job {
    /// A job from a file, with some fields set from outside (`optimizer.lr=0.1`).
    pub fn open(path: &Path, settings: &[String]) -> Result<Self, JobError> {
        let text = std::fs::read_to_string(path).map_err(|source| JobError::File { path: path.to_owned(), source })?;
        Self::parse(&path.display().to_string(), &text, settings)
    }

    /// A job from text; `name` is for messages.
    pub fn parse(name: &str, text: &str, settings: &[String]) -> Result<Self, JobError> {
        let job: Self = read::read_with(name, text, settings)?;
        job.check()?;
        Ok(job)
    }

    /// Refuses numbers that make no sense, and fields that do not go together. Text was checked when it was read; fields may have been set
    /// since.
    pub fn check(&self) -> Result<(), JobError> {
        bounds::check(self)?;
        self.optimizer.check()?;
        self.schedule.check()?;
        self.evaluate.check()?;
        self.swarm.check()?;
        if let Some(pipeline) = &self.pipeline {
            pipeline.check()?;
        }
        if !(0.0..1.0).contains(&self.ema) {
            return Err(JobError::Setting(format!("ema = {}: must be 0 or more and less than 1, as 0.999", self.ema)));
        }
        if self.ema > 0.0 && self.pipeline.is_some() {
            let problem =
                format!("ema = {}: only where each peer holds all layers; remove it, or [pipeline]", self.ema);
            return Err(JobError::Setting(problem));
        }
        if self.micro_batch > 0 && (self.pipeline.is_some() || self.python().is_some()) {
            let instead = if self.pipeline.is_some() {
                "pipeline.in_flight cuts batches"
            } else {
                "cut them in the model's own file"
            };
            return Err(JobError::Setting(format!(
                "micro_batch = {}: only for whole models of ours; {instead}",
                self.micro_batch
            )));
        }
        Ok(())
    }

    /// How samples become batches.
    pub fn batch_rule(&self) -> BatchRule {
        BatchRule { batch_size: self.batch, order: self.order, last: self.last }
    }

    /// The function that makes its model, if that is Python's: `file.py:function`.
    pub fn python(&self) -> Option<&str> {
        Some(self.model.as_str()).filter(|model| model.contains(".py:"))
    }

    /// The model's description for samples of this shape and this many classes.
    pub fn model_spec(&self, input: &[usize], n_classes: usize) -> Result<ModelSpec, JobError> {
        model_spec(&self.model, Some(input), Some(n_classes))
    }
}

/// Refuses more threads than anybody means.
pub fn check_threads(n_threads: usize) -> Result<(), JobError> {
    bounds::check_threads(n_threads)
}

/// A model's description by its name in the zoo or the path of its file.
pub fn model_spec(model: &str, input: Option<&[usize]>, n_classes: Option<usize>) -> Result<ModelSpec, JobError> {
    let path = Path::new(model);
    if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml")) {
        let text = std::fs::read_to_string(path).map_err(|source| JobError::File { path: path.to_owned(), source })?;
        return Ok(read_toml(model, &text)?);
    }
    Ok(zoo::describe(model, input, n_classes)?)
}

/// The network of a description; `model` is for messages.
pub fn build_network(model: &str, spec: &ModelSpec) -> Result<Network, JobError> {
    Network::new(spec).map_err(|source| JobError::Model { model: model.to_owned(), source })
}
