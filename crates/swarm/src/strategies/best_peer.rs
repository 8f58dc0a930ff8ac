//! `best-peer`: after each round's local phase the peer that does best on a few samples gives its weights to all others.
//!
//! The samples are drawn from the training set, the same for all; nobody trains them. What the others learnt in the round is
//! thrown away, which is what this strategy costs. A peer whose numbers became infinite or none in its local phase is the worst, and
//! takes the best one's weights like all others.
//!
//! With several `networks`, peers are in as many blocks of consecutive ranks, as `split = "groups"` has them, and each has a best of
//! its own. At the end of an epoch the networks become one: the mean of what their peers hold is what all go on from, and what is
//! tested. (Tried in a sketch apart from this program, one seed, and not taken: the best network's weights for all. A thousand users in ten
//! networks with 100 samples of MNIST each were at 84 % after eight epochs where the mean was at 88 %.)
//!
//! Where there is no accuracy, as for a language model, peers are judged by e to minus their loss.
//!
//! Messages: each peer's accuracy (f64) to all of its network; then the best one's weights, in segments of buckets. Of equals the
//! lowest rank is the best. At an epoch's end, a ring all-reduce if there are several networks.
//! An early form of population based training: Jaderberg et al. (2017), "Population based training of neural networks".

use std::ops::Range;

use crate::sampling::rounds::RoundLength;
use bytes::Bytes;
use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::bucket::{Address, Buckets, send_segments, vector_len};
use crate::collective::segments::{Label, segments};
use crate::strategy::{
    AnyStrategy, CODEC, Cost, CostQuestion, Counted, FinalSync, Malformed, Message, Mixing, OptimizerState, OptionDoc,
    OptionError, Payload, RoundCtx, RoundPlan, RoundStrategy, Scale, Spec, Strategy, Trained, default_options,
    read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "best-peer",
    about: "After each round's local phase the peers compare how well they do on a few samples, and all go on from the best one's weights. \
            What the others learnt is thrown away.",
    cost: "the best of n peers in a network sends (n-1)M per exchange, everybody receives M; 2 steps",
    paper: "Jaderberg et al. 2017",
    options: &[
        CODEC,
        OptionDoc { name: "local_steps", about: "batches between exchanges; `0`: as many as `samples` says" },
        OptionDoc { name: "max_rounds", about: "the run ends after so many exchanges; `0`: when its epochs are done" },
        OptionDoc {
            name: "networks",
            about: "in how many networks peers are, each with a best of its own; at the end of an epoch their mean goes on",
        },
        OptionDoc {
            name: "optimizer_state",
            about: "what becomes of a peer's own momentum when it takes another's weights over: `keep` or `reset`",
        },
        OptionDoc {
            name: "samples",
            about: "how many samples each peer trains between exchanges; `0`: its whole share of the epoch",
        },
        OptionDoc {
            name: "stop_at",
            about: "the run ends when the best peer's accuracy on the validation samples is this, between 0 and 1; of several \
                    networks, that of their mean at an epoch's end; `0`: never",
        },
        OptionDoc {
            name: "validation",
            about: "by how many training samples peers are judged, which nobody trains; at most a tenth of all",
        },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let options: Options = read_options(SPEC.name, table)?;
        let problem = match options {
            Options { validation: 0, .. } => "validation = 0: must be at least 1".to_owned(),
            Options { networks: 0, .. } => "networks = 0: must be at least 1".to_owned(),
            Options { stop_at, .. } if !(0.0..=1.0).contains(&stop_at) => {
                format!("stop_at = {stop_at}: must be between 0 and 1")
            }
            Options { optimizer_state: OptimizerState::Average, .. } => {
                "optimizer_state = \"average\": one peer's weights go on as they are, so there is no average; use `keep` or `reset`"
                    .to_owned()
            }
            options => return Ok(AnyStrategy::round(BestPeer::new(options))),
        };
        Err(OptionError::Option { strategy: SPEC.name, problem })
    },
};

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(default)]
struct Options {
    codec: Codec,
    local_steps: u32,
    max_rounds: u32,
    networks: usize,
    optimizer_state: OptimizerState,
    samples: u32,
    stop_at: f64,
    validation: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            codec: Codec::F32,
            local_steps: 0,
            max_rounds: 0,
            networks: 1,
            optimizer_state: OptimizerState::Keep,
            samples: 100,
            stop_at: 0.0,
            validation: 100,
        }
    }
}

