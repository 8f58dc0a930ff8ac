//! What a peer has its host compute: a gradient, or a part of a test.
//!
//! Hosts run work where they like, on a thread or in place: it holds all that it needs, and what it changes comes back as
//! inputs of the peer.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::bad_samples::find_bad_samples;
use nettorrent_engine::data::plan::Plan;
use nettorrent_engine::kernel::{is_finite, vectorised};
use nettorrent_engine::model::{Score, Workspace};
use nettorrent_engine::task::Task;
use nettorrent_engine::train_error::TrainError;

use crate::layers::{PartDone, PartWork};

/// Something to compute.
#[derive(Debug)]
pub struct Work {
    /// Names it, so that what comes back too late is recognised.
    pub(crate) id: u64,
    /// The parameters as they are now.
    pub(crate) values: Arc<Vec<f32>>,
    pub(crate) what: What,
}

/// What to compute.
#[derive(Debug)]
pub(crate) enum What {
    /// The gradient of a batch, the peer's `step`-th, times `scale`.
    Gradient { plan: Arc<Plan>, seat: usize, batch: usize, step: u64, seed: u64, scale: f32, spare: Vec<Vec<f32>> },
    /// A block's part of what a layer network computes.
    Part(PartWork),
    /// How well these training samples are classified.
    Score { samples: Arc<[usize]> },
    /// How well these test samples are classified.
    Test { samples: Range<usize> },
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
    /// All parts were handed over.
    Trained {
        /// Of which work.
        id: u64,
        /// How the batch was classified.
        score: Score,
        /// Samples that were left out because they have no finite loss or gradient.
        left_out: Vec<usize>,
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
    },
    /// A block's part is computed.
    Part {
        /// Of which work.
        id: u64,
        /// What came of it.
        part: PartDone,
    },
    /// It cannot be done.
    Failed {
        /// Why not.
        problem: String,
    },
}

/// Threads and memory for work, used again and again.
pub struct Workbench {
    room: Workspace,
    gradient: Vec<f32>,
}

impl Workbench {
    /// A bench with the threads of this room.
    pub fn new(room: Workspace) -> Self {
        Self { room, gradient: Vec::new() }
    }
}

/// What an ordinary sample's loss is when training begins, about: far beyond it, parameters are to blame and not samples.
const USUAL_LOSS: f64 = 3.0;

impl Workbench {
    /// Computes the gradient of a batch, and hands its buckets over as they come. If the very first is not finite, the samples that
    /// are to blame are looked for, and the rest is trained without them; they are returned.
    fn train(
        &mut self,
        task: &dyn Task,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        give: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<(Score, Vec<usize>), TrainError> {
        let Self { room, gradient } = self;
        gradient.resize(task.n_values(), 0.0);
        let mut is_spoilt = false;
        let mut n_given = 0;
        let mut give_unless_spoilt = |bucket: usize, numbers: &[f32]| {
            is_spoilt |= n_given == 0 && !is_finite(numbers);
            if !is_spoilt {
                n_given += 1;
                give(bucket, numbers);
            }
        };
        let score = task.gradient(values, samples, seed, gradient, room, &mut give_unless_spoilt)?;
        if !is_spoilt {
            return Ok((score, Vec::new()));
        }
        let bad = find_bad_samples(task, values, samples, USUAL_LOSS, room)?;
        let rest: Vec<usize> = samples.iter().copied().filter(|sample| !bad.contains(sample)).collect();
        if bad.is_empty() || rest.is_empty() {
            // Who gets this knows what to make of it.
            task.buckets().iter().enumerate().for_each(|(bucket, place)| give(bucket, &gradient[place.clone()]));
            return Ok((score, Vec::new()));
        }
        let score = task.gradient(values, &rest, seed, gradient, room, give)?;
        Ok((score, bad))
    }
}

impl Work {
    /// How many samples it is about.
    pub fn n_samples(&self) -> usize {
        match &self.what {
            What::Gradient { plan, seat, batch, .. } => plan.batch(*seat, *batch).len(),
            What::Score { samples } => samples.len(),
            What::Test { samples } => samples.len(),
            What::Part(work) => work.n_samples(),
        }
    }

    /// How many samples could be trained, with the whole network and both ways, for what it takes.
    pub fn worth(&self) -> f64 {
        match &self.what {
            What::Gradient { .. } => self.n_samples() as f64,
            What::Score { .. } | What::Test { .. } => self.n_samples() as f64 / 3.0,
            What::Part(work) => work.worth(),
        }
    }

    /// Whether it is training, not testing.
    pub fn is_training(&self) -> bool {
        matches!(self.what, What::Gradient { .. })
    }

    /// Does it. What comes of it is handed over piece by piece, the last piece when nothing of this work is held any more.
    pub fn run(self, task: &dyn Task, bench: &mut Workbench, hand_over: &mut (dyn FnMut(Done) + Send)) {
        let Self { id, values, what } = self;
        let result = match what {
            What::Part(work) => work.run(&values, &mut bench.room).map(|part| Done::Part { id, part }),
            What::Score { samples } => {
                let score = task.score(&values, &samples, &mut bench.room);
                score.map(|score| Done::Scored { id, score })
            }
            What::Test { samples } => {
                let score = task.test(&values, samples, &mut bench.room);
                score.map(|score| Done::Tested { id, score })
            }
            What::Gradient { plan, seat, batch, seed, scale, mut spare, .. } => {
                let mut give = |bucket: usize, numbers: &[f32]| {
                    hand_over(Done::Bucket { id, bucket, numbers: scaled(numbers, scale, &mut spare) });
                };
                let trained = bench.train(task, &values, plan.batch(seat, batch), seed, &mut give);
                trained.map(|(score, left_out)| Done::Trained { id, score, left_out })
            }
        };
        // The peer changes its parameters when it hears of the end; if they were still held here, it would have to copy them.
        drop(values);
        hand_over(result.unwrap_or_else(|error| Done::Failed { problem: error.to_string() }));
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
