//! `best-peer`: after each turn the peer that does best on a few samples gives its weights to all others.
//!
//! The samples are drawn from the training set, the same for all; nobody trains them. What the others learnt in the turn is
//! thrown away, which is what this strategy costs. A peer whose numbers became infinite or none in its turn is the worst, and
//! takes the best one's weights like all others.
//!
//! Messages: each peer's accuracy (f64) to all; then the best one's weights, in segments of buckets. Of equals the lowest rank
//! is the best.
//! An early form of population based training: Jaderberg et al. (2017), "Population based training of neural networks".

use bytes::Bytes;
use nettorrent_engine::data::rounds::RoundLength;
use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::bucket::{Address, Buckets, send_segments, vector_len};
use crate::collective::segments::{Label, segments};
use crate::strategy::{
    CODEC, Cost, CostQuestion, Ctx, Malformed, Message, Mixing, OptimizerState, OptionDoc, OptionError, Payload, Scale,
    Settled, Spec, Strategy, Trained, Turn, default_options, read_options,
};

/// How the list knows it.
pub(super) const SPEC: Spec = Spec {
    name: "best-peer",
    about: "After each turn the peers compare how well they do on a few samples, and all go on from the best one's weights. \
            What the others learnt is thrown away.",
    cost: "the best peer sends (N-1)M per exchange, everybody receives M; 2 steps",
    paper: "Jaderberg et al. 2017",
    options: &[
        CODEC,
        OptionDoc { name: "local_steps", about: "batches between exchanges; `0`: as many as `samples` says" },
        OptionDoc { name: "max_rounds", about: "the run ends after so many exchanges; `0`: when its epochs are done" },
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
            about: "the run ends when the best peer's accuracy on the validation samples is this, between 0 and 1; `0`: never",
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
            Options { stop_at, .. } if !(0.0..=1.0).contains(&stop_at) => {
                format!("stop_at = {stop_at}: must be between 0 and 1")
            }
            Options { optimizer_state: OptimizerState::Average, .. } => {
                "optimizer_state = \"average\": one peer's weights go on as they are, so there is no average; use `keep` or `reset`"
                    .to_owned()
            }
            options => return Ok(Box::new(BestPeer::new(options))),
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
    /// This peer's weights of the turn, bucket by bucket.
    own: Vec<Vec<f32>>,
    /// The accuracies of this round, by rank.
    scores: Vec<Option<f64>>,
    /// The best one's weights as they come: who that is as far as scores are known, and what has come.
    incoming: Option<(usize, Buckets)>,
}

const SCORE: usize = 0;
const WEIGHTS: usize = 1;
const SCORE_LEN: u64 = 8;

fn accuracy_from_bytes(body: &[u8]) -> Result<f64, Malformed> {
    let accuracy = body.try_into().map_or(f64::NAN, f64::from_le_bytes);
    if (0.0..=1.0).contains(&accuracy) { Ok(accuracy) } else { Err(bad_score()) }
}

/// The rank of the best of those whose accuracies are known; of equals, the lowest.
fn foremost(accuracies: &[Option<f64>]) -> Option<usize> {
    let mut foremost: Option<(usize, f64)> = None;
    for (rank, accuracy) in accuracies.iter().enumerate() {
        let Some(accuracy) = *accuracy else { continue };
        if foremost.is_none_or(|(_, best)| accuracy > best) {
            foremost = Some((rank, accuracy));
        }
    }
    foremost.map(|(rank, _)| rank)
}

fn bad_score() -> Malformed {
    Malformed::new("its score cannot be read")
}

impl BestPeer {
    fn new(options: Options) -> Self {
        Self { options, rank: 0, own: Vec::new(), scores: Vec::new(), incoming: None }
    }

    fn begin_round(&mut self, ctx: &Ctx<'_>) {
        self.rank = ctx.rank();
        if self.scores.is_empty() {
            self.scores = vec![None; ctx.n_peers()];
        }
    }

    /// The rank of the best, when all scores are there.
    fn best(&self) -> Option<usize> {
        if self.scores.iter().all(Option::is_some) { foremost(&self.scores) } else { None }
    }

    fn tell_accuracy(&mut self, ctx: &mut Ctx<'_>, accuracy: f64) {
        self.begin_round(ctx);
        let (rank, n_peers) = (ctx.rank(), ctx.n_peers());
        self.scores[rank] = Some(accuracy);
        let part = Label { bucket: 0, step: SCORE, segment: 0 }.to_part();
        for to in (0..n_peers).filter(|&to| to != rank) {
            ctx.send(to, part, Bytes::copy_from_slice(&accuracy.to_le_bytes()));
        }
        self.conclude_if_possible(ctx);
    }

    fn conclude_if_possible(&mut self, ctx: &mut Ctx<'_>) {
        let Some(best) = self.best() else { return };
        if best != ctx.rank() {
            return self.finish_if_complete(ctx);
        }
        let (codec, others) = (self.options.codec, (0..ctx.n_peers()).filter(|&rank| rank != best));
        for to in others.collect::<Vec<_>>() {
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

    fn finish_if_complete(&mut self, ctx: &mut Ctx<'_>) {
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

    fn finish(&mut self, ctx: &mut Ctx<'_>, weights: Vec<Vec<f32>>, best: usize) {
        let Options { stop_at, max_rounds, .. } = self.options;
        let accuracy = self.scores[best].unwrap_or(0.0);
        if stop_at > 0.0 && accuracy >= stop_at {
            let n = ctx.held_out().len();
            ctx.end_run(format!(
                "the best peer classified {:.2} % of the {n} validation samples correctly, and the threshold was {:.2} %",
                100.0 * accuracy,
                100.0 * stop_at
            ));
        } else if max_rounds > 0 && ctx.round() + 1 >= max_rounds {
            ctx.end_run(format!("max_rounds = {max_rounds} exchanges are done"));
        }
        self.forget();
        ctx.finish_round(weights, Settled::All);
    }

    fn forget(&mut self) {
        self.own.clear();
        self.scores.clear();
        self.incoming = None;
    }
}

impl Strategy for BestPeer {
    fn turn(&self) -> Turn {
        let length = match self.options {
            Options { local_steps: 0, samples: 0, .. } => RoundLength::Epoch,
            Options { local_steps: 0, samples, .. } => RoundLength::Samples(samples),
            Options { local_steps, .. } => RoundLength::Batches(local_steps),
        };
        // Who is the best keeps its own; whoever takes its weights over looks after the optimizer then.
        let optimizer_state = OptimizerState::Keep;
        Turn { payload: Payload::Weights, length, scale: Scale::Plain, mixing: Mixing::None, optimizer_state }
    }

    fn cost(&self, question: &CostQuestion<'_>) -> Cost {
        let (vector, others) = (vector_len(self.options.codec, question), question.n_peers as u64 - 1);
        let scores = others * SCORE_LEN;
        let most_received = if others > 0 { scores + vector } else { 0 };
        Cost {
            total: (others + 1) * scores + others * vector,
            most_sent: scores + others * vector,
            most_received,
            n_steps: if others > 0 { 2 } else { 0 },
        }
    }

    fn n_held_out(&self, n_train: usize) -> usize {
        self.options.validation.min(n_train / 10)
    }

    fn survives_divergence(&self) -> bool {
        true
    }

    fn on_part(&mut self, _: &mut Ctx<'_>, _: usize, numbers: Vec<f32>) {
        self.own.push(numbers);
    }

    fn on_trained(&mut self, ctx: &mut Ctx<'_>, trained: &Trained) {
        // Who has trained nothing has nothing to offer.
        if trained.has_diverged || trained.n_samples == 0 || ctx.held_out().is_empty() {
            return self.tell_accuracy(ctx, 0.0);
        }
        ctx.score(ctx.held_out());
    }

    fn on_scored(&mut self, ctx: &mut Ctx<'_>, score: &Score) {
        self.tell_accuracy(ctx, score.accuracy());
    }

    fn on_message(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.begin_round(ctx);
        let label = Label::from_part(message.part);
        match label.step {
            SCORE => {
                if self.scores[from].is_some() {
                    return Err(Malformed::new("it scores twice in the same round"));
                }
                self.scores[from] = Some(accuracy_from_bytes(&message.body)?);
                self.conclude_if_possible(ctx);
            }
            WEIGHTS => {
                // Who sends weights knows all scores; this peer may not have heard them all yet.
                if foremost(&self.scores) != Some(from) {
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

    fn on_view(&mut self, _: &mut Ctx<'_>) {
        self.forget();
    }

    fn waits_for(&self) -> Vec<usize> {
        let is_missing = |&rank: &usize| rank != self.rank && self.scores[rank].is_none();
        let missing: Vec<usize> = (0..self.scores.len()).filter(is_missing).collect();
        if missing.is_empty() { self.best().into_iter().collect() } else { missing }
    }
}

#[cfg(test)]
mod tests {
    use super::{accuracy_from_bytes, foremost};

    #[test]
    fn the_highest_accuracy_is_the_best_and_of_equals_the_lowest_rank() {
        assert_eq!(foremost(&[Some(0.5), Some(0.75), Some(0.75), Some(0.25)]), Some(1));
        assert_eq!(foremost(&[None, Some(0.0), Some(0.0)]), Some(1));
        assert_eq!(foremost(&[None, None]), None);
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
