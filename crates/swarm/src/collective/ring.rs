//! The chunked ring: every peer sends a chunk to the next and adds what comes from the one before.
//!
//! With N peers a vector is N chunks. In N−1 steps every chunk travels round the ring and grows by each peer's numbers
//! (reduce-scatter); in N−1 more its sum travels round and replaces what was there (all-gather). Each peer sends 2M(N−1)/N.
//! A sum is added to where it lies in the message and goes on in the same bytes; nothing waits for a step to be complete.

use bytes::Bytes;

use super::Collective;
use super::segments::{Label, Seen, chunk, encoded_len, n_segments, segment, segments};
use crate::codec::Codec;
use crate::strategy::{Cost, CostQuestion, Ctx, Malformed, Message};

/// How far round the ring goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All peers end with the sum of all numbers.
    AllReduce,
    /// Only the first half: each peer keeps the mean of what each chunk had gathered when it came by.
    ScatterMean,
}

/// A sum over all peers that goes round a ring.
#[derive(Debug)]
pub struct Ring {
    codec: Codec,
    extent: Extent,
    rank: usize,
    n_peers: usize,
    /// Chunk `k` of the exchange is the vector's chunk `k + shift`.
    shift: usize,
    buckets: Vec<Bucket>,
}

#[derive(Debug, Default)]
struct Bucket {
    len: usize,
    /// This peer's numbers, once they are there; in the end, the result.
    numbers: Option<Vec<f32>>,
    seen: Seen,
    /// What came before this peer's own numbers were there.
    early: Vec<(Label, Bytes)>,
}

impl Ring {
    /// A ring that nothing goes round yet.
    pub fn new(codec: Codec, extent: Extent) -> Self {
        Self { codec, extent, rank: 0, n_peers: 1, shift: 0, buckets: Vec::new() }
    }

    /// The same ring as one of its peers sees it in a round.
    fn seen_by(&self, rank: usize, n_peers: usize, round: u32) -> Self {
        // Where peers keep what a chunk had gathered when it came by, no chunk may always begin at the same peer.
        let shift = if self.extent == Extent::ScatterMean { round as usize % n_peers } else { 0 };
        Self { rank, n_peers, shift, buckets: Vec::new(), ..*self }
    }

    fn empty_bucket(&self, len: usize) -> Bucket {
        let most = n_segments(&(0..len.div_ceil(self.n_peers)));
        let expected = (0..self.n_steps()).map(|step| n_segments(&self.incoming_chunk(step, len))).sum();
        Bucket { len, numbers: None, seen: Seen::new(most * self.n_steps(), expected), early: Vec::new() }
    }

    /// Adds or replaces, and sends on.
    fn take(&mut self, ctx: &mut Ctx<'_>, label: Label, body: Bytes) -> Result<(), Malformed> {
        let Self { codec, n_peers, .. } = *self;
        let (next, n_steps) = (self.next(), self.n_steps());
        let chunk = self.incoming_chunk(label.step, self.buckets[label.bucket].len);
        let place = segment(&chunk, label.segment).expect("it was checked when it came");
        let numbers = self.buckets[label.bucket].numbers.as_mut().expect("own numbers are there");
        let numbers = &mut numbers[place];
        let body = if label.step < n_peers - 1 {
            let sum = codec.add(body, numbers)?;
            if self.extent == Extent::ScatterMean {
                codec.decode(&sum, numbers)?;
                let count = (label.step + 2) as f32;
                numbers.iter_mut().for_each(|number| *number /= count);
            } else if label.step == n_peers - 2 {
                codec.decode(&sum, numbers)?;
            }
            sum
        } else {
            codec.decode(&body, numbers)?;
            body
        };
        if label.step + 1 < n_steps {
            ctx.send(next, Label { step: label.step + 1, ..label }.to_part(), body);
        }
        Ok(())
    }

    fn n_steps(&self) -> usize {
        match self.extent {
            Extent::AllReduce => 2 * (self.n_peers - 1),
            Extent::ScatterMean => self.n_peers - 1,
        }
    }

