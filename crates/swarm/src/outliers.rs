//! Samples that would spoil a batch: found, and left out from then on.
//!
//! A sample without a finite loss or gradient, or with an enormous one, would cost the whole swarm its parameters. It shows in the size of
//! the batch's gradient; then each sample is tried alone, beside some of other batches.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use nettorrent_engine::bad_samples::find_bad_samples;
use nettorrent_engine::collapse::size;
use nettorrent_engine::data::plan::Plan;
use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::model::Score;
use nettorrent_engine::task::{GradientSink, Worker};
use nettorrent_engine::train_error::TrainError;

/// A gradient so many times as large as usual is looked into.
const SUSPICIOUS: f64 = 100.0;
/// By how much the latest gradient counts in what is usual.
const LATEST: f64 = 0.1;
/// Suspected samples are compared with as many others, and at least so many.
const FEWEST_OTHERS: usize = 16;
/// What an ordinary sample's loss is when training begins, about: far beyond it, parameters are to blame and not samples.
const USUAL_LOSS: f64 = 3.0;

/// What a peer knows of samples that would spoil a batch.
#[derive(Clone, Debug)]
pub struct Outliers {
    known: Arc<BTreeSet<usize>>,
    /// How large a number of a gradient's first bucket usually is.
    usual_size: f64,
}

/// The gradient of a batch was computed.
pub(crate) struct Computed {
    /// How the batch was classified.
    pub score: Score,
    /// Samples that were left out for the first time.
    pub left_out: Vec<usize>,
    /// How large a number of its first bucket is.
    pub size: f64,
}

/// Which batch, by its place in a plan.
#[derive(Clone, Copy)]
pub(crate) struct BatchPlace<'a> {
    pub plan: &'a Plan,
    pub seat: usize,
    pub batch: usize,
}

impl Outliers {
    pub(crate) fn new(known: Arc<BTreeSet<usize>>) -> Self {
        Self { known, usual_size: 1.0 }
    }

    pub(crate) fn known(&self) -> &Arc<BTreeSet<usize>> {
        &self.known
    }

    /// Takes in what came of a batch.
    pub(crate) fn learn(&mut self, left_out: &[usize], size: f64) {
        if !left_out.is_empty() {
            Arc::make_mut(&mut self.known).extend(left_out);
        } else if size.is_finite() && size > 0.0 {
            self.usual_size += LATEST * (size - self.usual_size);
        }
    }

    /// Computes the gradient of a batch without such samples, and hands its buckets over as they come. If no sample is to blame for one
    /// that is not finite, it is handed over all the same: who gets it knows what to make of it.
    pub(crate) fn gradient(
        &self,
        worker: &mut dyn Worker,
        values: &[f32],
        place: BatchPlace<'_>,
        seed: u64,
        give: &mut GradientSink<'_>,
    ) -> Result<Computed, TrainError> {
        let BatchPlace { plan, seat, batch } = place;
        let samples = self.without_known(plan.batch(seat, batch));
        if samples.is_empty() {
            return nothing(worker, values, place, seed, give);
        }
        let (mut first, mut n_given, mut is_spoilt) = (None, 0, false);
        let score = worker.gradient(values, &samples, seed, &mut |bucket, numbers| {
            let size = *first.get_or_insert_with(|| mean_size(numbers));
            // What is handed over cannot be taken back.
            is_spoilt |= !(size <= SUSPICIOUS * self.usual_size) || !is_finite(numbers);
            if !is_spoilt {
                n_given += 1;
                give(bucket, numbers);
            }
        })?;
        let size = first.unwrap_or(0.0);
        if !is_spoilt {
            return Ok(Computed { score, left_out: Vec::new(), size });
        }
        let left_out = self.find(worker, values, &samples, place)?;
        let rest: Vec<usize> = samples.iter().copied().filter(|sample| !left_out.contains(sample)).collect();
        if rest.is_empty() {
            return Ok(Computed { left_out, ..nothing(worker, values, place, seed, give)? });
        }
        let mut n_seen = 0;
        let score = worker.gradient(values, &rest, seed, &mut |bucket, numbers| {
            n_seen += 1;
            if n_seen > n_given {
                give(bucket, numbers);
            }
        })?;
        Ok(Computed { score, left_out, size })
    }

    fn without_known<'a>(&self, samples: &'a [usize]) -> Cow<'a, [usize]> {
        if samples.iter().all(|sample| !self.known.contains(sample)) {
            return Cow::Borrowed(samples);
        }
        samples.iter().copied().filter(|sample| !self.known.contains(sample)).collect()
    }

    /// Those samples of a batch that are to blame for its gradient.
    fn find(
        &self,
        worker: &mut dyn Worker,
        values: &[f32],
        samples: &[usize],
        BatchPlace { plan, seat, batch }: BatchPlace<'_>,
    ) -> Result<Vec<usize>, TrainError> {
        let n_batches = plan.n_batches(seat);
        let others = (1..n_batches).flat_map(|k| plan.batch(seat, (batch + k) % n_batches)).copied();
        let others = others.filter(|other| !samples.contains(other) && !self.known.contains(other));
        let examined: Vec<usize> =
            samples.iter().copied().chain(others.take(samples.len().max(FEWEST_OTHERS))).collect();
        let mut bad = find_bad_samples(worker, values, &examined, USUAL_LOSS)?;
        bad.retain(|sample| samples.contains(sample));
        Ok(bad)
    }
}

/// The gradient of a batch of which no sample is left: all zeros.
fn nothing(
    worker: &mut dyn Worker,
    values: &[f32],
    BatchPlace { plan, seat, batch }: BatchPlace<'_>,
    seed: u64,
    give: &mut GradientSink<'_>,
) -> Result<Computed, TrainError> {
    worker.gradient(values, plan.batch(seat, batch), seed, &mut |bucket, numbers| {
        give(bucket, &vec![0.0; numbers.len()]);
    })?;
    Ok(Computed { score: Score::default(), left_out: Vec::new(), size: 0.0 })
}

/// How large a number is in the mean: the root of the mean square.
fn mean_size(numbers: &[f32]) -> f64 {
    size(numbers) / (numbers.len().max(1) as f64).sqrt()
}
