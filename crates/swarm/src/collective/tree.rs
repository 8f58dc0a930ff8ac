//! The tree: sums go up from the leaves to the first peer, and its result goes down to all.
//!
//! It is a [`SpanningTree`] of two children a peer. A peer adds its first child's numbers to its own and then the second's, so a sum does not
//! depend on when messages arrive, and all end with the bits that the first peer sent down. Segments follow each other up and down.
//! Nobody sends or receives more than 3M, however many peers there are, in 2·log₂ N steps; a ring has 2(N−1).

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::bucket::{Address, Bucket, Buckets, Expected, send_segments, vector_len};
use super::interface::Collective;
use super::segments::{Label, n_segments, segment};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::spanning_tree::SpanningTree;
use crate::strategy::{Cost, CostQuestion, Ctx, Message};

/// A sum over all peers that goes up and down a tree.
#[derive(Debug)]
pub(crate) struct Tree {
    rank: usize,
    n_peers: usize,
    buckets: Buckets,
    /// What has come from children, by bucket and segment, until it has come from both.
    sums: BTreeMap<(usize, usize), [Option<Bytes>; MOST_CHILDREN]>,
}

const MOST_CHILDREN: usize = 2;
const TREE: SpanningTree = SpanningTree { most_children: MOST_CHILDREN };
/// What comes down. What comes up from a child has the child's place among its parent's as its step.
const RESULT: usize = MOST_CHILDREN;
/// It is for what must not be rounded.
const CODEC: Codec = Codec::F32;

impl Tree {
    /// A tree in which nothing moves yet.
    pub(crate) fn new() -> Self {
        Self { rank: 0, n_peers: 1, buckets: Buckets::default(), sums: BTreeMap::new() }
    }

    fn own_children(&self) -> Range<usize> {
        TREE.children(self.rank, self.n_peers)
    }

    fn parent(&self) -> Option<usize> {
        TREE.parent(self.rank)
    }

    /// As which step this peer's sum comes to its parent.
    fn step_at_parent(&self) -> usize {
        (self.rank + 1) % MOST_CHILDREN
    }

    fn take(&mut self, ctx: &mut Ctx<'_>, label: Label, body: Bytes) -> Result<(), Malformed> {
        if label.step == RESULT {
            return self.take_result_of_parent(ctx, label, &body);
        }
        let n_children = self.own_children().len();
        let sums = self.sums.entry((label.bucket, label.segment)).or_default();
        sums[label.step] = Some(body);
        if sums.iter().flatten().count() < n_children {
            return Ok(());
        }
        let sums = self.sums.remove(&(label.bucket, label.segment)).unwrap_or_default();
        let bucket = &mut self.buckets[label.bucket];
        let numbers = bucket.place(&(0..bucket.len), label.segment);
        for sum in sums.iter().flatten() {
            CODEC.decode_add(sum, numbers)?;
        }
        let body = CODEC.encode(numbers);
        match self.parent() {
            Some(parent) => ctx.send(parent, Label { step: self.step_at_parent(), ..label }.to_part(), body),
            None => self.send_down(ctx, label, &body),
        }
        Ok(())
    }

    fn take_result_of_parent(&mut self, ctx: &mut Ctx<'_>, label: Label, body: &Bytes) -> Result<(), Malformed> {
        let bucket = &mut self.buckets[label.bucket];
        CODEC.decode(body, bucket.place(&(0..bucket.len), label.segment))?;
        self.send_down(ctx, label, body);
        Ok(())
    }

    fn send_down(&self, ctx: &mut Ctx<'_>, label: Label, body: &Bytes) {
        let part = Label { step: RESULT, ..label }.to_part();
        self.own_children().for_each(|child| ctx.send(child, part, body.clone()));
    }

    /// Whether this peer's sum of a segment has gone up, so that there can be a result.
    fn has_gone_up(&self, label: Label) -> bool {
        let bucket = &self.buckets[label.bucket];
        bucket.numbers.is_some() && (0..self.own_children().len()).all(|step| bucket.has_come(step, label.segment))
    }

    fn check(&self, from: usize, label: Label) -> Result<(), Malformed> {
        let wrong = || Malformed::new("it is not its turn to send this part up or down the tree");
        let bucket = self.buckets.iter().nth(label.bucket).ok_or_else(wrong)?;
        let is_due = match label.step {
            RESULT => {
                let exists = segment(&(0..bucket.len), label.segment).is_some();
                self.parent() == Some(from) && exists && self.has_gone_up(label)
            }
            step => self.own_children().nth(step) == Some(from),
        };
        if is_due { Ok(()) } else { Err(wrong()) }
    }
}

impl Collective for Tree {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        (self.rank, self.n_peers) = (ctx.rank(), ctx.n_peers());
        self.sums.clear();
        let n_messages = self.own_children().len() + usize::from(self.parent().is_some());
        let bucket = |len: usize| {
            let n_messages = n_messages * n_segments(&(0..len));
            Bucket::new(len, &Expected { n_steps: 1 + MOST_CHILDREN, longest: len, n_messages })
        };
        self.buckets = Buckets::new(ctx.buckets().iter().map(|range| bucket(range.len())));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        if let Some(parent) = self.parent().filter(|_| self.own_children().is_empty()) {
            let address = Address { to: parent, bucket, step: self.step_at_parent() };
            send_segments(ctx, CODEC, address, &numbers, 0..numbers.len());
        }
        for (label, body) in self.buckets.put(bucket, numbers) {
            self.take(ctx, label, body).expect("it was checked when it came");
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        self.check(from, label)?;
        let bucket = self.buckets.named(label.bucket)?;
        match bucket.admit(CODEC, label, &(0..bucket.len), message.body)? {
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
        let has_come = |step: usize| (0..n_segments(&(0..bucket.len))).all(|k| bucket.has_come(step, k));
        let late: Vec<usize> =
            self.own_children().enumerate().filter(|(step, _)| !has_come(*step)).map(|(_, child)| child).collect();
        if late.is_empty() { self.parent().into_iter().collect() } else { late }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let (n_peers, vector) = (question.n_peers, vector_len(CODEC, question));
        let n_links = |rank: usize| TREE.children(rank, n_peers).len() as u64 + u64::from(rank > 0);
        // The first peer has no parent, the second is the first that may have all.
        let most = (0..n_peers.min(2)).map(n_links).max().unwrap_or(0) * vector;
        let depth = n_peers.max(1).ilog2();
        Cost { total: 2 * (n_peers as u64 - 1) * vector, most_sent: most, most_received: most, n_steps: 2 * depth }
    }
}
