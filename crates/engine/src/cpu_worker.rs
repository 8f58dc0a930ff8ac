//! The CPU backend: networks of our own layers, computed with this machine's processor.

use std::ops::Range;
use std::sync::Arc;

use crate::learning::Learning;
use crate::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
use crate::measure::Measure;
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

    fn measure(&self) -> Measure {
        self.measure()
    }

    fn metrics(&self) -> &[String] {
        self.metrics()
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
    /// That of the last batch; empty as long as nobody needs it.
    gradient: Vec<f32>,
}

/// A gradient of so many numbers is given back after a local phase: whoever exchanges weights needs the memory for these.
const LARGE: usize = 1 << 20;

impl CpuWorker {
    /// A worker that computes with so many threads.
    pub fn new(learning: Arc<Learning>, n_threads: usize) -> Result<Self, TrainError> {
        Ok(Self { learning, workspace: Workspace::new(n_threads)?, gradient: Vec::new() })
    }

    /// Room for a gradient.
    fn make_room(&mut self) {
        if self.gradient.is_empty() {
            self.gradient = vec![0.0; self.learning.n_values()];
        }
    }

    /// The same as [`Worker::gradient`] for those who have no use for buckets: it is kept.
    pub fn whole_gradient(&mut self, values: &[f32], samples: &[usize], seed: u64) -> Result<Score, TrainError> {
        self.make_room();
        self.learning.whole_gradient(values, samples, seed, &mut self.gradient, &mut self.workspace)
    }

    /// The gradient that was computed last.
    pub fn last_gradient(&self) -> &[f32] {
        &self.gradient
    }

    /// Takes a step with the gradient that was computed last, if that is finite; returns whether it is.
    pub fn step(&self, optimizer: &mut Optimizer, lr: f32, values: &mut [f32]) -> bool {
        optimizer.step(lr, values, &self.gradient, &self.workspace)
    }

    /// Steps as those who know only gradients and the optimizer take them, but nothing is copied, and all threads take part.
    fn take_steps(
        &mut self,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        phase: &mut dyn LocalPhase,
    ) -> Result<PhaseEnd, TrainError> {
        while let Some(LocalBatch { samples, seed, next }) = phase.next_batch() {
            self.prefetch(next);
            let score = self.whole_gradient(values, samples, seed)?;
            let is_usual = score.loss() <= phase.most_loss();
            if !is_usual || !self.step(optimizer, phase.lr(), values) {
                return Ok(PhaseEnd::Spoilt);
            }
            phase.on_step(score);
        }
        Ok(PhaseEnd::Over)
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
    fn layout(&self) -> &Layout {
        self.learning.layout()
    }

    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        self.make_room();
        self.learning.gradient_in_buckets(values, samples, seed, &mut self.gradient, &mut self.workspace, sink)
    }

    fn local_steps(
        &mut self,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        phase: &mut dyn LocalPhase,
    ) -> Result<PhaseEnd, TrainError> {
        let end = self.take_steps(values, optimizer, phase);
        if self.gradient.len() >= LARGE {
            self.gradient = Vec::new();
        }
        end
    }

