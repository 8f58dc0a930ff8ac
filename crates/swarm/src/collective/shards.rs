//! Shards: every peer sends its vector to those who keep its shards, and gets the sum back from them.
//!
//! Contributions are added in the order of ranks, so the sum does not depend on who was first; or, where a rule of aggregation
//! is given, they wait until all are there, and the rule makes one of those that were trained for. Two steps, however many peers
//! there are; a owner of one of k shards sends and receives (N−1)M/k besides its own vector's M.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::bucket::{Bucket, Buckets, Expected};
use super::interface::Collective;
use super::segments::{Label, chunk, encoded_len, n_segments, segment, segments};
use crate::codec::Codec;
use crate::malformed::Malformed;
use crate::strategy::{Contribution, Cost, CostQuestion, Ctx, Message, Rule, Trained};

/// An exchange through the owners of shards.
pub(crate) struct Shards {
    codec: Codec,
    /// How contributions become one, if they are not just added.
    rule: Option<Rule>,
    /// How many were asked for; 0 for as many as there are peers.
    n_asked: usize,
    rank: usize,
    n_peers: usize,
    /// What comes for them are results; the step of a result is the rank of its owner.
    buckets: Buckets,
    /// The sums that this peer keeps, by bucket and by segment of its shard.
    sums: Vec<Vec<Sum>>,
    /// How many of the sums are not complete.
    n_open: usize,
    /// What rounding has taken away, if that is to be made good: of this peer's contributions and, in its own shard, of its
    /// results. Bucket by bucket; none before the first exchange.
    residue: Option<Vec<Vec<f32>>>,
}

/// A sum that takes its parts in the order of ranks, or what a rule makes of them.
#[derive(Clone, Default)]
struct Sum {
    /// Empty before the first part, and when it is told to all: an owner need not hold all of its sums at once.
    numbers: Vec<f32>,
    n_added: usize,
    waiting: BTreeMap<usize, Bytes>,
}

/// The largest number that every codec can write.
const MOST: f32 = 1e38;

const PUSH: usize = 0;
const RESULT: usize = 1;

impl Shards {
    /// So many shards, or with 0 as many as there are peers; nothing is exchanged yet.
    pub(crate) fn new(codec: Codec, n_asked: usize) -> Self {
        let (buckets, sums) = (Buckets::default(), Vec::new());
        Self { codec, rule: None, n_asked, rank: 0, n_peers: 1, buckets, sums, n_open: 0, residue: None }
    }

    /// Adds what rounding takes away in one exchange to the numbers of the next, so that over time nothing is lost.
    #[must_use]
    pub(crate) fn with_feedback(self) -> Self {
        Self { residue: Some(Vec::new()), ..self }
    }

    /// Has contributions made one by a rule, each shard for itself, instead of adding them.
    #[must_use]
    pub(crate) fn with_rule(self, rule: Rule) -> Self {
        Self { rule: Some(rule), ..self }
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
        let others = (0..self.n_shards()).filter(|&shard| shard != self.rank);
        let n_messages = others.map(|shard| n_segments(&self.shard(shard, len))).sum();
        let longest = len.div_ceil(self.n_shards());
        Bucket::new(len, &Expected { n_steps: self.n_shards(), longest, n_messages })
    }

    fn empty_sums(&self, len: usize) -> Vec<Sum> {
        segments(self.own_shard(len)).map(|_| Sum::default()).collect()
    }

    /// Takes contributions whose time has come; when all are in, the result goes to everybody.
    fn proceed(&mut self, ctx: &mut Ctx<'_>, bucket: usize, k: usize) {
        let is_complete = match self.rule {
            None => self.add_up(bucket, k),
            Some(rule) => self.aggregate(ctx, rule, bucket, k),
        };
        if is_complete {
            self.publish(ctx, bucket, k);
        }
    }

