//! What every strategy does for its peer.

use std::sync::Arc;

use nettorrent_engine::model::Score;

use super::async_ctx::AsyncCtx;
use super::cost::{Cost, CostQuestion};
use super::round_ctx::RoundCtx;
use super::round_plan::{Message, RoundPlan, Trained};
use crate::malformed::Malformed;

/// The rule by which peers exchange what they learnt: what is known of it without a peer. How it exchanges is a
/// [`RoundStrategy`] or an [`AsyncStrategy`].
pub trait Strategy: Send {
    /// What a peer trains by itself before each exchange, and what it then hands over.
    fn round_plan(&self) -> RoundPlan;

    /// What a round costs.
    fn cost(&self, round: &CostQuestion<'_>) -> Cost;

    /// Whether a round may cost less than that, because it depends on the numbers or on the time.
    fn cost_is_upper_bound(&self) -> bool {
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

    /// Whether it matters to it who is near to whom.
    fn follows_sites(&self) -> bool {
        false
    }

    /// By how many rounds, in the mean, a peer's update reaches the others late, besides what the links take.
    fn delay(&self) -> f64 {
        0.0
    }

    /// Whether everybody's work goes into every round. Who counts only those who answered in time says no.
    fn counts_all(&self) -> bool {
        true
    }

    /// How many vectors, each as long as the parameters, are its state from round to round, alike at all peers.
    fn n_state_vectors(&self) -> usize {
        0
    }

    /// One of them as it is after the last round that ended; empty means zeros.
    fn state_vector(&self, k: usize) -> Arc<Vec<f32>> {
        let _ = k;
        Arc::default()
    }

    /// Takes over the state of another peer or of a checkpoint: as many vectors as it has.
    fn restore(&mut self, vectors: Vec<Arc<Vec<f32>>>) {
        let _ = vectors;
    }

    /// The ranks of those whose message has to come next, if any: the answer to "why is it waiting".
    fn waits_for(&self) -> Vec<usize>;
}

/// A strategy that exchanges in rounds.
///
/// In each round the peer trains by itself (the *local phase*) and hands the strategy its part, bucket by bucket; the strategy talks to the
/// other peers and ends the round with [`RoundCtx::finish_round`]. A new view of who takes part ends the round without result: what
/// was said in it is void.
pub trait RoundStrategy: Strategy {
    /// For those who take steps by themselves: whether a peer whose numbers became infinite or none goes on, with the others'
    /// parameters. What it trained in the round is forgotten.
    fn survives_divergence(&self) -> bool {
        false
    }

    /// A part of this peer's contribution is there; the last layers come first.
    fn on_part(&mut self, ctx: &mut RoundCtx<'_>, bucket: usize, numbers: Vec<f32>);

    /// The local phase is over: all parts were handed over.
    fn on_trained(&mut self, ctx: &mut RoundCtx<'_>, trained: &Trained) {
        let _ = (ctx, trained);
    }

    /// Another member of the view said something. Its bytes are hostile until checked.
    fn on_message(&mut self, ctx: &mut RoundCtx<'_>, from: usize, message: Message) -> Result<(), Malformed>;

    /// The samples that [`RoundCtx::score`] named are judged.
    fn on_scored(&mut self, ctx: &mut RoundCtx<'_>, score: &Score) {
        let _ = (ctx, score);
    }

    /// A timer that was set in this view has run out.
    fn on_timer(&mut self, ctx: &mut RoundCtx<'_>, timer: u32) {
        let _ = (ctx, timer);
    }

    /// There is a new view: the round that was going on is void. Unless [`Self::keeps_local_phase`], it begins anew.
    fn on_view(&mut self, ctx: &mut RoundCtx<'_>);

    /// Whether what was trained in the present round stays valid when the view changes: worth it where rounds are long. Only
    /// for those who exchange weights, which are handed over at its end and not bucket by bucket within it.
    fn keeps_local_phase(&self) -> bool {
        false
    }

    /// An epoch ends: brings all replicas together and then says [`Ctx::synced`](super::Ctx::synced). Where they are equal after
    /// every round, there is nothing to do.
    fn sync(&mut self, ctx: &mut RoundCtx<'_>) {
        ctx.synced();
    }
}

/// A strategy for which no round is waited: its payload is [`super::Payload::Updates`].
///
/// After each batch the peer hands its change over and goes on as soon as [`AsyncStrategy::may_go_on`]; the strategy tells with
/// `AsyncCtx::count_round` whose batches have gone into this peer's parameters. When all batches of all peers have, the members
/// are together again.
pub trait AsyncStrategy: Strategy {
    /// A part of this peer's change is there: what a step of its own optimizer adds to the parameters, times its share.
    fn on_part(&mut self, ctx: &mut AsyncCtx<'_>, bucket: usize, numbers: Vec<f32>);

    /// All parts of a batch's change were handed over.
    fn on_trained(&mut self, ctx: &mut AsyncCtx<'_>, trained: &Trained) {
        let _ = (ctx, trained);
    }

    /// Another member of the view said something. Its bytes are hostile until checked.
    fn on_message(&mut self, ctx: &mut AsyncCtx<'_>, from: usize, message: Message) -> Result<(), Malformed>;

    /// There is a new view; [`AsyncCtx::past`] says what has become of this peer's part in the past.
    fn on_view(&mut self, ctx: &mut AsyncCtx<'_>);

    /// Whether the next batch may begin.
    fn may_go_on(&mut self, ctx: &AsyncCtx<'_>) -> bool {
        let _ = ctx;
        true
    }

    /// The part of these parameters that the others would have too if they had heard all, so without what this peer keeps to
    /// itself yet.
    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        values.clone()
    }

    /// What has to be said about these common parameters to who takes them over, besides whose batches are in them. Peers that
    /// say different things hold different parameters.
    fn account(&self) -> Vec<u8> {
        Vec::new()
    }

    /// An epoch ends: brings all replicas together and then says [`Ctx::synced`](super::Ctx::synced). Where they are equal after
    /// every round, there is nothing to do.
    fn sync(&mut self, ctx: &mut AsyncCtx<'_>) {
        ctx.synced();
    }
}
