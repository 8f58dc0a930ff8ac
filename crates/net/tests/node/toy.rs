//! A task that is nothing but a wait at a gate, so that tests decide when a peer computes.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;

/// Lets a thread pass or holds it up.
#[derive(Default)]
pub(crate) struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap());
    }
}

/// A vector whose gradients are zeros.
pub(crate) struct Toy {
    layout: Layout,
    gate: Arc<Gate>,
}

impl Toy {
    pub(crate) fn new(gate: Arc<Gate>) -> Self {
        Self { layout: Layout::of_tensors([("weight", [8].as_slice())]), gate }
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
        self.gate.pass();
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
