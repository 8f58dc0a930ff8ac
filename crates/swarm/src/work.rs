//! What a peer has its host compute: a gradient, or a part of a test.
//!
//! Hosts run work where they like, on a thread or in place: it holds all that it needs, and what it changes comes back as
//! inputs of the peer.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::data::plan::Plan;
use nettorrent_engine::kernel::vectorised;
use nettorrent_engine::model::{Score, Workspace};
use nettorrent_engine::task::Task;

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
                bench.gradient.resize(task.n_values(), 0.0);
                let mut on_bucket = |bucket: usize, numbers: &[f32]| {
                    hand_over(Done::Bucket { id, bucket, numbers: scaled(numbers, scale, &mut spare) });
                };
                let indices = plan.batch(seat, batch);
                let Workbench { room, gradient } = bench;
                let score = task.gradient(&values, indices, seed, gradient, room, &mut on_bucket);
                score.map(|score| Done::Trained { id, score })
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