    fn chunk(&self, k: usize, len: usize) -> std::ops::Range<usize> {
        chunk((k + self.shift) % self.n_peers, self.n_peers, len)
    }

    /// The chunk that comes in a step.
    fn incoming_chunk(&self, step: usize, len: usize) -> std::ops::Range<usize> {
        // Both halves count down: in step s comes what the peer before sent, (r−1)−s; in the second half it is one further.
        let back = if step < self.n_peers - 1 { step + 1 } else { step + 1 - self.n_peers };
        self.chunk((self.rank + self.n_peers - back) % self.n_peers, len)
    }

    fn next(&self) -> usize {
        (self.rank + 1) % self.n_peers
    }

    fn previous(&self) -> usize {
        (self.rank + self.n_peers - 1) % self.n_peers
    }
}

impl Collective for Ring {
    fn begin(&mut self, ctx: &Ctx<'_>) {
        *self = self.seen_by(ctx.rank(), ctx.n_peers(), ctx.round());
        self.buckets = ctx.buckets().iter().map(|range| self.empty_bucket(range.len())).collect();
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        let own = self.chunk(self.rank, numbers.len());
        if self.n_peers > 1 {
            for (k, segment) in segments(own).enumerate() {
                let label = Label { bucket, step: 0, segment: k };
                ctx.send(self.next(), label.to_part(), self.codec.encode(&numbers[segment]));
            }
        }
        self.buckets[bucket].numbers = Some(numbers);
        for (label, body) in std::mem::take(&mut self.buckets[bucket].early) {
            self.take(ctx, label, body).expect("it was checked when it came");
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if from != self.previous() || label.step >= self.n_steps() {
            return Err(Malformed::new("it is not its turn to send this part round the ring"));
        }
        let Some(bucket) = self.buckets.get(label.bucket) else {
            return Err(Malformed::new("there is no such part of the vector"));
        };
        let chunk = self.incoming_chunk(label.step, bucket.len);
        let Some(segment) = segment(&chunk, label.segment) else {
            return Err(Malformed::new("there is no such segment of the vector"));
        };
        self.codec.check(&message.body, segment.len())?;
        let most = n_segments(&(0..bucket.len.div_ceil(self.n_peers)));
        let bucket = &mut self.buckets[label.bucket];
        bucket.seen.mark(label.step * most + label.segment)?;
        if bucket.numbers.is_none() {
            bucket.early.push((label, message.body));
            return Ok(());
        }
        self.take(ctx, label, message.body)
    }

    fn is_complete(&self) -> bool {
        let is_complete = |bucket: &Bucket| bucket.numbers.is_some() && bucket.seen.is_complete();
        !self.buckets.is_empty() && self.buckets.iter().all(is_complete)
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.buckets.drain(..).map(|bucket| bucket.numbers.expect("the ring is complete")).collect()
    }

    fn waits_for(&self) -> Vec<usize> {
        let is_missing = self.buckets.iter().any(|bucket| !bucket.seen.is_complete());
        if is_missing { vec![self.previous()] } else { Vec::new() }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let n_peers = question.n_peers;
        let asked = self.seen_by(0, n_peers, question.round);
        let mut sent = vec![0; n_peers];
        for bucket in question.buckets {
            let chunks: Vec<u64> =
                (0..n_peers).map(|k| encoded_len(self.codec, asked.chunk(k, bucket.len()))).collect();
            let all: u64 = chunks.iter().sum();
            for (rank, sent) in sent.iter_mut().enumerate() {
                // Everything but the chunk that ends here; and in the second half, but the one that comes last.
                *sent += all - chunks[(rank + 1) % n_peers];
                if self.extent == Extent::AllReduce {
                    *sent += all - chunks[(rank + 2) % n_peers];
                }
            }
        }
        if n_peers == 1 {
            sent.fill(0);
        }
        let most = sent.iter().copied().max().unwrap_or(0);
        Cost { total: sent.iter().sum(), most_sent: most, most_received: most, n_steps: asked.n_steps() as u32 }
    }
}
