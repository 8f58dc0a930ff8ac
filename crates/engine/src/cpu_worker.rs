//! The CPU backend: networks of our own layers, computed with this machine's processor.

use std::ops::Range;
use std::sync::Arc;

use crate::learning::Learning;
use crate::model::{Layout, Score, Workspace};
use crate::optimizer::Optimizer;
use crate::rng::Rng;
use crate::task::{GradientSink, Task, Worker};
use crate::train_error::TrainError;

impl Task for Learning {
    fn layout(&self) -> &Layout {
        self.layout()
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        self.network().init(&mut Rng::stream(seed, "init", 0))
    }

    fn labels(&self) -> &[u32] {
        self.train_labels()
    }

    fn n_test(&self) -> usize {
        self.test_labels().len()
    }

    fn origin(&self, sample: usize) -> Option<String> {
        self.train_origin(sample)
    }

    fn worker(self: Arc<Self>, n_threads: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(CpuWorker::new(self, n_threads)?))
    }
}

/// A worker with threads and memory, used again and again.
pub struct CpuWorker {
    learning: Arc<Learning>,
    workspace: Workspace,
    /// That of the last batch.
    gradient: Vec<f32>,
}

impl CpuWorker {
    /// A worker that computes with so many threads.
    pub fn new(learning: Arc<Learning>, n_threads: usize) -> Result<Self, TrainError> {
        let (workspace, gradient) = (Workspace::new(n_threads)?, vec![0.0; learning.n_values()]);
        Ok(Self { learning, workspace, gradient })
    }

    /// The same as [`Worker::gradient`] for those who have no use for buckets: it is kept.
    pub fn whole_gradient(&mut self, values: &[f32], samples: &[usize], seed: u64) -> Result<Score, TrainError> {
        self.learning.whole_gradient(values, samples, seed, &mut self.gradient, &mut self.workspace)
    }

    /// The gradient that was computed last.
    pub fn last_gradient(&self) -> &[f32] {
        &self.gradient
    }

    /// Takes a step with the gradient that was computed last.
    pub fn step(&self, optimizer: &mut Optimizer, lr: f32, values: &mut [f32]) {
        optimizer.step(lr, values, &self.gradient, &self.workspace);
    }

    /// The same as [`Worker::test`], ended early when `go_on` says no: the score then counts fewer samples.
    pub fn test_while(
        &mut self,
        values: &[f32],
        samples: Range<usize>,
        go_on: impl FnMut() -> bool,
    ) -> Result<Score, TrainError> {
        self.learning.test_while(values, samples, &mut self.workspace, go_on)
    }

    /// Number of its threads.
    pub fn n_threads(&self) -> usize {
        self.workspace.n_threads()
    }
}

impl Worker for CpuWorker {
    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        self.learning.gradient_in_buckets(values, samples, seed, &mut self.gradient, &mut self.workspace, sink)
    }

    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        self.learning.score(values, samples, &mut self.workspace)
    }

    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.test_while(values, samples, || true)
    }

    fn workspace(&mut self) -> Option<&mut Workspace> {
        Some(&mut self.workspace)
    }
}