    /// Adds the contributions that follow on those that are added already; says whether that is all of them.
    fn add_up(&mut self, bucket: usize, k: usize) -> bool {
        let place = self.own_segment(bucket, k);
        let numbers = &self.buckets[bucket].numbers;
        let sum = &mut self.sums[bucket][k];
        while sum.n_added < self.n_peers {
            if sum.n_added == self.rank {
                let Some(own) = numbers else { return false };
                sum.numbers.resize(place.len(), 0.0);
                sum.numbers.iter_mut().zip(&own[place.clone()]).for_each(|(sum, own)| *sum += own);
            } else {
                let Some(body) = sum.waiting.remove(&sum.n_added) else { return false };
                sum.numbers.resize(place.len(), 0.0);
                self.codec.decode_add(&body, &mut sum.numbers).expect("it was checked when it came");
            }
            sum.n_added += 1;
        }
        true
    }

    /// Makes one of all contributions if they are there; says whether they are.
    fn aggregate(&mut self, ctx: &Ctx<'_>, rule: Rule, bucket: usize, k: usize) -> bool {
        let place = self.own_segment(bucket, k);
        let sum = &mut self.sums[bucket][k];
        let Some(own) = self.buckets[bucket].numbers.as_ref().filter(|_| sum.waiting.len() + 1 == self.n_peers) else {
            return false;
        };
        let decode = |rank: usize| match sum.waiting.get(&rank) {
            None => own[place.clone()].to_vec(),
            Some(body) => {
                let mut numbers = vec![0.0; place.len()];
                self.codec.decode(body, &mut numbers).expect("it was checked when it came");
                numbers
            }
        };
        let all: Vec<Vec<f32>> = ctx.voters().into_iter().map(decode).collect();
        let contribution = |numbers| Contribution { trained: Trained::default(), parts: vec![numbers] };
        let contributions: Vec<Contribution<'_>> = all.iter().map(|all| contribution(all.as_slice())).collect();
        sum.numbers = vec![0.0; place.len()];
        rule.aggregate(&contributions, None, std::slice::from_mut(&mut sum.numbers));
        sum.waiting.clear();
        sum.n_added = self.n_peers;
        true
    }

    fn publish(&mut self, ctx: &mut Ctx<'_>, bucket: usize, k: usize) {
        let place = self.own_segment(bucket, k);
        let Self { codec, rank, n_peers, .. } = *self;
        let mut sum = std::mem::take(&mut self.sums[bucket][k].numbers);
        // However large the numbers that came: a owner that sent infinite ones on would be refused for what others did.
        sum.iter_mut().for_each(|number| *number = number.clamp(-MOST, MOST));
        let residue = self.residue.as_mut().map(|residue| &mut residue[bucket][place.clone()]);
        let body = encode(codec, &mut sum, residue);
        self.n_open -= 1;
        let own = self.buckets[bucket].numbers.as_mut().expect("own numbers were added");
        codec.decode(&body, &mut own[place]).expect("it was just encoded");
        let part = Label { bucket, step: RESULT, segment: k }.to_part();
        (0..n_peers).filter(|&to| to != rank).for_each(|to| ctx.send(to, part, body.clone()));
    }

    fn own_segment(&self, bucket: usize, k: usize) -> Range<usize> {
        let shard = self.own_shard(self.buckets[bucket].len);
        segment(&shard, k).expect("only segments that exist are kept")
    }

    fn on_push(&mut self, ctx: &mut Ctx<'_>, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        let len = self.buckets[label.bucket].len;
        let Some(segment) = segment(&self.own_shard(len), label.segment) else {
            return Err(Malformed::new("it pushes to a peer that does not keep this part"));
        };
        self.codec.check_finite(&body, segment.len())?;
        let sum = &mut self.sums[label.bucket][label.segment];
        if from < sum.n_added || sum.waiting.contains_key(&from) {
            return Err(Malformed::new("it pushes the same part twice"));
        }
        sum.waiting.insert(from, body);
        self.proceed(ctx, label.bucket, label.segment);
        Ok(())
    }

    fn on_result(&mut self, from: usize, label: Label, body: Bytes) -> Result<(), Malformed> {
        let shard = if from < self.n_shards() { self.shard(from, self.buckets[label.bucket].len) } else { 0..0 };
        let bucket = &mut self.buckets[label.bucket];
        if shard.is_empty() || bucket.numbers.is_none() {
            return Err(Malformed::new("it sends a result that it cannot have"));
        }
        let Some(body) = bucket.admit(self.codec, Label { step: from, ..label }, &shard, body)? else { return Ok(()) };
        self.codec.decode(&body, bucket.place(&shard, label.segment))
    }
}