struct BestPeer {
    options: Options,
    rank: usize,
    /// The ranks of this peer's network.
    network: Range<usize>,
    /// This peer's weights of the round, bucket by bucket.
    own: Vec<Vec<f32>>,
    /// The accuracies of this round, by place in the network.
    scores: Vec<Option<f64>>,
    /// The best one's weights as they come: who that is as far as scores are known, and what has come.
    incoming: Option<(usize, Buckets)>,
    /// Brings the networks together.
    final_sync: FinalSync,
    /// Whether their mean is being judged.
    judges_mean: bool,
}

const SCORE: usize = 0;
const WEIGHTS: usize = 1;
const SCORE_LEN: u64 = 8;

fn accuracy_from_bytes(body: &[u8]) -> Result<f64, Malformed> {
    let accuracy = body.try_into().map_or(f64::NAN, f64::from_le_bytes);
    if (0.0..=1.0).contains(&accuracy) { Ok(accuracy) } else { Err(bad_score()) }
}

/// The ranks of a peer's network, if so many peers are in so many of them: blocks whose lengths differ by at most one. Where there are
/// fewer peers, each is a network.
fn network(rank: usize, n_peers: usize, n_networks: usize) -> Range<usize> {
    let n_networks = n_networks.clamp(1, n_peers.max(1));
    let start = |k: usize| (k * n_peers).div_ceil(n_networks);
    let own = rank * n_networks / n_peers.max(1);
    start(own)..start(own + 1)
}

/// The place of the best of those whose accuracies are known; of equals, the first.
fn best_rank(accuracies: &[Option<f64>]) -> Option<usize> {
    let mut found: Option<(usize, f64)> = None;
    for (rank, accuracy) in accuracies.iter().enumerate() {
        let Some(accuracy) = *accuracy else { continue };
        if found.is_none_or(|(_, best)| accuracy > best) {
            found = Some((rank, accuracy));
        }
    }
    found.map(|(rank, _)| rank)
}

fn bad_score() -> Malformed {
    Malformed::new("its score cannot be read")
}

impl BestPeer {
    fn new(options: Options) -> Self {
        Self {
            options,
            rank: 0,
            network: 0..1,
            own: Vec::new(),
            scores: Vec::new(),
            incoming: None,
            final_sync: FinalSync::default(),
            judges_mean: false,
        }
    }

    fn begin_round(&mut self, ctx: &RoundCtx<'_>) {
        self.rank = ctx.rank();
        self.network = network(self.rank, ctx.n_peers(), self.options.networks);
        if self.scores.is_empty() {
            self.scores = vec![None; self.network.len()];
        }
    }

