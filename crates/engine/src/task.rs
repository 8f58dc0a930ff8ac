//! What is trained, as peers see it: a [`Task`] says what there is, and its [`Worker`]s compute.

use std::ops::Range;
use std::sync::Arc;

use crate::model::{Layout, Score, Workspace};
use crate::train_error::TrainError;

/// A model with its data. It is immutable and shared by all peers of a process.
pub trait Task: Send + Sync {
    /// What the flat vector of parameters holds.
    fn layout(&self) -> &Layout;

    /// The flat vector to start from; the same for all peers with the same seed.
    fn init(&self, seed: u64) -> Vec<f32>;

    /// The labels of the training samples.
    fn labels(&self) -> &[u32];

    /// Number of test samples.
    fn n_test(&self) -> usize;

    /// Where a training sample comes from, for people, if that is known.
    fn origin(&self, _sample: usize) -> Option<String> {
        None
    }

    /// A worker that computes with so many threads.
    fn worker(self: Arc<Self>, n_threads: usize) -> Result<Box<dyn Worker>, TrainError>;

    /// Number of trained parameters.
    fn n_params(&self) -> usize {
        self.layout().n_params()
    }

    /// Length of the flat vector: the parameters, then the running statistics.
    fn n_values(&self) -> usize {
        self.layout().n_values()
    }

    /// See [`Layout::buckets`].
    fn buckets(&self) -> &[Range<usize>] {
        self.layout().buckets()
    }
}

/// Takes the buckets of a gradient, by their number in the [`Layout`], in order and each as soon as it is final, while the rest is
/// still computed. It should not panic, for other threads may be waiting for the one that calls it.
pub type GradientSink<'a> = dyn FnMut(usize, &[f32]) + Send + 'a;

/// Computes a task's gradients and losses. It owns the threads, buffers or device that it needs, and whatever it remembers from call
/// to call changes no result.
///
/// All its functions panic if `values` has another length than the task's [`Layout`] says.
pub trait Worker: Send {
    /// The gradient of the mean loss of these training samples, and how well the model did on them.
    ///
    /// `seed` decides what dropout drops and how samples are augmented; it should be a new one for every step.
    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError>;

    /// How well the model does on some of the training samples, without dropout or augmentation.
    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError>;

    /// How well the model does on some of the test samples. Scores of ranges add up to that of the whole.
    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError>;

    /// The CPU threads it computes with, if it can compute parts of a network as well as the whole.
    fn workspace(&mut self) -> Option<&mut Workspace> {
        None
    }
}
