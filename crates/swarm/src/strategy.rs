//! What a strategy is: the rule by which peers exchange what they learnt.
//!
//! A strategy is handed what its peer computed and what others sent, and answers through [`Ctx`]. It never sees a socket, a
//! clock or a tensor, so the same code runs over the network and in the simulator.

mod aggregation;
mod averager;
mod averaging;
mod ctx;
mod local_steps;
mod one_peer;
mod optimizer_state;
mod options;
mod reunion;
mod robust;
mod streamer;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_engine::data::rounds::RoundLength;
use nettorrent_engine::model::Score;
use serde::{Deserialize, Serialize};

pub use aggregation::{AGGREGATION, Aggregation, BAD_PEERS, Contribution, Rule, TRIM};
pub use averager::Averager;
pub use averaging::{Averaging, CODEC, PAYLOAD};
pub use ctx::{Ctx, Past, Settled};
pub use local_steps::{LOCAL_STEPS, LocalSteps};
pub(crate) use one_peer::OnePeer;
pub(crate) use optimizer_state::held_at;
pub use optimizer_state::{OPTIMIZER_STATE, OptimizerState};
pub use options::{OptionDoc, OptionError, Spec, default_options, find, read_options};
pub use reunion::Reunion;
pub use streamer::{MOST_STALENESS, STALENESS, Step, Stream, Streamer};
pub(crate) use streamer::{add, trained_places};

/// The rule by which peers exchange what they learnt.
///
/// Training goes in rounds. In each, the peer trains a *turn* by itself and hands the strategy its part, bucket by bucket;
/// the strategy talks to the other peers and ends the round with [`Ctx::finish_round`]. A new view of who takes part ends the
/// round without result: what was said in it is void.
///
/// Who hands over [`Payload::Updates`] trains freely: no round is waited for. After each batch the peer hands its change over
/// and goes on as soon as [`Strategy::may_go_on`]; the strategy tells with [`Ctx::settle`] whose batches have gone into this
/// peer's parameters. When all batches of all peers have, the members are together again.
pub trait Strategy: Send {
    /// What a peer trains by itself before each exchange, and what it then hands over.
    fn turn(&self) -> Turn;

    /// What a round costs.
    fn cost(&self, round: &CostQuestion<'_>) -> Cost;

    /// Whether a round may cost less than that, because it depends on the numbers or on the time.
    fn may_cost_less(&self) -> bool {
        false
    }

    /// How many of so many training samples nobody trains, because every peer is judged by them in every round.
    fn n_held_out(&self, n_train: usize) -> usize {
        let _ = n_train;
        0
    }

    /// Whether peers may train different numbers of samples in a round. Where all results count alike, whoever trained much would
    /// count too little.
    fn follows_speed(&self) -> bool {
        true
    }

    /// For those who take steps by themselves: whether a peer whose numbers became infinite or none goes on, with the others'
    /// parameters. What it trained in the turn is forgotten.
    fn survives_divergence(&self) -> bool {
        false
    }

    /// By how many rounds, in the mean, a peer's update reaches the others late, besides what the links take.
    fn delay(&self) -> f64 {
        0.0
    }

    /// A part of this peer's contribution is there; the last layers come first.
    fn on_part(&mut self, ctx: &mut Ctx<'_>, bucket: usize, numbers: Vec<f32>);

    /// The turn is over: all parts were handed over.
    fn on_trained(&mut self, ctx: &mut Ctx<'_>, trained: &Trained) {
        let _ = (ctx, trained);
    }

    /// Another member of the view said something. Its bytes are hostile until checked.
    fn on_message(&mut self, ctx: &mut Ctx<'_>, from: usize, message: Message) -> Result<(), Malformed>;

    /// The samples that [`Ctx::score`] named are judged.
    fn on_scored(&mut self, ctx: &mut Ctx<'_>, score: &Score) {
        let _ = (ctx, score);
    }

    /// A timer that was set in this view has run out.
    fn on_timer(&mut self, ctx: &mut Ctx<'_>, timer: u32) {
        let _ = (ctx, timer);
    }

    /// There is a new view: the round that was going on is void. Unless [`Strategy::keeps_turn`], a new turn follows.
    fn on_view(&mut self, ctx: &mut Ctx<'_>);

    /// Whether what was trained in the present turn stays valid when the view changes: worth it where turns are long. Only
    /// for those who exchange weights, which are handed over at the end of a turn and not bucket by bucket within it.
    fn keeps_turn(&self) -> bool {
        false
    }

    /// Whether everybody's work goes into every round. Who counts only those who answered in time says no.
    fn settles_all(&self) -> bool {
        true
    }

    /// For those who train freely: whether the next batch may begin.
    fn may_go_on(&mut self, ctx: &Ctx<'_>) -> bool {
        let _ = ctx;
        true
    }

    /// For those who train freely: the part of these parameters that the others would have too if they had heard all, so
    /// without what this peer keeps to itself yet.
    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        values.clone()
    }

    /// For those who train freely: what has to be said about these common parameters to who takes them over, besides whose
    /// batches are in them. Peers that say different things hold different parameters.
    fn account(&self) -> Vec<u8> {
        Vec::new()
    }

    /// How many vectors as long as the parameters the strategy remembers from round to round, alike at all peers.
    fn n_memories(&self) -> usize {
        0
    }

    /// One of them as it is after the last round that ended; empty means zeros.
    fn memory(&self, k: usize) -> &[f32] {
        let _ = k;
        &[]
    }

    /// Takes over what another peer or a checkpoint remembers: as many vectors as it has, each as long as the parameters.
    fn recall(&mut self, memories: Vec<Vec<f32>>) {
        let _ = memories;
    }

    /// An epoch ends: brings all replicas together and then says [`Ctx::synced`]. Where they are equal after every round,
    /// there is nothing to do.
    fn sync(&mut self, ctx: &mut Ctx<'_>) {
        ctx.synced();
    }

    /// The ranks of those whose message has to come next, if any: the answer to "why is it waiting".
    fn waits_for(&self) -> Vec<usize>;
}

/// What a peer trains by itself before each exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// What is handed over then.
    pub payload: Payload,
    /// How much is trained.
    pub length: RoundLength,
    /// How the numbers that are handed over are scaled.
    pub scale: Scale,
    /// With weights: how a round mixes those of all peers.
    pub mixing: Mixing,
    /// With weights: what becomes of this peer's optimizer when a round's result replaces them.
    pub optimizer_state: OptimizerState,
}

/// How a round mixes what all peers have learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixing {
    /// Everybody has the mean of all.
    Full,
    /// Everybody has the mean of some: what one has learned reaches all in about log₂ N rounds.
    Partial,
    /// Nothing is averaged: one peer's weights win.
    None,
}

/// What peers exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// The gradient of one batch; the optimizer then takes one step with the mean. All replicas stay equal.
    #[default]
    Gradients,
    /// The parameters after steps that each peer took by itself.
    Weights,
    /// What a step of the peer's own optimizer would add to the parameters, times the peer's share: freely, batch by batch.
    #[serde(skip)]
    Updates,
}

