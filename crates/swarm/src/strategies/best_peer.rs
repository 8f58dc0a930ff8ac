//! `best-peer`: after each turn the peer that does best on a few samples gives its weights to all others.
//!
//! The samples are drawn from the training set, the same for all, and never from the test set. What the others learnt in
//! the turn is thrown away, which is what this strategy costs.
//!
//! Messages: each peer's score (accuracy and loss as two f64) to all; then the best one's weights, in segments of buckets.
//! Of equals in both, the lowest rank is the best.
//! An early form of population based training: Jaderberg et al. (2017), "Population based training of neural networks".

use std::sync::Arc;

use bytes::Bytes;
use nettorrent_engine::model::Score;
use nettorrent_engine::rng::Rng;
use serde::{Deserialize, Serialize};

use crate::codec::Codec;
use crate::collective::bucket::{Address, Buckets, send_segments, vector_len};
use crate::collective::segments::{Label, segments};
use crate::strategy::{
    CODEC, Cost, CostQuestion, Ctx, Malformed, Message, OptionDoc, OptionError, Payload, Scale, Settled, Spec,
    Strategy, Trained, Turn, TurnLength, default_options, read_options,
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
        OptionDoc { name: "local_steps", about: "batches between exchanges; `0`: the whole share of the epoch" },
        OptionDoc {
            name: "optimizer",
            about: "what becomes of a peer's own momentum when it takes another's weights over: `keep` or `reset`",
        },
        OptionDoc {
            name: "stop_at",
            about: "the run ends when the best score is this accuracy, between 0 and 1; `0`: never",
        },
        OptionDoc { name: "validation", about: "by how many training samples peers are judged" },
    ],
    defaults: default_options::<Options>,
    build: |table| {
        let options: Options = read_options(SPEC.name, table)?;
        let problem = match options {
            Options { validation: 0, .. } => "validation = 0: must be at least 1".to_owned(),
            Options { stop_at, .. } if !(0.0..=1.0).contains(&stop_at) => {
                format!("stop_at = {stop_at}: must be between 0 and 1")
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
    optimizer: Memory,
    stop_at: f64,
    validation: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { codec: Codec::F32, local_steps: 50, optimizer: Memory::Keep, stop_at: 0.0, validation: 1000 }
    }
}

/// What becomes of a peer's own momentum.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Memory {
    #[default]
    Keep,
    Reset,
}

struct BestPeer {
    options: Options,
    /// The samples by which peers are judged, once they are drawn.
    validation: Option<Arc<[usize]>>,
    /// This peer's weights of the turn, bucket by bucket.
    own: Vec<Vec<f32>>,
    /// The scores of this round, by rank.
    scores: Vec<Option<Judged>>,
    /// The best one's weights as they come: who that is as far as scores are known, and what has come.
    incoming: Option<(usize, Buckets)>,
}

/// How well a peer does.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Judged {
    accuracy: f64,
    loss: f64,
}

const SCORE: usize = 0;
const WEIGHTS: usize = 1;
const SCORE_LEN: u64 = 16;

impl Judged {
    fn to_bytes(self) -> Bytes {
        [self.accuracy.to_le_bytes(), self.loss.to_le_bytes()].concat().into()
    }

    fn from_bytes(body: &[u8]) -> Result<Self, Malformed> {
        let (&[accuracy, loss], []) = body.as_chunks().0.split_first_chunk().ok_or_else(bad_score)? else {
            return Err(bad_score());
        };
        let judged = Self { accuracy: f64::from_le_bytes(accuracy), loss: f64::from_le_bytes(loss) };
        let is_sound = body.len() as u64 == SCORE_LEN && (0.0..=1.0).contains(&judged.accuracy) && judged.loss >= 0.0;
        is_sound.then_some(judged).ok_or_else(bad_score)
    }

    fn is_better_than(&self, other: &Self) -> bool {
        self.accuracy > other.accuracy || self.accuracy == other.accuracy && self.loss < other.loss
    }
}

