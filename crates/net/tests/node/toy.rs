//! A task that computes nothing.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;

/// A vector whose gradients are zeros.
pub(crate) struct Toy {
    layout: Layout,
}

impl Toy {
    pub(crate) fn new() -> Self {
        Self { layout: Layout::of_tensors([("weight", [8].as_slice())]) }
    }
}

impl Task for Toy {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, _: u64) -> Vec<f32> {
        vec![0.0; 8]
    }

    fn labels(&self) -> &[u32] {
        &[0; 640]
    }

    fn n_test(&self) -> usize {
        0
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Toy {
    fn gradient(&self, _: &[f32], samples: &[usize], _: u64, sink: &mut GradientSink<'_>) -> Result<Score, TrainError> {
        sink(0, &[0.0; 8]);
        Ok(Score { n: samples.len(), ..Score::default() })
    }

    fn score(&self, _: &[f32], _: &[usize]) -> Result<Score, TrainError> {
        Ok(Score::default())
    }

    fn test(&self, _: &[f32], _: Range<usize>) -> Result<Score, TrainError> {
        Ok(Score::default())
    }
}