    /// The others of this peer's network.
    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        self.network.clone().filter(move |&other| other != rank)
    }

    /// The rank of the best, when all scores are there.
    fn best(&self) -> Option<usize> {
        if self.scores.iter().all(Option::is_some) { self.best_rank() } else { None }
    }

    /// The rank of the best as far as scores are known.
    fn best_rank(&self) -> Option<usize> {
        best_rank(&self.scores).map(|place| self.network.start + place)
    }

    fn tell_accuracy(&mut self, ctx: &mut RoundCtx<'_>, accuracy: f64) {
        self.begin_round(ctx);
        self.scores[self.rank - self.network.start] = Some(accuracy);
        let part = Label { bucket: 0, step: SCORE, segment: 0 }.to_part();
        for to in self.others() {
            ctx.send(to, part, Bytes::copy_from_slice(&accuracy.to_le_bytes()));
        }
        self.conclude_if_possible(ctx);
    }

    fn conclude_if_possible(&mut self, ctx: &mut RoundCtx<'_>) {
        let Some(best) = self.best() else { return };
        if best != ctx.rank() {
            return self.finish_if_complete(ctx);
        }
        let codec = self.options.codec;
        for to in self.others() {
            for (bucket, numbers) in self.own.iter().enumerate() {
                send_segments(ctx, codec, Address { to, bucket, step: WEIGHTS }, numbers, 0..numbers.len());
            }
        }
        // What the others will read, this peer holds too, however numbers travel.
        let mut weights = std::mem::take(&mut self.own);
        for numbers in &mut weights {
            for place in segments(0..numbers.len()) {
                let body = codec.encode(&numbers[place.clone()]);
                codec.decode(&body, &mut numbers[place]).expect("it was just encoded");
            }
        }
        self.finish(ctx, weights, best);
    }

    fn finish_if_complete(&mut self, ctx: &mut RoundCtx<'_>) {
        let Some(best) = self.best() else { return };
        if let Some((_, buckets)) =
            self.incoming.as_mut().filter(|(from, buckets)| *from == best && buckets.is_complete())
        {
            let weights = buckets.take_result();
            if self.options.optimizer_state == OptimizerState::Reset {
                ctx.reset_optimizer();
            }
            self.finish(ctx, weights, best);
        }
    }

    fn finish(&mut self, ctx: &mut RoundCtx<'_>, weights: Vec<Vec<f32>>, best: usize) {
        let Options { max_rounds, networks, .. } = self.options;
        let accuracy = self.scores[best - self.network.start].unwrap_or(0.0);
        // What one of several networks knows, the others do not.
        if networks == 1 && self.is_good_enough(accuracy) {
            self.end_run(ctx, "the best peer", accuracy);
        } else if max_rounds > 0 && ctx.round() + 1 >= max_rounds {
            ctx.end_run(format!("max_rounds = {max_rounds} exchanges are done"));
        }
        self.forget();
        ctx.finish_round(weights, Counted::All);
    }

    fn is_good_enough(&self, accuracy: f64) -> bool {
        self.options.stop_at > 0.0 && accuracy >= self.options.stop_at
    }

    fn end_run(&self, ctx: &mut RoundCtx<'_>, who: &str, accuracy: f64) {
        let n = ctx.held_out().len();
        ctx.end_run(format!(
            "{who} classified {:.2} % of the {n} validation samples correctly, and the threshold was {:.2} %",
            100.0 * accuracy,
            100.0 * self.options.stop_at
        ));
    }

    /// The networks are one: it may be good enough.
    fn judge_if_together(&mut self, ctx: &mut RoundCtx<'_>) {
        if self.final_sync.is_on() {
            return;
        }
        self.judges_mean = self.options.stop_at > 0.0 && !ctx.held_out().is_empty();
        if self.judges_mean {
            ctx.score(ctx.held_out());
        } else {
            ctx.synced();
        }
    }

    fn forget(&mut self) {
        self.own.clear();
        self.scores.clear();
        self.incoming = None;
    }
}

impl Strategy for BestPeer {
    fn round_plan(&self) -> RoundPlan {
        let length = match self.options {
            Options { local_steps: 0, samples: 0, .. } => RoundLength::Epoch,
            Options { local_steps: 0, samples, .. } => RoundLength::Samples(samples),
            Options { local_steps, .. } => RoundLength::Batches(local_steps),
        };
        // Who is the best keeps its own; whoever takes its weights over looks after the optimizer then.
        let optimizer_state = OptimizerState::Keep;
        RoundPlan { payload: Payload::Weights, length, scale: Scale::Plain, mixing: Mixing::None, optimizer_state }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let vector = vector_len(self.options.codec, question);
        let others = |rank| network(rank, question.n_peers, self.options.networks).len() as u64 - 1;
        let most = (0..question.n_peers).map(others).max().unwrap_or(0);
        // In each network all but one receive a vector.
        let scores: u64 = (0..question.n_peers).map(others).sum::<u64>() * SCORE_LEN;
        let n_networks = self.options.networks.min(question.n_peers) as u64;
        Cost {
            total: scores + (question.n_peers as u64 - n_networks) * vector,
            most_sent: most * (SCORE_LEN + vector),
            most_received: if most > 0 { most * SCORE_LEN + vector } else { 0 },
            n_steps: if most > 0 { 2 } else { 0 },
        }
    }

    fn n_held_out(&self, n_train: usize) -> usize {
        self.options.validation.min(n_train / 10)
    }

    fn waits_for(&self) -> Vec<usize> {
        if self.final_sync.is_on() {
            return self.final_sync.waits_for();
        }
        let is_missing = |rank: &usize| self.scores.get(rank - self.network.start).is_some_and(Option::is_none);
        let missing: Vec<usize> = self.others().filter(is_missing).collect();
        if missing.is_empty() { self.best().into_iter().collect() } else { missing }
    }
}

impl RoundStrategy for BestPeer {
    fn survives_divergence(&self) -> bool {
        true
    }