fn bad_score() -> Malformed {
    Malformed::new("its score cannot be read")
}

impl BestPeer {
    fn new(options: Options) -> Self {
        Self { options, validation: None, own: Vec::new(), scores: Vec::new(), incoming: None }
    }

    /// The samples by which all peers are judged.
    fn validation(&mut self, ctx: &Ctx<'_>) -> Arc<[usize]> {
        let n = self.options.validation;
        let draw = || {
            let mut all: Vec<usize> = (0..ctx.n_samples_in_all()).collect();
            Rng::stream(ctx.seed(), "validation", 0).shuffle(&mut all);
            all.truncate(n);
            all.into()
        };
        self.validation.get_or_insert_with(draw).clone()
    }

    fn begin_round(&mut self, ctx: &Ctx<'_>) {
        if self.scores.is_empty() {
            self.scores = vec![None; ctx.n_peers()];
        }
    }

    /// The rank of the best of those whose scores are there.
    fn foremost(&self) -> Option<usize> {
        let mut foremost: Option<(usize, Judged)> = None;
        for (rank, score) in self.scores.iter().enumerate() {
            let Some(score) = *score else { continue };
            if foremost.is_none_or(|(_, best)| score.is_better_than(&best)) {
                foremost = Some((rank, score));
            }
        }
        foremost.map(|(rank, _)| rank)
    }

    /// The rank of the best, when all scores are there.
    fn best(&self) -> Option<usize> {
        if self.scores.iter().all(Option::is_some) { self.foremost() } else { None }
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
            if self.options.optimizer == Memory::Reset {
                ctx.reset_optimizer();
            }
            self.finish(ctx, weights, best);
        }
    }

    fn finish(&mut self, ctx: &mut Ctx<'_>, weights: Vec<Vec<f32>>, best: usize) {
        let accuracy = self.scores[best].map_or(0.0, |score| score.accuracy);
        if self.options.stop_at > 0.0 && accuracy >= self.options.stop_at {
            ctx.end_run();
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
        let length = match self.options.local_steps {
            0 => TurnLength::Share,
            n => TurnLength::Batches(n),
        };
        Turn { payload: Payload::Weights, length, scale: Scale::Plain }
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

    fn n_judged(&self, n_train: usize) -> usize {
        self.options.validation.min(n_train)
    }

    fn on_part(&mut self, _: &mut Ctx<'_>, _: usize, numbers: Vec<f32>) {
        self.own.push(numbers);
    }

    fn on_trained(&mut self, ctx: &mut Ctx<'_>, _: &Trained) {
        let samples = self.validation(ctx);
        ctx.score(samples);
    }

    fn on_scored(&mut self, ctx: &mut Ctx<'_>, score: &Score) {
        self.begin_round(ctx);
        let (rank, n_peers) = (ctx.rank(), ctx.n_peers());
        let judged = Judged { accuracy: score.accuracy(), loss: score.loss() };
        self.scores[rank] = Some(judged);
        let part = Label { bucket: 0, step: SCORE, segment: 0 }.to_part();
        for to in (0..n_peers).filter(|&to| to != rank) {
            ctx.send(to, part, judged.to_bytes());
        }
        self.conclude_if_possible(ctx);
    }

    fn on_message(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed> {
        self.begin_round(ctx);
        let label = Label::from_part(message.part);
        match label.step {
            SCORE => {
                if self.scores[from].is_some() {
                    return Err(Malformed::new("it scores twice in the same round"));
                }
                self.scores[from] = Some(Judged::from_bytes(&message.body)?);
                self.conclude_if_possible(ctx);
            }
            WEIGHTS => {
                // Who sends weights knows all scores; this peer may not have heard them all yet.
                if self.foremost() != Some(from) {
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
        let missing: Vec<usize> = (0..self.scores.len()).filter(|&rank| self.scores[rank].is_none()).collect();
        if missing.is_empty() { self.best().into_iter().collect() } else { missing }
    }
}