impl Collective for Shards {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        (self.rank, self.n_peers) = (ctx.rank(), ctx.n_peers());
        let lens = || ctx.buckets().iter().map(ExactSizeIterator::len);
        self.buckets = Buckets::new(lens().map(|len| self.empty_bucket(len)));
        self.sums = lens().map(|len| self.empty_sums(len)).collect();
        self.n_open = self.sums.iter().map(Vec::len).sum();
        if let Some(residue) = self.residue.as_mut().filter(|residue| residue.is_empty()) {
            *residue = lens().map(|len| vec![0.0; len]).collect();
        }
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, mut numbers: Vec<f32>) {
        for owner in (0..self.n_shards()).filter(|&owner| owner != self.rank) {
            for (k, place) in segments(self.shard(owner, numbers.len())).enumerate() {
                let residue = self.residue.as_mut().map(|residue| &mut residue[bucket][place.clone()]);
                let body = encode(self.codec, &mut numbers[place], residue);
                ctx.send(owner, Label { bucket, step: PUSH, segment: k }.to_part(), body);
            }
        }
        // Nothing came before them: a result needs everybody's numbers.
        self.buckets.put(bucket, numbers);
        for k in 0..self.sums[bucket].len() {
            self.proceed(ctx, bucket, k);
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        self.buckets.named(label.bucket)?;
        match label.step {
            PUSH => self.on_push(ctx, from, label, message.body),
            RESULT => self.on_result(from, label, message.body),
            _ => Err(Malformed::new("there is no such step in this exchange")),
        }
    }

    fn is_complete(&self) -> bool {
        self.n_open == 0 && self.buckets.is_complete()
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.buckets.take_result()
    }

    fn waits_for(&self) -> Vec<usize> {
        let is_late = |sum: &Sum, rank: usize| rank != self.rank && !sum.waiting.contains_key(&rank);
        let mut late =
            self.sums.iter().flatten().filter_map(|sum| (sum.n_added..self.n_peers).find(|&rank| is_late(sum, rank)));
        if let Some(rank) = late.next() {
            return vec![rank];
        }
        let has_come = |shard: usize, bucket: &Bucket| {
            (0..n_segments(&self.shard(shard, bucket.len))).all(|k| bucket.has_come(shard, k))
        };
        let is_missing =
            |&shard: &usize| shard != self.rank && self.buckets.iter().any(|bucket| !has_come(shard, bucket));
        (0..self.n_shards()).filter(is_missing).collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let n_peers = question.n_peers;
        let asked = Self { n_peers, ..Self::new(self.codec, self.n_asked) };
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

/// Writes numbers and what earlier ones are owed; what is owed then is the difference to what can be read.
pub(super) fn encode(codec: Codec, numbers: &mut [f32], residue: Option<&mut [f32]>) -> Bytes {
    let Some(residue) = residue else { return codec.encode(numbers) };
    numbers.iter_mut().zip(&*residue).for_each(|(number, owed)| *number += owed);
    let body = codec.encode(numbers);
    codec.decode(&body, residue).expect("it was just encoded");
    residue.iter_mut().zip(numbers).for_each(|(read, number)| *read = *number - *read);
    body
}

#[cfg(test)]
mod tests {
    use super::encode;
    use crate::codec::Codec;

    #[test]
    fn over_time_nothing_is_lost() {
        for (codec, step) in [(Codec::Int4, 1.0 / 7.0), (Codec::Int8, 1.0 / 127.0)] {
            let numbers = [1.0, 0.03, -0.004, 0.3];
            let (mut residue, mut sum) = ([0.0; 4], [0.0; 4]);
            for n in 1..200 {
                let body = encode(codec, &mut numbers.clone(), Some(&mut residue));
                codec.decode_add(&body, &mut sum).unwrap();
                for (sum, number) in sum.iter().zip(numbers) {
                    assert!((sum - n as f32 * number).abs() <= step, "{codec:?}: {sum} after {n} times {number}");
                }
            }
        }
    }
}
