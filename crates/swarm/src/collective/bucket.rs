//! Buckets of numbers that come in segments: what every exchange of vectors keeps, checks and sends.

use std::ops::Range;

use bytes::Bytes;

use super::segments::{Label, Seen, encoded_len, n_segments, segment, segments};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::strategy::{CostQuestion, Ctx};

/// A part of the vector: this peer's numbers, and what has come for it from others.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub len: usize,
    /// This peer's numbers, once they are there; in the end, the result.
    pub numbers: Option<Vec<f32>>,
    /// By step and segment: what a message can still be.
    seen: Seen,
    /// How many segments a step has at most.
    stride: usize,
    /// What came before this peer's own numbers were there.
    early: Vec<(Label, Bytes)>,
}

/// What a bucket waits for.
pub(crate) struct Expected {
    /// How many steps the exchange has.
    pub n_steps: usize,
    /// How many numbers come in a step at most.
    pub longest: usize,
    /// How many messages come in all.
    pub n_messages: usize,
}

impl Bucket {
    /// A bucket of this length that nothing has come for.
    pub(crate) fn new(len: usize, expected: &Expected) -> Self {
        let stride = n_segments(&(0..expected.longest));
        let seen = Seen::new(stride * expected.n_steps, expected.n_messages);
        Self { len, numbers: None, seen, stride, early: Vec::new() }
    }

    /// Checks a message that is said to be a segment of `chunk`. It is given back if it can be taken now; if this peer's own
    /// numbers are not there yet, it is kept until they are.
    pub(crate) fn admit(
        &mut self,
        codec: Codec,
        label: Label,
        chunk: &Range<usize>,
        body: Bytes,
    ) -> Result<Option<Bytes>, Malformed> {
        let Some(segment) = segment(chunk, label.segment) else {
            return Err(Malformed::new("there is no such segment of the vector"));
        };
        codec.check_finite(&body, segment.len())?;
        self.seen.mark(label.step * self.stride + label.segment)?;
        if self.numbers.is_some() {
            return Ok(Some(body));
        }
        self.early.push((label, body));
        Ok(None)
    }

    /// Whether a segment of a step has come.
    pub(crate) fn has_come(&self, step: usize, segment: usize) -> bool {
        self.seen.contains(step * self.stride + segment)
    }

    /// Whether something has not come.
    pub(crate) fn is_missing_some(&self) -> bool {
        !self.seen.is_complete()
    }

    /// This peer's numbers where a segment of `chunk` lies.
    pub(crate) fn place(&mut self, chunk: &Range<usize>, k: usize) -> &mut [f32] {
        let place = segment(chunk, k).expect("it was checked when it came");
        &mut self.numbers.as_mut().expect("own numbers are there")[place]
    }
}

/// All buckets of a vector; none before the exchange begins and after its result was taken.
#[derive(Debug, Default)]
pub(crate) struct Buckets(Vec<Bucket>);

impl Buckets {
    pub(crate) fn new(buckets: impl Iterator<Item = Bucket>) -> Self {
        Self(buckets.collect())
    }

    /// Room for a vector that comes from one other peer, each bucket as one chunk.
    pub(crate) fn incoming(ctx: &Ctx<'_>) -> Self {
        let bucket = |len: usize| {
            let n_messages = n_segments(&(0..len));
            let mut bucket = Bucket::new(len, &Expected { n_steps: 1, longest: len, n_messages });
            bucket.numbers = Some(vec![0.0; len]);
            bucket
        };
        Self::new(ctx.buckets().iter().map(|range| bucket(range.len())))
    }

    /// Takes a segment of such a vector.
    pub(crate) fn take_incoming(&mut self, codec: Codec, label: Label, body: Bytes) -> Result<(), Malformed> {
        let bucket = self.named(label.bucket)?;
        let all = 0..bucket.len;
        match bucket.admit(codec, Label { step: 0, ..label }, &all, body)? {
            Some(body) => codec.decode(&body, bucket.place(&all, label.segment)),
            None => Ok(()),
        }
    }

    /// The bucket that a message is about.
    pub(crate) fn named(&mut self, bucket: usize) -> Result<&mut Bucket, Malformed> {
        self.0.get_mut(bucket).ok_or_else(|| Malformed::new("there is no such part of the vector"))
    }

    /// Takes this peer's numbers; returns what came before them, to be taken now.
    pub(crate) fn put(&mut self, bucket: usize, numbers: Vec<f32>) -> Vec<(Label, Bytes)> {
        let bucket = &mut self.0[bucket];
        bucket.numbers = Some(numbers);
        std::mem::take(&mut bucket.early)
    }

    pub(crate) fn is_complete(&self) -> bool {
        let is_complete = |bucket: &Bucket| bucket.numbers.is_some() && !bucket.is_missing_some();
        !self.0.is_empty() && self.0.iter().all(is_complete)
    }

    pub(crate) fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.0.drain(..).map(|bucket| bucket.numbers.expect("the exchange is complete")).collect()
    }

    /// The first bucket for which something has not come.
    pub(crate) fn first_missing(&self) -> Option<&Bucket> {
        self.0.iter().find(|bucket| bucket.is_missing_some())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bucket> {
        self.0.iter()
    }
}

impl std::ops::Index<usize> for Buckets {
    type Output = Bucket;

    fn index(&self, bucket: usize) -> &Bucket {
        &self.0[bucket]
    }
}

impl std::ops::IndexMut<usize> for Buckets {
    fn index_mut(&mut self, bucket: usize) -> &mut Bucket {
        &mut self.0[bucket]
    }
}

/// Where a chunk's numbers go, and as what.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    pub to: usize,
    pub bucket: usize,
    pub step: usize,
}

/// Sends the numbers of a chunk, segment by segment.
pub(crate) fn send_segments(ctx: &mut Ctx<'_>, codec: Codec, address: Address, numbers: &[f32], chunk: Range<usize>) {
    let Address { to, bucket, step } = address;
    for (k, place) in segments(chunk).enumerate() {
        ctx.send(to, Label { bucket, step, segment: k }.to_part(), codec.encode(&numbers[place]));
    }
}

/// How many bytes the whole vector is when each bucket travels as one chunk.
pub(crate) fn vector_len(codec: Codec, question: &CostQuestion<'_>) -> u64 {
    question.buckets.iter().map(|bucket| encoded_len(codec, 0..bucket.len())).sum()
}
