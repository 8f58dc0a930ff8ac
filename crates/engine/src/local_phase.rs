//! A local phase: the batches that a peer trains by itself, one step after the other, before it exchanges anything.

use crate::model::Score;

/// A batch of a local phase.
#[derive(Clone, Copy, Debug)]
pub struct LocalBatch<'a> {
    /// Its training samples.
    pub samples: &'a [usize],
    /// What is random about it: see [`crate::task::Worker::gradient`].
    pub seed: u64,
    /// The samples of the batch that is likely to be trained next, perhaps after an exchange; none if that is not known.
    pub next: &'a [usize],
}

/// What a worker has to train in a local phase, as the one who asked for it says batch by batch; and who hears how it goes.
pub trait LocalPhase: Send {
    /// The next batch. None ends the phase: all are trained, or nobody wants the rest.
    fn next_batch(&mut self) -> Option<LocalBatch<'_>>;

    /// The learning rate for the step with that batch. It changes when peers come or go during the phase, so it is asked for as late as
    /// can be; a worker that is ahead of its device takes the rate of the moment.
    fn lr(&self) -> f32;

    /// The largest loss of a batch that a step is taken with: one that is far larger than usual is looked into first.
    fn most_loss(&self) -> f64 {
        f64::MAX
    }

    /// The step with that batch is taken, and this is how well the model had done on it.
    fn on_step(&mut self, score: Score);
}

/// How a worker's part in a local phase ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhaseEnd {
    /// There was no further batch.
    Over,
    /// The last batch has a loss or a gradient that is not finite, or too large a loss. No step was taken with it: whoever asked sees to
    /// that batch, and may ask for the rest.
    Spoilt,
}
