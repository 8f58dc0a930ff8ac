//! A gradient that is handed over while it is still computed: bucket by bucket, from the last layers to the first.
//!
//! Threads each have a part of every number. A bucket is final when the first thread has added the others' parts of it to its
//! own, in the order of their ranks; meanwhile the others go on with the layers below.

use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::network::Network;
use crate::kernel::add;

/// Who is shown the buckets of a gradient as soon as they are final.
pub struct BucketSink<'a> {
    /// Ranges of the flat vector, as [`Network::buckets`] gives them.
    pub buckets: &'a [Range<usize>],
    /// Called once for each bucket, in order, with its number and its numbers. It should not panic: other threads may be
    /// waiting for the one that calls it.
    pub on_bucket: &'a mut (dyn FnMut(usize, &[f32]) + Send),
}

impl Network {
    /// Ranges of the flat vector in the order in which the backward pass completes them; together they cover it once.
    ///
    /// Neighbouring layers share a bucket until it has `min_len` numbers. What is left for the first layers may be less; it is
    /// a bucket of its own, because whoever waits for the last bucket waits with nothing else to do. The running
    /// statistics' delta comes last.
    pub fn buckets(&self, min_len: usize) -> Vec<Range<usize>> {
        let mut buckets = Vec::new();
        let mut end = self.n_params;
        // Parameters lie in the order of the layers, and the backward pass goes through these in reverse.
        for params in self.own_params(0..self.steps.len()).rev() {
            if end - params.start >= min_len {
                buckets.push(params.start..end);
                end = params.start;
            }
        }
        buckets.extend([0..end, self.n_params..self.n_values].into_iter().filter(|bucket| !bucket.is_empty()));
        buckets
    }
}

/// One thread's part of a gradient. What is final leaves it from behind, so that others can have it while this thread goes
/// on with the rest.
pub(super) struct ThreadGradient<'a> {
    /// Those of the trained numbers' gradient that have not left yet.
    pub weights: &'a mut [f32],
    /// The running statistics' delta.
    pub delta: &'a mut [f32],
    /// The buckets that have not left yet, and how many have.
    buckets: &'a [Range<usize>],
    n_left: usize,
    duty: Duty<'a>,
}

/// What a thread does with a bucket that is final as far as it is concerned.
enum Duty<'a> {
    /// Nothing: the whole is added up at the end.
    Keep,
    /// It goes to the first thread.
    Give(Sender<&'a [f32]>),
    /// The first thread adds what the others give, and shows the sum.
    Show { others: Vec<Receiver<&'a [f32]>>, on_bucket: &'a mut (dyn FnMut(usize, &[f32]) + Send) },
}

impl<'a> ThreadGradient<'a> {
    /// The parts of all threads: the first writes to the caller's vector, the others to their own.
    pub(super) fn of_each<'longer: 'a>(
        n_params: usize,
        gradient: &'a mut [f32],
        others: &'a mut [Vec<f32>],
        sink: Option<BucketSink<'longer>>,
    ) -> Vec<Self> {
        let part = |numbers: &'a mut [f32], buckets: &'a [Range<usize>], duty: Duty<'a>| {
            let (weights, delta) = numbers.split_at_mut(n_params);
            Self { weights, delta, buckets, n_left: 0, duty }
        };
        let Some(BucketSink { buckets, on_bucket }) = sink else {
            let keep = |numbers: &'a mut [f32]| part(numbers, &[], Duty::Keep);
            return std::iter::once(gradient).chain(others.iter_mut().map(Vec::as_mut_slice)).map(keep).collect();
        };
        check(buckets, n_params, gradient.len());
        let (givers, takers): (Vec<_>, Vec<_>) = others.iter().map(|_| channel()).unzip();
        let first = part(gradient, buckets, Duty::Show { others: takers, on_bucket });
        let others = others.iter_mut().zip(givers).map(|(numbers, giver)| part(numbers, buckets, Duty::Give(giver)));
        std::iter::once(first).chain(others).collect()
    }

    /// Lets go of the buckets that lie wholly among the trained numbers from `start` on: these are final.
    pub(super) fn finish_from(&mut self, start: usize) {
        while let Some(bucket) =
            self.buckets.first().filter(|bucket| bucket.end == self.weights.len() && bucket.start >= start)
        {
            let (rest, last) = std::mem::take(&mut self.weights).split_at_mut(bucket.start);
            self.weights = rest;
            self.release_bucket(last);
        }
    }

    /// Lets go of all that is left.
    pub(super) fn finish(&mut self) {
        self.finish_from(0);
        if !self.buckets.is_empty() {
            let delta = std::mem::take(&mut self.delta);
            self.release_bucket(delta);
        }
    }

    fn release_bucket(&mut self, bucket: &'a mut [f32]) {
        match &mut self.duty {
            Duty::Keep => {}
            // If the first thread is gone, it panicked, and that is what will be told.
            Duty::Give(giver) => drop(giver.send(bucket)),
            Duty::Show { others, on_bucket } => {
                for other in others {
                    add(bucket, other.recv().expect("a thread gives every bucket, unless it panicked"));
                }
                on_bucket(self.n_left, bucket);
            }
        }
        self.buckets = &self.buckets[1..];
        self.n_left += 1;
    }
}

/// # Panics
/// If the buckets do not cover the trained numbers from the last to the first, and then the statistics.
fn check(buckets: &[Range<usize>], n_params: usize, n_values: usize) {
    let statistics = n_params..n_values;
    let trained = match buckets.split_last() {
        Some((last, trained)) if *last == statistics => trained,
        _ => {
            assert!(statistics.is_empty(), "the running statistics are to be the last bucket");
            buckets
        }
    };
    let mut end = n_params;
    for bucket in trained {
        assert!(bucket.end == end && bucket.start < end, "{bucket:?} is no bucket of this network in its turn");
        end = bucket.start;
    }
    assert_eq!(end, 0, "the buckets leave out trained numbers");
}
