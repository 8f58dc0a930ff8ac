//! The chunked ring: every peer sends a chunk to the next and adds what comes from the one before.
//!
//! With N peers a vector is N chunks. In N−1 steps every chunk travels round the ring and grows by each peer's numbers
//! (reduce-scatter); in N−1 more its sum travels round and replaces what was there (all-gather). Each peer sends 2M(N−1)/N.
//! A sum is added to where it lies in the message and goes on in the same bytes; nothing waits for a step to be complete.

use bytes::Bytes;

use super::bucket::{Address, Bucket, Buckets, Expected, send_segments};
use super::interface::Collective;
use super::segments::{Label, chunk, encoded_len, n_segments};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::strategy::{Cost, CostQuestion, Ctx, Message};

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
    buckets: Buckets,
}

impl Ring {
    /// A ring that nothing goes round yet.
    pub fn new(codec: Codec, extent: Extent) -> Self {
        Self { codec, extent, rank: 0, n_peers: 1, shift: 0, buckets: Buckets::default() }
    }

    /// The same ring as one of its peers sees it in a round.
    fn seen_by(&self, rank: usize, n_peers: usize, round: u32) -> Self {
        // Where peers keep what a chunk had gathered when it came by, no chunk may always begin at the same peer.
        let shift = if self.extent == Extent::ScatterMean { round as usize % n_peers } else { 0 };
        Self { rank, n_peers, shift, buckets: Buckets::default(), ..*self }
    }

    fn empty_bucket(&self, len: usize) -> Bucket {
        let n_messages = (0..self.n_steps()).map(|step| n_segments(&self.incoming_chunk(step, len))).sum();
        let longest = len.div_ceil(self.n_peers);
        Bucket::new(len, &Expected { n_steps: self.n_steps(), longest, n_messages })
    }

    /// Adds or replaces, and sends on.
    fn take(&mut self, ctx: &mut Ctx<'_>, label: Label, body: Bytes) -> Result<(), Malformed> {
        let Self { codec, n_peers, .. } = *self;
        let (next, n_steps) = (self.next(), self.n_steps());
        let chunk = self.incoming_chunk(label.step, self.buckets[label.bucket].len);
        let numbers = self.buckets[label.bucket].place(&chunk, label.segment);
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
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        *self = self.seen_by(ctx.rank(), ctx.n_peers(), ctx.round());
        self.buckets = Buckets::new(ctx.buckets().iter().map(|range| self.empty_bucket(range.len())));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        let own = self.chunk(self.rank, numbers.len());
        if self.n_peers > 1 {
            send_segments(ctx, self.codec, Address { to: self.next(), bucket, step: 0 }, &numbers, own);
        }
        for (label, body) in self.buckets.put(bucket, numbers) {
            self.take(ctx, label, body).expect("it was checked when it came");
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if from != self.previous() || label.step >= self.n_steps() {
            return Err(Malformed::new("it is not its turn to send this part round the ring"));
        }
        let len = self.buckets.named(label.bucket)?.len;
        let chunk = self.incoming_chunk(label.step, len);
        match self.buckets[label.bucket].admit(self.codec, label, &chunk, message.body)? {
            Some(body) => self.take(ctx, label, body),
            None => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.buckets.is_complete()
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.buckets.take_result()
    }

    fn waits_for(&self) -> Vec<usize> {
        self.buckets.first_missing().map(|_| self.previous()).into_iter().collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let n_steps = self.seen_by(0, question.n_peers, question.round).n_steps() as u32;
        let sent = self.sent_by_rank(question);
        let most = sent.iter().copied().max().unwrap_or(0);
        Cost { total: sent.iter().sum(), most_sent: most, most_received: most, n_steps }
    }
}

impl Ring {
    /// What each peer sends. It receives what the one before it sends.
    pub(crate) fn sent_by_rank(&self, question: &CostQuestion<'_>) -> Vec<u64> {
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
        sent
    }
}
