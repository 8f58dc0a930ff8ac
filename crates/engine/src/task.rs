//! What is to be learnt, as peers see it: an immutable function that any number of them share.

use std::ops::Range;

use crate::model::{Score, Workspace};
use crate::train_error::TrainError;

/// A model with its data, as a function of the parameters. It keeps nothing from call to call, so that peers of one process
/// may ask at the same time, each with parameters and a [`Workspace`] of its own.
pub trait Task: Send + Sync {
    /// How many numbers are trained.
    fn n_params(&self) -> usize;

    /// Length of the flat vector: the trained numbers, then the running statistics.
    fn n_values(&self) -> usize;

    /// The flat vector to start from; the same for all peers with the same seed.
    fn init(&self, seed: u64) -> Vec<f32>;

    /// The labels of the training samples.
    fn labels(&self) -> &[u32];

    /// How many test samples there are.
    fn n_test(&self) -> usize;

    /// Ranges of the flat vector in the order in which a backward pass completes them; together they cover it once.
    fn buckets(&self) -> &[Range<usize>];

    /// The gradient of the mean loss of these training samples, and how well the model did on them.
    ///
    /// `seed` decides what dropout drops and how samples are varied; it should be a new one for every step. For each bucket,
    /// in order, `on_bucket(k, &gradient[buckets[k]])` is called as soon as the bucket is final, while the rest is still
    /// computed; it should not panic, for other threads may be waiting for the one that calls it.
    ///
    /// # Panics
    /// If `values` or `gradient` are not [`n_values`](Self::n_values) long.
    fn gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
        on_bucket: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<Score, TrainError>;

    /// How well the model does on some of the training samples, as they are: nothing is dropped or varied.
    ///
    /// # Panics
    /// If there are no such samples.
    fn score(&self, values: &[f32], indices: &[usize], room: &mut Workspace) -> Result<Score, TrainError>;

    /// How well the model does on some of the test samples. Scores of parts add up to the whole's.
    ///
    /// # Panics
    /// If there are no such samples.
    fn test(&self, values: &[f32], samples: Range<usize>, room: &mut Workspace) -> Result<Score, TrainError>;
}