/// How the numbers that are handed over are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Not at all.
    Plain,
    /// By the peer's share of the samples that all train in this round, so that the sum over all peers is the mean.
    Share,
}

/// How a turn went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trained {
    /// Samples trained.
    pub n_samples: u64,
    /// The mean over the batches of their mean losses.
    pub mean_loss: f64,
    /// How long it took to compute.
    pub compute: Duration,
    /// Whether numbers became infinite or none, so that all of it was forgotten.
    pub has_diverged: bool,
}

/// What another peer said in this round. What comes too early is kept until its round has come.
#[derive(Clone, Debug)]
pub struct Message {
    /// In which round of its sender; the present one, unless peers train freely.
    pub round: u32,
    /// Which part of the round's exchange; each strategy numbers them for itself.
    pub part: u64,
    /// The bytes.
    pub body: Bytes,
}

/// A message that no honest peer sends. It costs its sender the link, and the receiver nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Malformed {
    /// What is wrong, in words.
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}

/// What a strategy's price depends on.
#[derive(Clone, Copy, Debug)]
pub struct CostQuestion<'a> {
    /// How many peers there are.
    pub n_peers: usize,
    /// The buckets of the vector that is exchanged; see [`OptimizerState::exchanged`].
    pub buckets: &'a [Range<usize>],
    /// How many of its numbers are trained; the rest are running statistics.
    pub n_params: usize,
    /// The number of the round, where the price depends on it.
    pub round: u32,
}

impl CostQuestion<'_> {
    /// How many numbers the vector has.
    pub fn n_values(&self) -> usize {
        self.buckets.iter().map(Range::len).sum()
    }
}

/// What a round costs in bytes of bodies, exactly; the simulator's count is held against it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// What all peers send together.
    pub total: u64,
    /// What the busiest sender sends.
    pub most_sent: u64,
    /// What the busiest receiver receives.
    pub most_received: u64,
    /// How many messages follow one another, each waiting for the one before: what the delay of a link is multiplied by.
    pub n_steps: u32,
}

impl Cost {
    /// How long a round's exchange takes over links of this rate and delay, if nothing overlaps.
    pub fn time(&self, bytes_per_s: f64, delay: Duration) -> Duration {
        let busiest = self.most_sent.max(self.most_received) as f64;
        Duration::from_secs_f64(busiest / bytes_per_s) + delay * self.n_steps
    }
}
