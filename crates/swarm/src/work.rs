//! What a peer has its host compute: a gradient, a local phase, a step of the optimizer, or a part of a test.
//!
//! Hosts run work where they like, on a thread or in place: it holds all that it needs, and what it changes comes back as
//! inputs of the peer.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::kernel::vectorised;
use nettorrent_engine::model::Score;
use nettorrent_engine::task::Worker;
use nettorrent_engine::train_error::TrainError;

use crate::batch_place::BatchPlace;
use crate::fingerprint::fingerprint;
use crate::outliers::{Computed, Outliers};
use crate::phase_work::{PhaseWork, Stepped};
use crate::step_work::{StepTaken, StepWork};

/// Something to compute.
#[derive(Debug)]
pub struct Work {
    /// Names it, so that what comes back too late is recognised.
    pub id: u64,
    /// What is to be computed.
    pub what: What,
}

/// What to compute.
#[derive(Debug)]
pub enum What {
    /// The gradient of a batch.
    Gradient {
        /// The parameters as they are now.
        values: Arc<Vec<f32>>,
        /// Which batch.
        place: BatchPlace,
        /// What is random about it.
        seed: u64,
        /// By what the gradient is multiplied.
        scale: f32,
        /// What is known of samples that would spoil it.
        outliers: Outliers,
        /// Vectors to be used again.
        spare: Vec<Vec<f32>>,
    },
    /// Several batches, with a step after each.
    Local(Box<PhaseWork>),
    /// A step of the optimizer.
    Step(Box<StepWork>),
    /// Something that replicas know nothing of.
    Other {
        /// The parameters as they are now.
        values: Arc<Vec<f32>>,
        /// What.
        work: Box<dyn OtherWork>,
    },
    /// How well training samples are classified.
    Score {
        /// The parameters as they are now.
        values: Arc<Vec<f32>>,
        /// Which.
        samples: Arc<[usize]>,
    },
    /// How well test samples are classified.
    Test {
        /// The parameters as they are now.
        values: Arc<Vec<f32>>,
        /// Which.
        samples: Range<usize>,
        /// Whether the parameters are to be compared with those of others, so that their hash is wanted.
        is_compared: bool,
    },
}

/// What peers of another kind have computed, such as those that hold a part of the network.
pub trait OtherWork: Send + Sync + fmt::Debug {
    /// How many samples it is about.
    fn n_samples(&self) -> usize;

    /// How many samples could be trained, with the whole network and both ways, for what it takes.
    fn worth(&self) -> f64;

    /// Does it with these parameters.
    fn run(self: Box<Self>, values: &[f32], worker: &mut dyn Worker) -> Result<Box<dyn Any + Send + Sync>, TrainError>;
}

/// What came of it.
#[derive(Debug)]
pub enum Done {
    /// A part of the gradient, while the rest is still computed.
    Bucket {
        /// Of which work.
        id: u64,
        /// Which part.
        bucket: usize,
        /// Its numbers, scaled.
        numbers: Vec<f32>,
    },
    /// All parts of the gradient were handed over.
    Trained {
        /// Of which work.
        id: u64,
        /// How the batch was classified.
        score: Score,
        /// Samples that were left out for the first time: they have no finite loss or gradient, or an enormous one.
        left_out: Vec<usize>,
        /// How large a number of the gradient's first bucket is; 0 if there is nothing to compare it with.
        size: f64,
    },
    /// A step of a local phase is taken.
    Stepped {
        /// Of which work.
        id: u64,
        /// How.
        stepped: Stepped,
    },
    /// A step of the optimizer is taken; or a local phase ended early, and this is what it came to.
    StepTaken {
        /// Of which work.
        id: u64,
        /// What came of it.
        taken: Box<StepTaken>,
    },
    /// Training samples are classified.
    Scored {
        /// Of which work.
        id: u64,
        /// How well.
        score: Score,
    },
    /// The test is done.
    Tested {
        /// Of which work.
        id: u64,
        /// How the samples were classified.
        score: Score,
        /// The [`fingerprint`] of the parameters, if it was wanted.
        hash: Option<u64>,
    },
    /// Something else is computed.
    Other {
        /// Of which work.
        id: u64,
        /// What came of it.
        result: Box<dyn Any + Send + Sync>,
    },
    /// It cannot be done.
    Failed {
        /// Why not.
        problem: String,
    },
}

