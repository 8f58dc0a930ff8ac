//! What a block has its host compute: its part of the forward pass, and the two ways down.

use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::data::Targets;
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::{Mode, Part, Pass, Rows, Score, Workspace, loss_gradient};
use nettorrent_engine::task::Worker;
use nettorrent_engine::train_error::TrainError;
use nettorrent_swarm::OtherWork;
use nettorrent_swarm::sampling::plan::Plan;

/// The samples of a pass.
#[derive(Clone, Debug)]
pub(crate) enum Samples {
    /// A batch of the sampler.
    Batch { plan: Arc<Plan>, slot: usize, batch: usize },
    /// These of the training samples.
    Train(Arc<[usize]>, Range<usize>),
    /// These of the test samples.
    Test(Range<usize>),
}

impl Samples {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Batch { plan, slot, batch } => plan.batch(*slot, *batch).len(),
            Self::Train(_, range) | Self::Test(range) => range.len(),
        }
    }

    /// What the network should say about some of them.
    pub(crate) fn targets(&self, learning: &Learning, rows: Range<usize>) -> Result<Targets, TrainError> {
        match self {
            Self::Batch { plan, slot, batch } => learning.train_targets(&plan.batch(*slot, *batch)[rows]),
            Self::Train(indices, range) => learning.train_targets(&indices[range.clone()][rows]),
            Self::Test(range) => learning.test_targets(range.start + rows.start..range.start + rows.end),
        }
    }

    /// The score of some of them, of which the network says this; a whole batch has `n`.
    pub(crate) fn score(
        &self,
        learning: &Learning,
        rows: Range<usize>,
        outputs: &[f32],
        n: usize,
    ) -> Result<Score, TrainError> {
        let targets = self.targets(learning, rows.clone())?;
        let (score, _) = loss_gradient(learning.network().loss(), outputs, targets.rows(), rows.len(), n);
        Ok(match self {
            Self::Batch { .. } | Self::Train(..) => score,
            Self::Test(_) => learning.beside_test(score),
        })
    }

    /// The inputs of some of them. What is random about a batch is so for the batch as a whole.
    fn inputs(
        &self,
        learning: &Learning,
        mode: Mode,
        rows: Range<usize>,
        room: &Workspace,
    ) -> Result<Vec<f32>, TrainError> {
        let seed = match mode {
            Mode::Train { seed } => Some(seed),
            Mode::Test => None,
        };
        let batch = match self {
            Self::Batch { plan, slot, batch } => learning.read_train(plan.batch(*slot, *batch), seed, room)?,
            Self::Train(indices, range) => learning.read_train(&indices[range.clone()], seed, room)?,
            Self::Test(range) => learning.read_test(range.clone(), room)?,
        };
        let len = batch.inputs.len() / batch.len().max(1);
        Ok(batch.inputs[rows.start * len..rows.end * len].to_vec())
    }
}

/// Where the numbers that go up come from.
#[derive(Debug)]
pub(crate) enum Feed {
    /// The samples themselves.
    Samples { samples: Samples, learning: Arc<Learning> },
    /// The stage below.
    Numbers(Vec<f32>),
}

/// Where the gradient by the outputs comes from.
#[derive(Debug)]
pub(crate) enum Descent {
    /// The loss: these are the whole network's outputs, and this block made some of their columns.
    Loss { outputs: Vec<f32>, samples: Samples, learning: Arc<Learning> },
    /// The stage above.
    Numbers(Vec<f32>),
}

/// Something to compute with a block.
#[derive(Debug)]
pub(crate) enum PartWork {
    /// The forward pass.
    Forward { part: Arc<Part>, feed: Feed, rows: Rows, mode: Mode, share: f64 },
    /// The gradient by the inputs.
    InputGradient { part: Arc<Part>, pass: Box<Pass>, descent: Descent, rows: Rows, is_wanted: bool, share: f64 },
    /// The gradient by the block's own numbers.
    WeightGradient { part: Arc<Part>, pass: Box<Pass>, rows: Rows, share: f64 },
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum PartDone {
    /// The forward pass is done.
    Forward {
        /// What is kept of it, with the outputs.
        pass: Box<Pass>,
    },
    /// The gradient by the inputs is there.
    InputGradient {
        /// What is kept for the other gradient.
        pass: Box<Pass>,
        /// The gradient.
        gradient: Vec<f32>,
        /// How well the samples were classified, if this block knows.
        score: Option<Score>,
    },
    /// The gradient by the block's own numbers is there.
    WeightGradient {
        /// It.
        gradient: Vec<f32>,
    },
}

impl OtherWork for PartWork {
    fn n_samples(&self) -> usize {
        match self {
            Self::Forward { rows, .. } | Self::InputGradient { rows, .. } | Self::WeightGradient { rows, .. } => rows.n,
        }
    }

    /// Each way is about a third of a sample's training.
    fn worth(&self) -> f64 {
        let (Self::Forward { share, .. } | Self::InputGradient { share, .. } | Self::WeightGradient { share, .. }) =
            self;
        self.n_samples() as f64 * share / 3.0
    }

    fn run(self: Box<Self>, values: &[f32], worker: &mut dyn Worker) -> Result<Box<dyn Any + Send + Sync>, TrainError> {
        match worker.workspace() {
            Some(room) => Ok(Box::new(self.compute(values, room)?)),
            None => Err(TrainError::Mismatch("this backend computes whole networks only".into())),
        }
    }
}

impl PartWork {
    fn compute(self, values: &[f32], room: &mut Workspace) -> Result<PartDone, TrainError> {
        match self {
            Self::Forward { part, feed, rows, mode, .. } => {
                let inputs = match feed {
                    Feed::Numbers(numbers) => numbers,
                    Feed::Samples { samples, learning } => {
                        samples.inputs(&learning, mode, rows.first..rows.first + rows.n, room)?
                    }
                };
                Ok(PartDone::Forward { pass: Box::new(part.forward(values, inputs, rows, mode, room)) })
            }
            Self::InputGradient { part, mut pass, descent, rows, is_wanted, .. } => {
                let (score, gradient) = match descent {
                    Descent::Numbers(numbers) => (None, numbers),
                    Descent::Loss { outputs, samples, learning } => {
                        let targets = samples.targets(&learning, rows.first..rows.first + rows.n)?;
                        let loss = learning.network().loss();
                        let (score, gradient) = loss_gradient(loss, &outputs, targets.rows(), rows.n, rows.batch_len);
                        (Some(score), part.outputs().take(&gradient))
                    }
                };
                let gradient = part.input_gradient(values, &mut pass, &gradient, is_wanted, room);
                Ok(PartDone::InputGradient { pass, gradient, score })
            }
            Self::WeightGradient { part, pass, .. } => {
                let mut gradient = vec![0.0; part.n_values()];
                part.weight_gradient(values, *pass, &mut gradient, room);
                Ok(PartDone::WeightGradient { gradient })
            }
        }
    }
}
