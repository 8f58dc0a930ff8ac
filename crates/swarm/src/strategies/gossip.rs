//! `gossip`: in each round peers meet in pairs and average their weights; there is no sum over all.
//!
//! Who meets whom is drawn anew for every round, from the job's seed and the round's number, so nobody has to ask; not from the
//! view's, which says how membership was agreed on, and would make other numbers of the same training elsewhere. With an odd number of
//! peers one sits out. At the end of an epoch all weights are averaged.
//!
//! Nobody waits for more than the one it meets, so peers may be rounds apart. Yet none runs away: who has sent its weights
//! waits for the other's, so that nobody ever holds more than one early vector from each peer; and those who wait for a slow
//! peer hold up whom they meet next, so that those who can still go on are about half as many in every round.
//!
//! With `clipped-mean` the other's weights pull a peer no further than half of the step that it has just taken itself, so that it goes
//! its own way whatever it is sent. The distances of others would be no measure: who pulls makes them grow. At the end of an epoch all
//! go on with the median of each number then.
//!
//! Messages: a segment of a bucket of the weights. Body: numbers. Both average what travelled, so both end with the same bits, unless
//! one is clipped.
//! Boyd et al. (2006), "Randomized gossip algorithms"; Blot et al. (2016), "Gossip training for deep learning";
//! He, Karimireddy and Jaggi (2022), "Byzantine-robust decentralized learning via ClippedGossip".

use bytes::Bytes;
use nettorrent_engine::rng::Rng;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::bucket::{Address, Bucket, Buckets, Expected, send_segments, vector_len};
use crate::collective::segments::{Label, n_segments, segments};
use crate::collective::{Collective, Total};
use crate::strategy::{
    Aggregation, AnyStrategy, Averager, CODEC, Cost, CostQuestion, Ctx, LOCAL_STEPS, LocalSteps, Malformed, Message,
    Mixing, OPTIMIZER_STATE, OptimizerState, OptionDoc, OptionError, Payload, RoundPlan, Rule, Scale, Spec,
    clip_factor, default_options, read_options, squared_distance,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "gossip",
    about: "In each round peers meet in pairs, drawn anew, and average their weights. Nobody waits for all, so one slow \
            peer holds up few; replicas drift apart, and are equal after each epoch.",
    cost: "each peer sends M and receives M, in 1 step",
    paper: "Boyd et al. 2006, Blot et al. 2016",
    options: &[
        OptionDoc {
            name: "aggregation",
            about: "how the weights of two become one: `average`, the mean of both; or `clipped-mean`, in which the other's pull no \
                    further than half of this peer's own step, and the median of all at the end of an epoch",
        },
        CODEC,
        LOCAL_STEPS,
        OPTIMIZER_STATE,
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let Options { aggregation, codec, local_steps, optimizer_state } = read_options(SPEC.name, table)?;
        let length = local_steps.into();
        let optimizer_state = optimizer_state.check(SPEC.name, codec)?;
        let (payload, scale) = (Payload::Weights, Scale::Rate);
        let round_plan = RoundPlan { payload, length, scale, mixing: Mixing::Partial, optimizer_state };
        aggregation.check_optimizer_state(SPEC.name, optimizer_state)?;
        Ok(AnyStrategy::round(match aggregation {
            Aggregation::Average => {
                let meeting = Meeting { codec, other: None, buckets: Buckets::default() };
                Averager::new(round_plan, meeting).with_sync(Total::default())
            }
            Aggregation::ClippedMean => {
                let median = Rule { aggregation: Aggregation::Median, ..Rule::default() };
                Averager::new(round_plan, WaryMeeting::new(codec)).with_outvoting_sync(median)
            }
            _ => {
                let problem = "aggregation: two who meet cannot outvote each other; use `average` or `clipped-mean`";
                return Err(OptionError::Option { strategy: SPEC.name, problem: problem.to_owned() });
            }
        }))
    },
};

