//! Samples that would spoil a batch: found, and left out from then on.
//!
//! A sample without a finite loss or gradient, or with an enormous one, would cost the whole swarm its parameters. It shows in the size of
//! the batch's gradient, or in its loss; then each sample is tried alone, beside some others of the training set.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use nettorrent_engine::bad_samples::find_bad_samples;
use nettorrent_engine::collapse::size;
use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::model::Score;
use nettorrent_engine::task::{GradientSink, Worker};
use nettorrent_engine::train_error::TrainError;

use crate::batch_place::BatchPlace;

/// A gradient, or a loss, so many times as large as usual is looked into.
const SUSPICIOUS: f64 = 100.0;
/// By how much the latest counts in what is usual.
const LATEST: f64 = 0.1;
/// Suspected samples are compared with as many others, and at least so many.
const FEWEST_OTHERS: usize = 16;
/// What an ordinary sample's loss is when training begins, about: far beyond it, parameters are to blame and not samples.
const USUAL_LOSS: f64 = 3.0;

/// What a peer knows of samples that would spoil a batch.
#[derive(Clone, Debug)]
pub struct Outliers {
    known: Arc<BTreeSet<usize>>,
    /// How many training samples there are.
    n_train: usize,
    /// How large a number of a gradient's first bucket usually is, and a batch's loss.
    usual_size: f64,
    usual_loss: f64,
}

/// The gradient of a batch was computed.
pub(crate) struct Computed {
    /// How the batch was classified.
    pub score: Score,
    /// Samples that were left out for the first time.
    pub left_out: Vec<usize>,
    /// How large a number of its first bucket is; 0 if that is not known.
    pub size: f64,
}

impl Outliers {
    pub(crate) fn new(known: Arc<BTreeSet<usize>>, n_train: usize) -> Self {
        Self { known, n_train, usual_size: 1.0, usual_loss: USUAL_LOSS }
    }

    pub(crate) fn known(&self) -> &Arc<BTreeSet<usize>> {
        &self.known
    }

    /// Takes in what came of a batch.
    pub(crate) fn learn(&mut self, left_out: &[usize], size: f64, loss: f64) {
        if !left_out.is_empty() {
            Arc::make_mut(&mut self.known).extend(left_out);
            return;
        }
        for (usual, latest) in [(&mut self.usual_size, size), (&mut self.usual_loss, loss)] {
            if latest.is_finite() && latest > 0.0 {
                *usual += LATEST * (latest - *usual);
            }
        }
    }

    /// The largest loss of a batch that is not looked into.
    pub(crate) fn most_loss(&self) -> f64 {
        SUSPICIOUS * self.usual_loss
    }

