//! `step-wise`: each peer starts the next round with the average up to itself; there is no second pass.
//!
//! A sum goes along the ring from the round's first peer to its last. Whoever it comes to adds its own weights, sends the
//! sum on, and goes on with the mean of what has been gathered so far; only the last holds the full mean. The first peer
//! changes from round to round, or one peer would never receive anything. At the end of an epoch all weights are averaged.
//! Chunked, every chunk begins at another peer: the first half of a ring all-reduce.
//!
//! Messages: a segment of a bucket as a sum; how many peers are in it follows from the round. Body: numbers. With a fixed
//! start the first peer would wait for nobody and could run away; so the second tells it, in a message without a body, that
//! it has come to the round.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::bucket::{Address, Bucket, Buckets, Expected, send_segments, vector_len};
use crate::collective::segments::{Label, n_segments};
use crate::collective::{Collective, Extent, Ring, Total};
use crate::strategy::{
    AnyStrategy, Averager, CODEC, Cost, CostQuestion, Ctx, LOCAL_STEPS, LocalSteps, Malformed, Message, Mixing,
    OPTIMIZER_STATE, OptimizerState, OptionDoc, Payload, RoundPlan, Scale, Spec, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "step-wise",
    about: "Each peer goes on with the average of the peers up to itself, without a second pass; the order rotates. Half the \
            bytes of an all-reduce; replicas stay close, and equal after each epoch.",
    cost: "each peer sends at most M, in N-1 steps; chunked: M(N-1)/N",
    paper: "the step-wise averaging study",
    options: &[
        CODEC,
        OptionDoc {
            name: "form",
            about: "`rotating`: the first peer changes from round to round; `fixed`: it is always the same, which biases \
                    the result to it; `chunked`: every chunk of the vector begins at another peer",
        },
        LOCAL_STEPS,
        OPTIMIZER_STATE,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { codec, form, local_steps, optimizer_state } = read_options(SPEC.name, table)?;
        let length = local_steps.into();
        let optimizer_state = optimizer_state.check(SPEC.name, codec)?;
        let (payload, scale) = (Payload::Weights, Scale::Rate);
        let round_plan = RoundPlan { payload, length, scale, mixing: Mixing::Partial, optimizer_state };
        let averager = match form {
            Form::Chunked => Averager::new(round_plan, Ring::new(codec, Extent::ScatterMean)),
            Form::Fixed => Averager::new(round_plan, Relay::new(codec, Start::Fixed)),
            Form::Rotating => Averager::new(round_plan, Relay::new(codec, Start::Rotating)),
        };
        Ok(AnyStrategy::round(averager.with_sync(Total::default())))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    codec: Codec,
    form: Form,
    local_steps: LocalSteps,
    optimizer_state: OptimizerState,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            codec: Codec::F32,
            form: Form::Rotating,
            local_steps: LocalSteps::Batches(1),
            optimizer_state: OptimizerState::Keep,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Form {
    Chunked,
    Fixed,
    Rotating,
}

/// Which peer begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    Fixed,
    Rotating,
}

/// A sum that goes once along the ring; everybody keeps the mean so far.
struct Relay {
    codec: Codec,
    start: Start,
    rank: usize,
    n_peers: usize,
    /// How many peers come before this one in this round.
    position: usize,
    /// Whether the next peer has come to this round, where that matters; and whether this one has told the one before.
    is_followed: bool,
    has_told: bool,
    buckets: Buckets,
}

/// A sum on its way, and the word that one has come to the round.
const SUM: usize = 0;
const FOLLOWED: usize = 1;

impl Relay {
    fn new(codec: Codec, start: Start) -> Self {
        let buckets = Buckets::default();
        Self { codec, start, rank: 0, n_peers: 1, position: 0, is_followed: true, has_told: true, buckets }
    }

    fn next(&self) -> usize {
        (self.rank + 1) % self.n_peers
    }

    fn previous(&self) -> usize {
        (self.rank + self.n_peers - 1) % self.n_peers
    }

    /// The next peer says that it has come to this round.
    fn on_followed(&mut self, from: usize, body: &Bytes) -> Result<(), Malformed> {
        if self.is_followed || from != self.next() || !body.is_empty() {
            return Err(Malformed::new("it says that it follows one who did not wait for it"));
        }
        self.is_followed = true;
        Ok(())
    }

    fn take(&mut self, ctx: &mut Ctx<'_>, label: Label, body: Bytes) -> Result<(), Malformed> {
        let bucket = &mut self.buckets[label.bucket];
        let numbers = bucket.place(&(0..bucket.len), label.segment);
        let sum = self.codec.add(body, numbers)?;
        self.codec.decode(&sum, numbers)?;
        let count = (self.position + 1) as f32;
        numbers.iter_mut().for_each(|number| *number /= count);
        if self.position + 1 < self.n_peers {
            ctx.send(self.next(), label.to_part(), sum);
        }
        Ok(())
    }
}

impl Collective for Relay {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        (self.rank, self.n_peers) = (ctx.rank(), ctx.n_peers());
        let start = if self.start == Start::Fixed { 0 } else { ctx.round() as usize % self.n_peers };
        self.position = (self.rank + self.n_peers - start) % self.n_peers;
        let is_fixed = self.start == Start::Fixed && self.n_peers > 1;
        self.is_followed = !(is_fixed && self.position == 0);
        self.has_told = !(is_fixed && self.position == 1);
        let bucket = |len: usize| {
            let n_messages = if self.position == 0 { 0 } else { n_segments(&(0..len)) };
            Bucket::new(len, &Expected { n_steps: 1, longest: len, n_messages })
        };
        self.buckets = Buckets::new(ctx.buckets().iter().map(|range| bucket(range.len())));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        if self.position == 0 && self.n_peers > 1 {
            let address = Address { to: self.next(), bucket, step: SUM };
            send_segments(ctx, self.codec, address, &numbers, 0..numbers.len());
        }
        for (label, body) in self.buckets.put(bucket, numbers) {
            self.take(ctx, label, body).expect("it was checked when it came");
        }
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if label.step == FOLLOWED {
            return self.on_followed(from, &message.body);
        }
        if self.position == 0 || from != self.previous() || label.step != SUM {
            return Err(Malformed::new("it is not its turn to send a sum"));
        }
        let bucket = self.buckets.named(label.bucket)?;
        let admitted = bucket.admit(self.codec, label, &(0..bucket.len), message.body)?;
        if !std::mem::replace(&mut self.has_told, true) {
            ctx.send(from, Label { bucket: 0, step: FOLLOWED, segment: 0 }.to_part(), Bytes::new());
        }
        match admitted {
            Some(body) => self.take(ctx, label, body),
            None => Ok(()),
        }
    }

    fn is_complete(&self) -> bool {
        self.is_followed && self.buckets.is_complete()
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        self.buckets.take_result()
    }

    fn waits_for(&self) -> Vec<usize> {
        match (self.buckets.first_missing(), self.is_followed) {
            (Some(_), _) => vec![self.previous()],
            (None, false) => vec![self.next()],
            (None, true) => Vec::new(),
        }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let vector = vector_len(self.codec, question);
        let hops = question.n_peers as u64 - 1;
        let most = hops.min(1) * vector;
        Cost { total: hops * vector, most_sent: most, most_received: most, n_steps: hops as u32 }
    }
}