#[derive(Serialize, Deserialize)]
#[serde(default)]
struct Options {
    aggregation: Aggregation,
    codec: Codec,
    local_steps: LocalSteps,
    optimizer_state: OptimizerState,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            aggregation: Aggregation::Average,
            codec: Codec::F32,
            local_steps: LocalSteps::Batches(1),
            optimizer_state: OptimizerState::Keep,
        }
    }
}

/// Two peers average their vectors.
struct Meeting {
    codec: Codec,
    /// Whom this peer meets, if anybody.
    other: Option<usize>,
    buckets: Buckets,
}

/// The only step of a meeting.
const WEIGHTS: usize = 0;

impl Meeting {
    fn take(&mut self, label: Label, body: &Bytes) -> Result<(), Malformed> {
        let bucket = &mut self.buckets[label.bucket];
        let numbers = bucket.place(&(0..bucket.len), label.segment);
        self.codec.decode_mean(body, numbers)
    }
}

impl Collective for Meeting {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        self.other = partner(ctx.seed(), ctx.round(), ctx.rank(), ctx.n_peers());
        let bucket = |len: usize| {
            let n_messages = if self.other.is_some() { n_segments(&(0..len)) } else { 0 };
            Bucket::new(len, &Expected { n_steps: 1, longest: len, n_messages })
        };
        self.buckets = Buckets::new(ctx.buckets().iter().map(|range| bucket(range.len())));
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, mut numbers: Vec<f32>) {
        if let Some(other) = self.other {
            for (k, place) in segments(0..numbers.len()).enumerate() {
                let body = self.codec.encode(&numbers[place.clone()]);
                // What the other will read counts here too, however numbers travel.
                self.codec.decode(&body, &mut numbers[place]).expect("it was just encoded");
                ctx.send(other, Label { bucket, step: WEIGHTS, segment: k }.to_part(), body);
            }
        }
        for (label, body) in self.buckets.put(bucket, numbers) {
            self.take(label, &body).expect("it was checked when it came");
        }
    }

    fn receive(&mut self, _: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if self.other != Some(from) || label.step != WEIGHTS {
            return Err(not_met());
        }
        let bucket = self.buckets.named(label.bucket)?;
        match bucket.admit(self.codec, label, &(0..bucket.len), message.body)? {
            Some(body) => self.take(label, &body),
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
        self.buckets.first_missing().and(self.other).into_iter().collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        cost(self.codec, question)
    }
}

/// Two peers average their vectors, but neither lets itself be pulled far.
struct WaryMeeting {
    codec: Codec,
    other: Option<usize>,
    /// This peer's weights, bucket by bucket, and the other's.
    own: Vec<Option<Vec<f32>>>,
    theirs: Buckets,
    result: Option<Vec<Vec<f32>>>,
}

impl WaryMeeting {
    fn new(codec: Codec) -> Self {
        Self { codec, other: None, own: Vec::new(), theirs: Buckets::default(), result: None }
    }

    /// Goes towards the other, once its weights and this peer's own are there.
    fn meet_if_complete(&mut self, ctx: &Ctx<'_>) {
        let is_here = self.own.iter().all(Option::is_some) && (self.other.is_none() || self.theirs.is_complete());
        if self.result.is_some() || !is_here {
            return;
        }
        let mut weights: Vec<Vec<f32>> = self.own.iter_mut().filter_map(Option::take).collect();
        if self.other.is_some() {
            let theirs = self.theirs.take_result();
            let apart = weights.iter().zip(&theirs).map(|(own, theirs)| squared_distance(own, theirs));
            let steps = weights.iter().enumerate().map(|(k, own)| squared_distance(own, &ctx.held_at_start(k)));
            let pull = 0.5 * clip_factor(apart.sum::<f64>().sqrt(), steps.sum::<f64>().sqrt());
            for (own, theirs) in weights.iter_mut().zip(&theirs) {
                own.iter_mut().zip(theirs).for_each(|(own, theirs)| *own += pull * (theirs - *own));
            }
        }
        self.result = Some(weights);
    }
}

