//! What is trained, as peers see it: a [`Task`] says what there is, and its [`Worker`]s compute.

use std::ops::Range;
use std::sync::Arc;

use crate::guessing::Guessing;
use crate::kernel::is_finite;
use crate::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
use crate::measure::Measure;
use crate::model::{Layout, Score, Workspace};
use crate::optimizer::Optimizer;
use crate::train_error::TrainError;

/// A model with its data. It is immutable and shared by all peers of a process.
pub trait Task: Send + Sync {
    /// What the flat vector of parameters holds.
    fn layout(&self) -> &Layout;

    /// The flat vector to start from; the same for all peers with the same seed.
    fn init(&self, seed: u64) -> Vec<f32>;

    /// The labels of the training samples.
    fn labels(&self) -> &[u32];

    /// What people judge it by.
    fn measure(&self) -> Measure {
        Measure::Accuracy
    }

    /// How a model would do that gives every sample the same answer, where that is known: for a classifier, from its labels.
    fn guessing(&self) -> Guessing {
        match self.measure() {
            Measure::Accuracy => Guessing::new(self.labels()),
            Measure::Loss | Measure::Perplexity { .. } => Guessing::unknown(),
        }
    }

    /// Number of test samples.
    fn n_test(&self) -> usize;

    /// Where a training sample comes from, for people, if that is known.
    fn origin(&self, _sample: usize) -> Option<String> {
        None
    }

    /// The names of what it measures besides loss and accuracy, at most [`crate::model::MOST_METRICS`]: what [`Score::metrics`] holds.
    fn metrics(&self) -> &[String] {
        &[]
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

/// Computes a task's gradients and losses, and takes the steps of local phases. It owns the threads, buffers, device or process that it
/// needs, and whatever it remembers from call to call changes no result.
///
/// All its functions panic if `values` has another length than the task's [`Layout`] says.
///
/// What a backend with a device of its own, such as a process that runs PyTorch, has to do:
///
/// - Parameters lie in the flat vector as the layout says, and so does a gradient: trained numbers first, then running statistics, for
///   which the gradient holds what a step takes off them.
/// - `gradient` brings a gradient to the host bucket by bucket, as soon as each is final. Strategies that exchange gradients need no more
///   than that and the scores.
/// - `local_steps` is where a device pays: values and the optimizer's state go to it once, all batches of the phase are trained there, and
///   both come back once. In between only scores leave it, one a batch: they are what people see, what finds divergence and what peers'
///   speeds are measured by. Optimizers are PyTorch's in formulas, names and state ([`Optimizer::state`], [`Optimizer::restore`]).
/// - A phase may be given up at any time: [`LocalPhase::next_batch`] is asked before each batch. Whoever sends batches ahead to a process
///   asks while it waits for scores, and tells the process to stop.
/// - Samples are named by their index in the task's training set. Whoever computes elsewhere has the data there.
/// - One call at a time; a worker that is dropped gives back all that it had.
pub trait Worker: Send {
    /// What the flat vector of parameters holds: the task's.
    fn layout(&self) -> &Layout;

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

    /// Trains a local phase: a step of the optimizer with the gradient of each batch, until there is no further one.
    ///
    /// Values and optimizer may live elsewhere while it lasts; when this returns, they are as after the last step that was taken. After an
    /// error they are of no use.
    fn local_steps(
        &mut self,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        phase: &mut dyn LocalPhase,
    ) -> Result<PhaseEnd, TrainError> {
        let mut gradient: Vec<Vec<f32>> =
            self.layout().buckets().iter().map(|bucket| vec![0.0; bucket.len()]).collect();
        while let Some(LocalBatch { samples, seed, next }) = phase.next_batch() {
            self.prefetch(next);
            let mut put = |bucket: usize, numbers: &[f32]| gradient[bucket].copy_from_slice(numbers);
            let score = self.gradient(values, samples, seed, &mut put)?;
            let is_usual = score.loss() <= phase.most_loss();
            if !is_usual || !gradient.iter().all(|bucket| is_finite(bucket)) {
                return Ok(PhaseEnd::Spoilt);
            }
            self.apply(phase.lr(), values, optimizer, &gradient)?;
            phase.on_step(score);
        }
        Ok(PhaseEnd::Over)
    }

    /// Takes a step with a gradient on which peers have agreed, by the layout's buckets.
    fn apply(
        &mut self,
        lr: f32,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        gradient: &[Vec<f32>],
    ) -> Result<(), TrainError> {
        optimizer.apply(lr, self.layout().buckets(), values, gradient);
        Ok(())
    }

    /// What such a step would add to the values, by bucket: written over the gradient. The optimizer's state is then as after the step.
    fn change(
        &mut self,
        lr: f32,
        values: &[f32],
        optimizer: &mut Optimizer,
        gradient: &mut [Vec<f32>],
    ) -> Result<(), TrainError> {
        optimizer.change(lr, self.layout().buckets(), values, gradient);
        Ok(())
    }

    /// Says which training samples are likely to be asked for after the next batch, so that they can be read meanwhile.
    fn prefetch(&mut self, _samples: &[usize]) {}

    /// Says, right before a call, with what state that begins. A worker that keeps numbers on a device of its own sees whether these are
    /// there already: see [`crate::resident::Resident`].
    fn begin(&mut self, _values: &Arc<Vec<f32>>, _optimizer: Option<&Optimizer>) {}

    /// Says with what state the last call ended, if it was one that changes it.
    fn end(&mut self, _values: &Arc<Vec<f32>>, _optimizer: &Optimizer) {}

    /// How well the model does on some of the training samples, without dropout or augmentation.
    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError>;

    /// How well the model does on some of the test samples. Scores of ranges add up to that of the whole.
    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError>;

    /// The CPU threads it computes with, if it can compute parts of a network as well as the whole.
    fn workspace(&mut self) -> Option<&mut Workspace> {
        None
    }
}
