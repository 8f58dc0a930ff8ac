//! The chain: a sum grows from the first peer to the last, and the last one's result goes back to all.
//!
//! Segments follow each other down the chain, so a long vector does not wait at each peer until it is complete.

use bytes::Bytes;

use super::bucket::{Address, Bucket, Buckets, Expected, send_segments, vector_len};
use super::interface::Collective;
use super::segments::{Label, n_segments};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::strategy::{Cost, CostQuestion, Ctx, Message};

/// How the last peer's result comes to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// The last peer sends it to each.
    FanOut,
    /// It goes round a second time: from the last to the first, and on to the last but one.
    Forward,
}

/// A sum over all peers that goes along a chain.
#[derive(Debug)]
pub(crate) struct Chain {
    codec: Codec,
    spread: Spread,
    rank: usize,
    n_peers: usize,
    buckets: Buckets,
}

/// The sum on its way to the last peer, and the result on its way back.
const SUM: usize = 0;
const RESULT: usize = 1;

impl Chain {
    /// A chain that nothing goes along yet.
    pub(crate) fn new(codec: Codec, spread: Spread) -> Self {
        Self { codec, spread, rank: 0, n_peers: 1, buckets: Buckets::default() }
    }

    /// From whom a message of this step comes.
    fn sender(&self, step: usize) -> Option<usize> {
        let last = self.n_peers - 1;
        match (step, self.spread) {
            (SUM, _) => self.rank.checked_sub(1),
            (RESULT, _) if self.rank == last => None,
            (RESULT, Spread::Forward) if self.rank > 0 => Some(self.rank - 1),
            (RESULT, _) => Some(last),
            _ => None,
        }
    }

    fn take(&mut self, ctx: &mut Ctx<'_>, label: Label, body: Bytes) -> Result<(), Malformed> {
        let Self { codec, rank, n_peers, spread, .. } = *self;
        let last = n_peers - 1;
        let bucket = &mut self.buckets[label.bucket];
        let numbers = bucket.place(&(0..bucket.len), label.segment);
        let is_sum = label.step == SUM;
        let body = if is_sum { codec.add(body, numbers)? } else { body };
        if is_sum && rank < last {
            ctx.send(rank + 1, label.to_part(), body);
            return Ok(());
        }
        codec.decode(&body, numbers)?;
        let part = Label { step: RESULT, ..label }.to_part();
        match spread {
            Spread::FanOut if is_sum => (0..last).for_each(|to| ctx.send(to, part, body.clone())),
            Spread::Forward if is_sum => ctx.send(0, part, body),
            Spread::Forward if rank + 1 < last => ctx.send(rank + 1, part, body),
            Spread::FanOut | Spread::Forward => {}
        }
        Ok(())
    }
}

impl Collective for Chain {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        (self.rank, self.n_peers) = (ctx.rank(), ctx.n_peers());
        let (is_first, is_last) = (self.rank == 0, self.rank + 1 == self.n_peers);
        let n_messages = usize::from(!is_first) + usize::from(!is_last);
        let bucket = |len: usize| {
            let n_messages = n_messages * n_segments(&(0..len));
            Bucket::new(len, &Expected { n_steps: 2, longest: len, n_messages })
        };
        self.buckets = Buckets::new(ctx.buckets().iter().map(|range| bucket(range.len())));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        if self.rank == 0 && self.n_peers > 1 {
            let address = Address { to: 1, bucket, step: SUM };
            send_segments(ctx, self.codec, address, &numbers, 0..numbers.len());
        }
        for (label, body) in self.buckets.put(bucket, numbers) {
            self.take(ctx, label, body).expect("it was checked when it came");
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if self.sender(label.step) != Some(from) {
            return Err(Malformed::new("it is not its turn to send this part along the chain"));
        }
        let bucket = self.buckets.named(label.bucket)?;
        match bucket.admit(self.codec, label, &(0..bucket.len), message.body)? {
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
        let Some(bucket) = self.buckets.first_missing() else { return Vec::new() };
        let sum_is_here = (0..n_segments(&(0..bucket.len))).all(|k| bucket.has_come(SUM, k));
        self.sender(if self.rank > 0 && !sum_is_here { SUM } else { RESULT }).into_iter().collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let vector = vector_len(self.codec, question);
        // The first peer sends one sum, the last its results, those between a sum and, going round, a result.
        let hops = question.n_peers as u64 - 1;
        let (most_sent, n_steps) = match (self.spread, hops) {
            (_, 0) => (0, 0),
            (Spread::FanOut, _) => (hops, hops + 1),
            (Spread::Forward, 1) => (1, 2),
            (Spread::Forward, _) => (2, 2 * hops),
        };
        Cost {
            total: 2 * hops * vector,
            most_sent: most_sent * vector,
            most_received: hops.min(2) * vector,
            n_steps: n_steps as u32,
        }
    }
}