    /// The samples of a batch without those that are known.
    pub(crate) fn left_of<'a>(&self, samples: &'a [usize]) -> Cow<'a, [usize]> {
        if samples.iter().all(|sample| !self.known.contains(sample)) {
            return Cow::Borrowed(samples);
        }
        samples.iter().copied().filter(|sample| !self.known.contains(sample)).collect()
    }

    /// Computes the gradient of a batch without such samples, and hands its buckets over as they come. If no sample is to blame for one
    /// that is not finite, it is handed over all the same: who gets it knows what to make of it.
    pub(crate) fn gradient(
        &self,
        worker: &mut dyn Worker,
        values: &[f32],
        place: &BatchPlace,
        seed: u64,
        give: &mut GradientSink<'_>,
    ) -> Result<Computed, TrainError> {
        let samples = self.left_of(place.samples());
        if samples.is_empty() {
            return nothing(worker, values, place, seed, give);
        }
        let (mut first, mut n_given, mut is_spoilt) = (None, 0, false);
        let score = worker.gradient(values, &samples, seed, &mut |bucket, numbers| {
            // What is handed over cannot be taken back.
            is_spoilt |= !match first {
                // One that is not finite is not as large as usual either.
                None => *first.insert(mean_size(numbers)) <= SUSPICIOUS * self.usual_size,
                Some(_) => is_finite(numbers),
            };
            if !is_spoilt {
                n_given += 1;
                give(bucket, numbers);
            }
        })?;
        let size = first.unwrap_or(0.0);
        if !is_spoilt {
            return Ok(Computed { score, left_out: Vec::new(), size });
        }
        let mut n_seen = 0;
        let mut give_rest = |bucket: usize, numbers: &[f32]| {
            n_seen += 1;
            if n_seen > n_given {
                give(bucket, numbers);
            }
        };
        let computed = self.rest_of_suspects(worker, values, place, seed, &mut give_rest)?;
        Ok(Computed { size, ..computed })
    }

    /// The same where what was handed over can be taken back, so that all of the gradient and the loss can be looked at before a step is
    /// taken: what is handed over last is what counts.
    pub(crate) fn whole_gradient(
        &self,
        worker: &mut dyn Worker,
        values: &[f32],
        place: &BatchPlace,
        seed: u64,
        put: &mut GradientSink<'_>,
    ) -> Result<Computed, TrainError> {
        let samples = self.left_of(place.samples());
        if samples.is_empty() {
            return nothing(worker, values, place, seed, put);
        }
        let mut is_spoilt = false;
        let score = worker.gradient(values, &samples, seed, &mut |bucket, numbers| {
            is_spoilt |= !is_finite(numbers);
            put(bucket, numbers);
        })?;
        if !is_spoilt && score.loss() <= self.most_loss() {
            return Ok(Computed { score, left_out: Vec::new(), size: 0.0 });
        }
        self.rest_of_suspects(worker, values, place, seed, put)
    }

    /// The gradient of a batch that looks bad, without the samples that are to blame.
    fn rest_of_suspects(
        &self,
        worker: &mut dyn Worker,
        values: &[f32],
        place: &BatchPlace,
        seed: u64,
        give: &mut GradientSink<'_>,
    ) -> Result<Computed, TrainError> {
        let samples = self.left_of(place.samples());
        let left_out = self.find(worker, values, &samples)?;
        let rest: Vec<usize> = samples.iter().copied().filter(|sample| !left_out.contains(sample)).collect();
        if rest.is_empty() {
            return Ok(Computed { left_out, ..nothing(worker, values, place, seed, give)? });
        }
        let score = worker.gradient(values, &rest, seed, give)?;
        Ok(Computed { score, left_out, size: 0.0 })
    }

    /// Those samples of a batch that are to blame for its gradient.
    fn find(&self, worker: &mut dyn Worker, values: &[f32], samples: &[usize]) -> Result<Vec<usize>, TrainError> {
        // Spread over the whole set: its neighbours may have come to grief together.
        let (first, n_others) = (samples[0], samples.len().max(FEWEST_OTHERS));
        let others = (1..=n_others).map(|k| (first + k * self.n_train / (n_others + 1)) % self.n_train);
        let others = others.filter(|other| !samples.contains(other) && !self.known.contains(other));
        let mut examined = samples.to_vec();
        examined.extend(others);
        examined[samples.len()..].sort_unstable();
        examined.dedup();
        let mut bad = find_bad_samples(worker, values, &examined, USUAL_LOSS)?;
        bad.retain(|sample| samples.contains(sample));
        Ok(bad)
    }
}

/// The gradient of a batch of which no sample is left: all zeros.
fn nothing(
    worker: &mut dyn Worker,
    values: &[f32],
    place: &BatchPlace,
    seed: u64,
    give: &mut GradientSink<'_>,
) -> Result<Computed, TrainError> {
    worker.gradient(values, place.samples(), seed, &mut |bucket, numbers| {
        give(bucket, &vec![0.0; numbers.len()]);
    })?;
    Ok(Computed { score: Score::default(), left_out: Vec::new(), size: 0.0 })
}

/// How large a number is in the mean: the root of the mean square.
fn mean_size(numbers: &[f32]) -> f64 {
    size(numbers) / (numbers.len().max(1) as f64).sqrt()
}
