//! What every strategy does for its peer.

use std::sync::Arc;

use nettorrent_engine::model::Score;

use super::cost::{Cost, CostQuestion};
use super::ctx::Ctx;
use super::turn::{Message, Trained, Turn};
use crate::malformed::Malformed;

/// The rule by which peers exchange what they learnt.
///
/// Training goes in rounds. In each, the peer trains a *turn* by itself and hands the strategy its part, bucket by bucket;
/// the strategy talks to the other peers and ends the round with [`Ctx::finish_round`]. A new view of who takes part ends the
/// round without result: what was said in it is void.
///
/// Who hands over [`super::Payload::Updates`] trains asynchronously: no round is waited for. After each batch the peer hands its change over
/// and goes on as soon as [`Strategy::may_go_on`]; the strategy tells with [`Ctx::count_round`] whose batches have gone into this
/// peer's parameters. When all batches of all peers have, the members are together again.
pub trait Strategy: Send {
    /// What a peer trains by itself before each exchange, and what it then hands over.
    fn turn(&self) -> Turn;

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
    fn counts_all(&self) -> bool {
        true
    }

    /// Asynchronous strategies only: whether the next batch may begin.
    fn may_go_on(&mut self, ctx: &Ctx<'_>) -> bool {
        let _ = ctx;
        true
    }

    /// Asynchronous strategies only: the part of these parameters that the others would have too if they had heard all, so
    /// without what this peer keeps to itself yet.
    fn common(&self, values: &Arc<Vec<f32>>) -> Arc<Vec<f32>> {
        values.clone()
    }

    /// Asynchronous strategies only: what has to be said about these common parameters to who takes them over, besides whose
    /// batches are in them. Peers that say different things hold different parameters.
    fn account(&self) -> Vec<u8> {
        Vec::new()
    }

    /// How many vectors, each as long as the parameters, are its state from round to round, alike at all peers.
    fn n_state_vectors(&self) -> usize {
        0
    }

    /// One of them as it is after the last round that ended; empty means zeros.
    fn state_vector(&self, k: usize) -> &[f32] {
        let _ = k;
        &[]
    }

    /// Takes over the state of another peer or of a checkpoint: as many vectors as it has.
    fn restore(&mut self, vectors: Vec<Vec<f32>>) {
        let _ = vectors;
    }

    /// An epoch ends: brings all replicas together and then says [`Ctx::synced`]. Where they are equal after every round,
    /// there is nothing to do.
    fn sync(&mut self, ctx: &mut Ctx<'_>) {
        ctx.synced();
    }

    /// The ranks of those whose message has to come next, if any: the answer to "why is it waiting".
    fn waits_for(&self) -> Vec<usize>;
}