impl Work {
    /// How many samples it is about; a local phase, in its next batch.
    pub fn n_samples(&self) -> usize {
        match &self.what {
            What::Gradient { place, .. } => place.samples().len(),
            What::Local(phase) => phase.n_samples(),
            What::Step(_) => 0,
            What::Score { samples, .. } => samples.len(),
            What::Test { samples, .. } => samples.len(),
            What::Other { work, .. } => work.n_samples(),
        }
    }

    /// How many samples could be trained, with the whole network and both ways, for what that takes.
    pub fn worth(&self) -> f64 {
        match &self.what {
            What::Gradient { .. } | What::Local(_) => self.n_samples() as f64,
            What::Step(_) => 0.0,
            What::Score { .. } | What::Test { .. } => self.n_samples() as f64 / 3.0,
            What::Other { work, .. } => work.worth(),
        }
    }

    /// Whether it is training, not testing.
    pub fn is_training(&self) -> bool {
        matches!(self.what, What::Gradient { .. } | What::Local(_))
    }

    /// Tells a worker that does all of a peer's work which samples are likely to be next. Local phases say so themselves.
    pub fn prefetch(&self, worker: &mut dyn Worker) {
        if let What::Gradient { place, .. } = &self.what {
            worker.prefetch(place.next_samples());
        }
    }

    /// Does it. What comes of it is handed over piece by piece, the last piece when nothing of this work is held any more.
    pub fn run(self, worker: &mut dyn Worker, hand_over: &mut (dyn FnMut(Done) + Send)) {
        let id = self.id;
        let done = match self.what {
            What::Local(phase) => match phase.run(worker, &mut |stepped| hand_over(Done::Stepped { id, stepped })) {
                Ok(None) => return,
                Ok(Some(taken)) => Ok(Done::StepTaken { id, taken: Box::new(taken) }),
                Err(error) => Err(error),
            },
            What::Step(step) => step.run(worker).map(|taken| Done::StepTaken { id, taken: Box::new(taken) }),
            What::Other { values, work } => work.run(&values, worker).map(|result| Done::Other { id, result }),
            What::Score { values, samples } => {
                worker.begin(&values, None);
                worker.score(&values, &samples).map(|score| Done::Scored { id, score })
            }
            What::Test { values, samples, is_compared } => {
                let hash = is_compared.then(|| fingerprint(&values));
                let score = if samples.is_empty() {
                    Ok(Score::default())
                } else {
                    worker.begin(&values, None);
                    worker.test(&values, samples)
                };
                score.map(|score| Done::Tested { id, score, hash })
            }
            What::Gradient { values, place, seed, scale, outliers, mut spare } => {
                let mut give = |bucket: usize, numbers: &[f32]| {
                    hand_over(Done::Bucket { id, bucket, numbers: scaled(numbers, scale, &mut spare) });
                };
                worker.begin(&values, None);
                let computed = outliers.gradient(worker, &values, &place, seed, &mut give);
                // The peer changes its parameters when it hears of the end; if they were still held here, it would have to copy them.
                drop(values);
                computed.map(|Computed { score, left_out, size }| Done::Trained { id, score, left_out, size })
            }
        };
        match done {
            Ok(done) => hand_over(done),
            Err(TrainError::Cancelled) => {}
            Err(error) => hand_over(Done::Failed { problem: error.to_string() }),
        }
    }
}

/// The numbers times `scale`, in a vector that was used before if there is one of their length.
pub(crate) fn scaled(numbers: &[f32], scale: f32, spare: &mut Vec<Vec<f32>>) -> Vec<f32> {
    let mut scaled = take_spare(spare, numbers.len());
    vectorised(|| scaled.iter_mut().zip(numbers).for_each(|(scaled, number)| *scaled = number * scale));
    scaled
}

/// A vector of this length whose numbers do not matter.
pub(crate) fn take_spare(spare: &mut Vec<Vec<f32>>, len: usize) -> Vec<f32> {
    match spare.iter().position(|vector| vector.len() == len) {
        Some(at) => spare.swap_remove(at),
        None => vec![0.0; len],
    }
}
