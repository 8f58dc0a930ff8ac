//! Workers for tasks that are plain functions, with no threads, buffers or device of their own.

use std::ops::Range;
use std::sync::Arc;

use crate::model::{Layout, Score};
use crate::task::{GradientSink, Task, Worker};
use crate::train_error::TrainError;

/// A task that computes by itself. See [`Worker`] for what its functions do.
pub trait Stateless: Task + 'static {
    /// See [`Worker::gradient`].
    fn gradient(
        &self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError>;

    /// See [`Worker::score`].
    fn score(&self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError>;

    /// See [`Worker::test`].
    fn test(&self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError>;
}

/// A worker that calls the task's own functions.
pub struct StatelessWorker<T>(pub Arc<T>);

impl<T: Stateless> Worker for StatelessWorker<T> {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        self.0.gradient(values, samples, seed, sink)
    }

    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        self.0.score(values, samples)
    }

    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.0.test(values, samples)
    }
}
