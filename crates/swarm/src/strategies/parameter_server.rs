//! `parameter-server`: every peer sends its vector to those who keep it, and gets the mean back.
//!
//! The vector is cut into shards; shard k is kept by peer k, which trains like all others: no machine is only a server.
//! Contributions are added in the order of ranks, so the sum does not depend on who was first.
//!
//! Messages: a segment of a shard of a bucket, pushed to its keeper or sent back. Body: numbers.
//! Li et al. (2014), "Scaling distributed machine learning with the parameter server".

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::Collective;
use crate::collective::segments::{Label, Seen, chunk, encoded_len, n_segments, segment, segments};
use crate::strategy::{
    Averager, Averaging, CODEC, Cost, CostQuestion, Ctx, LOCAL_STEPS, Malformed, Message, OptionDoc, OptionError,
    PAYLOAD, Spec, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "parameter-server",
    about: "Peers send their vectors to the keepers of its shards and get the mean back. The classic to compare with; with \
            one shard, one peer's link carries everything.",
    cost: "each peer sends M and receives M; a keeper of one of k shards 2(N-1)M/k besides; 2 steps",
    paper: "Li et al. 2014",
    options: &[
        CODEC,
        LOCAL_STEPS,
        PAYLOAD,
        OptionDoc { name: "shards", about: "how many peers keep a part of the vector; `0`: all of them" },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { averaging, shards } = read_options(SPEC.name, table)?;
        let (turn, codec) = averaging.check(SPEC.name)?;
        let shards = usize::try_from(shards)
            .map_err(|_| OptionError::Option { strategy: SPEC.name, problem: "shards: must be from 0 up".into() })?;
        Ok(Box::new(Averager::new(turn, Shards::new(codec, shards))))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    #[serde(flatten)]
    averaging: Averaging,
    shards: i64,
}

impl Default for Options {
    fn default() -> Self {
        Self { averaging: Averaging::default(), shards: 1 }
    }
}

/// An exchange through the keepers of shards.
struct Shards {
    codec: Codec,
    /// How many were asked for; 0 for as many as there are peers.
    n_asked: usize,
    rank: usize,
    n_peers: usize,
    buckets: Vec<Bucket>,
}

struct Bucket {
    len: usize,
    numbers: Option<Vec<f32>>,
    /// The sums that this peer keeps, by segment of its shard.
    sums: Vec<Sum>,
    /// Which results have come: by shard and segment.
    seen: Seen,
    /// How many of the sums are not complete.
    n_open: usize,
}

/// A sum that takes its parts in the order of ranks.
#[derive(Clone, Default)]
struct Sum {
    numbers: Vec<f32>,
    n_added: usize,
    waiting: BTreeMap<usize, Bytes>,
}

const PUSH: usize = 0;
const RESULT: usize = 1;

impl Shards {
    fn new(codec: Codec, n_asked: usize) -> Self {
        Self { codec, n_asked, rank: 0, n_peers: 1, buckets: Vec::new() }
    }

    fn n_shards(&self) -> usize {
        if self.n_asked == 0 { self.n_peers } else { self.n_asked.min(self.n_peers) }
    }

    fn shard(&self, shard: usize, len: usize) -> Range<usize> {
        chunk(shard, self.n_shards(), len)
    }

    fn own_shard(&self, len: usize) -> Range<usize> {
        if self.rank < self.n_shards() { self.shard(self.rank, len) } else { 0..0 }
    }

    fn empty_bucket(&self, len: usize) -> Bucket {
        let most = n_segments(&(0..len.div_ceil(self.n_shards())));
        let others = (0..self.n_shards()).filter(|&shard| shard != self.rank);
        let expected = others.map(|shard| n_segments(&self.shard(shard, len))).sum();
        let sums: Vec<Sum> = segments(self.own_shard(len))
            .map(|segment| Sum { numbers: vec![0.0; segment.len()], ..Sum::default() })
            .collect();
        let n_open = sums.len();
        Bucket { len, numbers: None, sums, seen: Seen::new(most * self.n_shards(), expected), n_open }
    }

    /// Adds all contributions whose turn it is; when all are in, the result goes to everybody.
    fn add_up(&mut self, ctx: &mut Ctx<'_>, bucket: usize, k: usize) {
        let Self { codec, rank, n_peers, .. } = *self;
        let own_shard = self.own_shard(self.buckets[bucket].len);
        let place = segment(&own_shard, k).expect("only segments that exist are kept");
        let Bucket { numbers, sums, n_open, .. } = &mut self.buckets[bucket];
        let sum = &mut sums[k];
        while sum.n_added < n_peers {
            if sum.n_added == rank {
                let Some(own) = numbers else { return };
                sum.numbers.iter_mut().zip(&own[place.clone()]).for_each(|(sum, own)| *sum += own);
            } else {
                let Some(body) = sum.waiting.remove(&sum.n_added) else { return };
                codec.decode_add(&body, &mut sum.numbers).expect("it was checked when it came");
            }
            sum.n_added += 1;
        }
        let body = codec.encode(&std::mem::take(&mut sum.numbers));
        *n_open -= 1;
        let own = numbers.as_mut().expect("own numbers were added");
        codec.decode(&body, &mut own[place]).expect("it was just encoded");
        let part = Label { bucket, step: RESULT, segment: k }.to_part();
        (0..n_peers).filter(|&to| to != rank).for_each(|to| ctx.send(to, part, body.clone()));
    }

    fn on_push(&mut self, ctx: &mut Ctx<'_>, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        let len = self.buckets[label.bucket].len;
        let Some(segment) = segment(&self.own_shard(len), label.segment) else {
            return Err(Malformed::new("it pushes to a peer that does not keep this part"));
        };
        self.codec.check(&body, segment.len())?;
        let sum = &mut self.buckets[label.bucket].sums[label.segment];
        if from < sum.n_added || sum.waiting.contains_key(&from) {
            return Err(Malformed::new("it pushes the same part twice"));
        }
        sum.waiting.insert(from, body);
        self.add_up(ctx, label.bucket, label.segment);
        Ok(())
    }

    fn on_result(&mut self, from: usize, label: Label, body: &Bytes) -> Result<(), Malformed> {
        let Self { codec, .. } = *self;
        let len = self.buckets[label.bucket].len;
        let shard = if from < self.n_shards() { self.shard(from, len) } else { 0..0 };
        let most = n_segments(&(0..len.div_ceil(self.n_shards())));
        let bucket = &mut self.buckets[label.bucket];
        let (Some(place), Some(numbers)) = (segment(&shard, label.segment), &mut bucket.numbers) else {
            return Err(Malformed::new("it sends a result that it cannot have"));
        };
        codec.check(body, place.len())?;
        bucket.seen.mark(from * most + label.segment)?;
        codec.decode(body, &mut numbers[place])
    }
}

impl Collective for Shards {
    fn begin(&mut self, ctx: &Ctx<'_>) {
        (self.rank, self.n_peers) = (ctx.rank(), ctx.n_peers());
        self.buckets = ctx.buckets().iter().map(|range| self.empty_bucket(range.len())).collect();
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        for keeper in (0..self.n_shards()).filter(|&keeper| keeper != self.rank) {
            for (k, segment) in segments(self.shard(keeper, numbers.len())).enumerate() {
                let label = Label { bucket, step: PUSH, segment: k };
                ctx.send(keeper, label.to_part(), self.codec.encode(&numbers[segment]));
            }
        }
        self.buckets[bucket].numbers = Some(numbers);
        for k in 0..self.buckets[bucket].sums.len() {
            self.add_up(ctx, bucket, k);
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if label.bucket >= self.buckets.len() {
            return Err(Malformed::new("there is no such part of the vector"));
        }
        match label.step {
            PUSH => self.on_push(ctx, from, label, message.body),
            RESULT => self.on_result(from, label, &message.body),
            _ => Err(Malformed::new("there is no such step in this exchange")),
        }
    }

    fn is_complete(&self) -> bool {
        let is_complete = |bucket: &Bucket| bucket.numbers.is_some() && bucket.n_open == 0 && bucket.seen.is_complete();
        !self.buckets.is_empty() && self.buckets.iter().all(is_complete)
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.buckets.drain(..).map(|bucket| bucket.numbers.expect("the exchange is complete")).collect()
    }

    fn waits_for(&self) -> Vec<usize> {
        let late: Vec<usize> = self.buckets.iter().flat_map(|bucket| &bucket.sums).map(|sum| sum.n_added).collect();
        if let Some(&rank) = late.iter().find(|&&rank| rank < self.n_peers && rank != self.rank) {
            return vec![rank];
        }
        let is_missing = |shard: &usize| {
            *shard != self.rank
                && self.buckets.iter().any(|bucket| {
                    let most = n_segments(&(0..bucket.len.div_ceil(self.n_shards())));
                    (0..n_segments(&self.shard(*shard, bucket.len))).any(|k| !bucket.seen.contains(shard * most + k))
                })
        };
        (0..self.n_shards()).filter(is_missing).collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let n_peers = question.n_peers;
        let asked = Self { n_peers, buckets: Vec::new(), ..*self };
        let n_shards = asked.n_shards();
        let mut shards = vec![0; n_peers];
        for bucket in question.buckets {
            for (k, shard) in shards.iter_mut().enumerate().take(n_shards) {
                *shard += encoded_len(self.codec, asked.shard(k, bucket.len()));
            }
        }
        let vector: u64 = shards.iter().sum();
        let others = n_peers as u64 - 1;
        let per_peer = shards.iter().map(|shard| vector - shard + others * shard);
        let most = per_peer.clone().max().unwrap_or(0);
        let n_steps = if n_peers > 1 { 2 } else { 0 };
        let total = if n_peers > 1 { per_peer.sum() } else { 0 };
        Cost { total, most_sent: most * others.min(1), most_received: most * others.min(1), n_steps }
    }
}
