//! Some of a task's samples: a pilot of a long job learns from fewer, so that it sees all of its epochs.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::model::{Score, Workspace};
use nettorrent_engine::rng::Rng;
use nettorrent_engine::task::Task;
use nettorrent_engine::train_error::TrainError;

/// A task with fewer samples, drawn at random. The test samples are the first ones.
pub struct Sampled {
    task: Arc<dyn Task>,
    /// Of each training sample, where it is in the whole task.
    indices: Vec<usize>,
    labels: Vec<u32>,
    n_test: usize,
}

impl Sampled {
    /// So many of a task's training and test samples, at most all that it has.
    pub fn new(task: Arc<dyn Task>, n_train: usize, n_test: usize, seed: u64) -> Self {
        let mut indices: Vec<usize> = (0..task.labels().len()).collect();
        Rng::stream(seed, "sampled", 0).shuffle(&mut indices);
        indices.truncate(n_train);
        indices.sort_unstable();
        let labels = indices.iter().map(|&index| task.labels()[index]).collect();
        let n_test = n_test.min(task.n_test());
        Self { task, indices, labels, n_test }
    }

    fn in_whole(&self, indices: &[usize]) -> Vec<usize> {
        // What is beyond the end here is so there too, where it is an error.
        let beyond = self.task.labels().len();
        indices.iter().map(|&index| self.indices.get(index).copied().unwrap_or(beyond)).collect()
    }
}

impl Task for Sampled {
    fn n_params(&self) -> usize {
        self.task.n_params()
    }

    fn n_values(&self) -> usize {
        self.task.n_values()
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

    fn buckets(&self) -> &[Range<usize>] {
        self.task.buckets()
    }

    fn gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        gradient: &mut [f32],
        room: &mut Workspace,
        on_bucket: &mut (dyn FnMut(usize, &[f32]) + Send),
    ) -> Result<Score, TrainError> {
        self.task.gradient(values, &self.in_whole(indices), seed, gradient, room, on_bucket)
    }

    fn score(&self, values: &[f32], indices: &[usize], room: &mut Workspace) -> Result<Score, TrainError> {
        self.task.score(values, &self.in_whole(indices), room)
    }

    fn test(&self, values: &[f32], samples: Range<usize>, room: &mut Workspace) -> Result<Score, TrainError> {
        self.task.test(values, samples, room)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nettorrent_engine::model::Workspace;
    use nettorrent_engine::task::Task;
    use nettorrent_sim::Toy;

    use super::Sampled;

    #[test]
    fn a_sample_is_the_same_one_as_in_the_whole_task() {
        let whole: Arc<dyn Task> = Arc::new(Toy::new(1));
        let some = Sampled::new(whole.clone(), 30, 10, 7);
        assert_eq!((some.labels().len(), some.n_test()), (30, 10));
        assert_ne!(some.indices, (0..30).collect::<Vec<_>>(), "they are drawn at random");
        let (values, mut room) = (whole.init(1), Workspace::new(1).unwrap());
        let gradient = |task: &dyn Task, index: usize, room: &mut Workspace| {
            let mut gradient = vec![0.0; task.n_values()];
            task.gradient(&values, &[index], 1, &mut gradient, room, &mut |_, _| {}).map(|_| gradient)
        };
        for (here, &there) in some.indices.iter().enumerate() {
            assert_eq!(some.labels()[here], whole.labels()[there]);
            assert_eq!(gradient(&some, here, &mut room).unwrap(), gradient(&*whole, there, &mut room).unwrap());
        }
        assert!(gradient(&some, 30, &mut room).is_err());
        let all = Sampled::new(whole.clone(), 10_000, 10_000, 7);
        assert_eq!((all.labels(), all.n_test()), (whole.labels(), whole.n_test()));
    }
}