    fn prefetch(&mut self, samples: &[usize]) {
        self.learning.prefetch(samples);
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

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::{Arc, Mutex};

    use super::CpuWorker;
    use crate::data::in_memory::{InMemory, Samples};
    use crate::data::{Batch, DataError, Dataset};
    use crate::job::{Job, build_network};
    use crate::learning::Learning;
    use crate::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
    use crate::model::{Layout, Score};
    use crate::optimizer::Optimizer;
    use crate::task::{GradientSink, Task, Worker};
    use crate::train_error::TrainError;

    /// A worker that has nothing but gradients.
    struct Plain(CpuWorker);

    impl Worker for Plain {
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

    /// Some batches, and what was told of them.
    struct Steps {
        batches: Vec<Vec<usize>>,
        next: usize,
        scores: Vec<Score>,
    }

    impl LocalPhase for Steps {
        fn next_batch(&mut self) -> Option<LocalBatch<'_>> {
            self.next += 1;
            let samples = self.batches.get(self.next - 1)?;
            let next = self.batches.get(self.next).map_or([].as_slice(), Vec::as_slice);
            Some(LocalBatch { samples, seed: self.next as u64, next })
        }

        fn lr(&self) -> f32 {
            0.05 / self.next as f32
        }

        fn on_step(&mut self, score: Score) {
            self.scores.push(score);
        }
    }

    fn learning(bad: Option<usize>) -> Arc<Learning> {
        let job = Job::parse("the test's job", "model = \"mlp:8\"", &[]).unwrap();
        let set = || {
            let mut values: Vec<f32> = (0..3 * 30).map(|k| (k % 7) as f32 / 7.0).collect();
            bad.iter().for_each(|&index| values[3 * index] = f32::NAN);
            let labels = (0..30).map(|k| k % 2).collect();
            Box::new(InMemory::new(vec![3], vec!["a".into(), "b".into()], labels, Samples::Floats(values)).unwrap())
        };
        let network = build_network("mlp:8", &job.model_spec(&[3], 2).unwrap()).unwrap();
        Arc::new(Learning::new(&job, network, set(), set()).unwrap())
    }

    fn train(worker: &mut dyn Worker, learning: &Learning) -> (PhaseEnd, Vec<Score>, Vec<f32>, Optimizer) {
        let mut spec = Job::default().optimizer;
        spec.momentum = 0.9;
        let (mut values, mut optimizer) = (learning.init(1), Optimizer::new(spec, learning.n_params()));
        let batches = (0..3).map(|k| (10 * k..10 * (k + 1)).collect()).collect();
        let mut steps = Steps { batches, next: 0, scores: Vec::new() };
        let end = worker.local_steps(&mut values, &mut optimizer, &mut steps).unwrap();
        (end, steps.scores, values, optimizer)
    }

    #[test]
    fn local_steps_are_those_of_gradients_and_an_optimizer() {
        let learning = learning(None);
        let worker = || CpuWorker::new(learning.clone(), 2).unwrap();
        let (own, plain) = (train(&mut worker(), &learning), train(&mut Plain(worker()), &learning));
        assert_eq!(own, plain);
        assert_eq!((own.0, own.1.len()), (PhaseEnd::Over, 3));
        assert_ne!(own.2, learning.init(1));
    }

    #[test]
    fn no_step_is_taken_with_what_is_not_finite() {
        let (spoilt, whole) = (learning(Some(15)), learning(None));
        let worker = |learning: &Arc<Learning>| CpuWorker::new(learning.clone(), 1).unwrap();
        let own = train(&mut worker(&spoilt), &spoilt);
        assert_eq!(own, train(&mut Plain(worker(&spoilt)), &spoilt));
        assert_eq!((own.0, own.1.len()), (PhaseEnd::Spoilt, 1));
        let first = train(&mut worker(&whole), &whole).1[0];
        assert_eq!(own.1[0], first);
        assert!(own.2.iter().all(|value| value.is_finite()), "the second batch has changed nothing");
    }

    /// What is done with which samples, in order.
    type Notes = Arc<Mutex<Vec<(&'static str, Vec<usize>)>>>;

    /// Four samples; notes what is asked for, and what will be.
    struct Noting(InMemory, Notes);

    impl Noting {
        fn note(&self, what: &'static str, indices: &[usize]) {
            self.1.lock().unwrap().push((what, indices.to_vec()));
        }
    }

    impl Dataset for Noting {
        fn shape(&self) -> &[usize] {
            self.0.shape()
        }

        fn classes(&self) -> &[String] {
            self.0.classes()
        }

        fn labels(&self) -> &[u32] {
            self.0.labels()
        }

        fn batch(&self, indices: &[usize]) -> Result<Batch, DataError> {
            self.note("batch", indices);
            self.0.batch(indices)
        }

        fn prefetch(&self, indices: &[usize]) {
            self.note("prefetch", indices);
        }
    }

    #[test]
    fn the_next_batch_is_prefetched() {
        let job = Job::parse("the test's job", "model = \"mlp:8\"\nbatch = 3", &[]).unwrap();
        let notes = Notes::default();
        let set = || {
            let set =
                InMemory::new(vec![1], vec!["a".into(), "b".into()], vec![0, 1, 0, 1], Samples::Bytes(vec![1; 4]));
            Box::new(Noting(set.unwrap(), Arc::clone(&notes)))
        };
        let network = build_network("mlp:8", &job.model_spec(&[1], 2).unwrap()).unwrap();
        let learning = Arc::new(Learning::new(&job, network, set(), set()).unwrap());
        let (mut worker, mut values) = (CpuWorker::new(learning.clone(), 1).unwrap(), learning.init(1));
        let mut optimizer = Optimizer::new(Job::default().optimizer, learning.n_params());
        let mut steps = Steps { batches: vec![vec![0, 1], vec![3, 2]], next: 0, scores: Vec::new() };
        worker.local_steps(&mut values, &mut optimizer, &mut steps).unwrap();
        worker.test(&values, 0..4).unwrap();
        let expected = [
            ("prefetch", vec![3, 2]),
            ("batch", vec![0, 1]),
            ("prefetch", vec![]),
            ("batch", vec![3, 2]),
            ("prefetch", vec![3]),
            ("batch", vec![0, 1, 2]),
            ("prefetch", vec![]),
            ("batch", vec![3]),
        ];
        assert_eq!(*notes.lock().unwrap(), expected);
    }
}