    fn on_part(&mut self, _: &mut RoundCtx<'_>, _: usize, numbers: Vec<f32>) {
        self.own.push(numbers);
    }

    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, trained: &Trained) {
        // Who has trained nothing has nothing to offer.
        if trained.has_diverged || trained.n_samples == 0 || ctx.held_out().is_empty() {
            return self.tell_accuracy(ctx, 0.0);
        }
        ctx.score(ctx.held_out());
    }

    fn on_scored(&mut self, ctx: &mut RoundCtx<'_>, score: &Score) {
        if !std::mem::take(&mut self.judges_mean) {
            return self.tell_accuracy(ctx, ctx.quality(score));
        }
        let accuracy = ctx.quality(score);
        if self.is_good_enough(accuracy) {
            self.end_run(ctx, "the mean of the networks", accuracy);
        }
        ctx.synced();
    }

    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        if self.final_sync.is_on() {
            self.final_sync.receive(ctx, from, message)?;
            self.judge_if_together(ctx);
            return Ok(());
        }
        self.begin_round(ctx);
        if !self.network.contains(&from) {
            return Err(Malformed::new("it belongs to another network"));
        }
        let place = from - self.network.start;
        let label = Label::from_part(message.part);
        match label.step {
            SCORE => {
                if self.scores[place].is_some() {
                    return Err(Malformed::new("it scores twice in the same round"));
                }
                self.scores[place] = Some(accuracy_from_bytes(&message.body)?);
                self.conclude_if_possible(ctx);
            }
            WEIGHTS => {
                // Who sends weights knows all scores; this peer may not have heard them all yet.
                if self.best_rank() != Some(from) {
                    return Err(Malformed::new("it sends its weights and is not the best"));
                }
                let incoming = self.incoming.take().filter(|(sender, _)| *sender == from);
                let (_, buckets) = self.incoming.insert(incoming.unwrap_or_else(|| (from, Buckets::incoming(ctx))));
                buckets.take_incoming(self.options.codec, label, message.body)?;
                self.finish_if_complete(ctx);
            }
            _ => return Err(Malformed::new("there is no such message in this strategy")),
        }
        Ok(())
    }

    fn on_view(&mut self, _: &mut RoundCtx<'_>) {
        self.forget();
        self.final_sync.break_off();
        self.judges_mean = false;
    }

    fn sync(&mut self, ctx: &mut RoundCtx<'_>) {
        if self.options.networks == 1 {
            return ctx.synced();
        }
        self.final_sync.begin(ctx, &[], |_, _| {});
        self.judge_if_together(ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::{accuracy_from_bytes, best_rank, network};

    #[test]
    fn the_highest_accuracy_is_the_best_and_of_equals_the_lowest_rank() {
        assert_eq!(best_rank(&[Some(0.5), Some(0.75), Some(0.75), Some(0.25)]), Some(1));
        assert_eq!(best_rank(&[None, Some(0.0), Some(0.0)]), Some(1));
        assert_eq!(best_rank(&[None, None]), None);
    }

    #[test]
    fn networks_are_blocks_of_consecutive_ranks() {
        for (n_peers, n_networks) in [(1000, 10), (10, 3), (7, 7), (3, 5), (1, 1)] {
            let mut next = 0;
            let mut lens = Vec::new();
            while next < n_peers {
                let block = network(next, n_peers, n_networks);
                assert_eq!(block.start, next, "{n_peers} in {n_networks}");
                assert!(block.clone().all(|rank| network(rank, n_peers, n_networks) == block), "{n_peers}: {block:?}");
                lens.push(block.len());
                next = block.end;
            }
            assert_eq!(lens.len(), n_networks.min(n_peers));
            assert!(lens.iter().max().unwrap() - lens.iter().min().unwrap() <= 1, "{lens:?}");
        }
        assert_eq!(network(250, 1000, 10), 200..300, "as the split has them");
    }

    #[test]
    fn accuracies_that_cannot_be_are_refused() {
        assert_eq!(accuracy_from_bytes(&0.25_f64.to_le_bytes()), Ok(0.25));
        for wrong in [f64::NAN, -0.1, 1.1, f64::INFINITY] {
            assert!(accuracy_from_bytes(&wrong.to_le_bytes()).is_err());
        }
        assert!(accuracy_from_bytes(&[0; 7]).is_err());
    }
}
