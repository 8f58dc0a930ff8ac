//! Some of a task's samples: a pilot of a long job learns from fewer, so that it sees all of its epochs.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::measure::Measure;
use nettorrent_engine::model::{Layout, Score, Workspace};
use nettorrent_engine::rng::Rng;
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;

/// A task with fewer samples, drawn at random. The test samples are the first ones.
pub(crate) struct Sampled {
    task: Arc<dyn Task>,
    /// Of each training sample, where it is in the whole task.
    indices: Vec<usize>,
    labels: Vec<u32>,
    n_test: usize,
}

impl Sampled {
    /// So many of a task's training and test samples, at most all that it has.
    pub(crate) fn new(task: Arc<dyn Task>, n_train: usize, n_test: usize, seed: u64) -> Self {
        let mut indices: Vec<usize> = (0..task.labels().len()).collect();
        Rng::stream(seed, "sampled", 0).shuffle(&mut indices);
        indices.truncate(n_train);
        indices.sort_unstable();
        let labels = indices.iter().map(|&index| task.labels()[index]).collect();
        let n_test = n_test.min(task.n_test());
        Self { task, indices, labels, n_test }
    }
}

impl Task for Sampled {
    fn layout(&self) -> &Layout {
        self.task.layout()
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        self.task.init(seed)
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn n_test(&self) -> usize {
        self.n_test
    }

    fn measure(&self) -> Measure {
        self.task.measure()
    }

    fn metrics(&self) -> &[String] {
        self.task.metrics()
    }

    fn worker(self: Arc<Self>, n_threads: usize) -> Result<Box<dyn Worker>, TrainError> {
        let worker = self.task.clone().worker(n_threads)?;
        Ok(Box::new(SampledWorker { task: self, worker }))
    }
}

struct SampledWorker {
    task: Arc<Sampled>,
    worker: Box<dyn Worker>,
}

impl SampledWorker {
    fn in_whole(&self, samples: &[usize]) -> Vec<usize> {
        // What is beyond the end here is so there too, where it is an error.
        let beyond = self.task.task.labels().len();
        samples.iter().map(|&index| self.task.indices.get(index).copied().unwrap_or(beyond)).collect()
    }
}

impl Worker for SampledWorker {
    fn layout(&self) -> &Layout {
        self.task.layout()
    }

    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let samples = self.in_whole(samples);
        self.worker.gradient(values, &samples, seed, sink)
    }

    fn prefetch(&mut self, samples: &[usize]) {
        let samples = self.in_whole(samples);
        self.worker.prefetch(&samples);
    }

    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        let samples = self.in_whole(samples);
        self.worker.score(values, &samples)
    }

    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.worker.test(values, samples)
    }

    fn workspace(&mut self) -> Option<&mut Workspace> {
        self.worker.workspace()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nettorrent_engine::task::{Task, Worker};
    use nettorrent_sim::Toy;

    use super::Sampled;

    #[test]
    fn a_sample_is_the_same_one_as_in_the_whole_task() {
        let whole: Arc<dyn Task> = Arc::new(Toy::new(1));
        let some = Arc::new(Sampled::new(whole.clone(), 30, 10, 7));
        assert_eq!((some.labels().len(), some.n_test()), (30, 10));
        assert_ne!(some.indices, (0..30).collect::<Vec<_>>(), "they are drawn at random");
        let values = whole.init(1);
        let gradient = |worker: &mut dyn Worker, index: usize| {
            let mut gradient = Vec::new();
            worker.gradient(&values, &[index], 1, &mut |_, bucket| gradient.extend_from_slice(bucket)).map(|_| gradient)
        };
        let mut workers = [some.clone(), whole.clone()].map(|task: Arc<dyn Task>| task.worker(1).unwrap());
        let [of_some, of_whole] = workers.each_mut();
        for (here, &there) in some.indices.iter().enumerate() {
            assert_eq!(some.labels()[here], whole.labels()[there]);
            assert_eq!(gradient(of_some.as_mut(), here).unwrap(), gradient(of_whole.as_mut(), there).unwrap());
        }
        assert!(gradient(of_some.as_mut(), 30).is_err());
        let all = Sampled::new(whole.clone(), 10_000, 10_000, 7);
        assert_eq!((all.labels(), all.n_test()), (whole.labels(), whole.n_test()));
    }
}