impl Collective for WaryMeeting {
    fn begin(&mut self, ctx: &mut Ctx<'_>) {
        self.other = partner(ctx.seed(), ctx.round(), ctx.rank(), ctx.n_peers());
        self.own = vec![None; ctx.buckets().len()];
        self.theirs = Buckets::incoming(ctx);
        self.result = None;
    }

    fn put(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>) {
        if let Some(to) = self.other {
            let address = Address { to, bucket, step: WEIGHTS };
            send_segments(ctx, self.codec, address, &numbers, 0..numbers.len());
        }
        self.own[bucket] = Some(numbers);
        self.meet_if_complete(ctx);
    }

    fn receive(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        let label = Label::from_part(message.part);
        if self.other != Some(from) || label.step != WEIGHTS {
            return Err(not_met());
        }
        self.theirs.take_incoming(self.codec, label, message.body)?;
        self.meet_if_complete(ctx);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.result.is_some()
    }

    fn take_result(&mut self) -> Vec<Vec<f32>> {
        // As long as there is a result, nothing is waited for.
        self.result.replace(Vec::new()).expect("the exchange is complete")
    }

    fn waits_for(&self) -> Vec<usize> {
        self.other.filter(|_| self.result.is_none() && !self.theirs.is_complete()).into_iter().collect()
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        cost(self.codec, question)
    }
}

fn not_met() -> Malformed {
    Malformed::new("it sends weights to a peer that it does not meet in this round")
}

fn cost(codec: Codec, question: &CostQuestion<'_>) -> Cost {
    let n_pairs = question.n_peers as u64 / 2;
    let most = n_pairs.min(1) * vector_len(codec, question);
    Cost { total: 2 * n_pairs * most, most_sent: most, most_received: most, n_steps: n_pairs.min(1) as u32 }
}

/// Whom a peer meets: neighbours in a shuffled row; the last of an odd number meets nobody.
fn partner(seed: u64, round: u32, rank: usize, n_peers: usize) -> Option<usize> {
    let mut row: Vec<usize> = (0..n_peers).collect();
    Rng::stream(seed, "gossip", u64::from(round)).shuffle(&mut row);
    let place = row.iter().position(|&peer| peer == rank)?;
    row.get(place ^ 1).copied()
}

#[cfg(test)]
mod tests {
    use super::partner;

    #[test]
    fn everybody_meets_one_who_meets_it() {
        for n_peers in 1..12 {
            for round in 0..50 {
                let partners: Vec<Option<usize>> = (0..n_peers).map(|rank| partner(7, round, rank, n_peers)).collect();
                for (rank, other) in partners.iter().enumerate() {
                    assert!(*other != Some(rank));
                    assert!(other.is_none_or(|other| partners[other] == Some(rank)));
                }
                assert_eq!(partners.iter().filter(|other| other.is_none()).count(), n_peers % 2);
            }
        }
    }

    #[test]
    fn another_seed_makes_other_pairs() {
        let partners = |seed: u64| (0..20).map(move |round| partner(seed, round, 0, 6));
        assert!(partners(1).eq(partners(1)));
        assert!(!partners(1).eq(partners(2)));
    }

    #[test]
    fn in_time_everybody_meets_everybody_about_as_often() {
        for n_peers in [4, 5, 8] {
            let mut met = vec![0_usize; n_peers + 1];
            let n_rounds = 2000;
            for round in 0..n_rounds {
                met[partner(1, round, 2, n_peers).unwrap_or(n_peers)] += 1;
            }
            let n_chances = n_peers - 1 + n_peers % 2;
            let expected = n_rounds as usize / n_chances;
            let others = (0..n_peers + n_peers % 2).filter(|&other| other != 2);
            for other in others {
                assert!(met[other].abs_diff(expected) < expected / 3, "{n_peers} peers: {met:?}");
            }
        }
    }
}
