//! A peer, as its host sees it: inputs in, outbox out.

use std::sync::Arc;
use std::time::Duration;

use crate::block::BlockView;
use crate::effects::{Input, Outbox, Status};
use crate::malformed::Malformed;
use crate::place::{Place, State};
use crate::view::View;

/// One peer of a swarm. It holds the whole network, or blocks of it.
pub trait Peer: Send {
    /// Takes one input and says what is to be done. An error is the sender's fault and leaves the peer as it was, but for
    /// parts of a round that the sender's own message was to complete.
    fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed>;

    /// How far it is.
    fn place(&self) -> &Place;

    /// The view it is in.
    fn view(&self) -> &View;

    /// Whether all epochs are done and tested.
    fn is_finished(&self) -> bool;

    /// What it is doing, and whom it waits for.
    fn status(&self) -> Status;

    /// The parameters as they are; of a peer that holds blocks, none (see [`Self::blocks`]).
    fn values(&self) -> Arc<Vec<f32>> {
        Arc::default()
    }

    /// The blocks that it holds, if it does not hold the whole.
    fn blocks(&self) -> Vec<BlockView> {
        Vec::new()
    }

    /// All that training could go on from, for a checkpoint: the state after the last round. None where it holds blocks:
    /// these are gathered, see [`Outbox::saved`]; and none while it is not settled.
    fn state(&self) -> Option<State> {
        None
    }

    /// Whether its parameters are its own, and not lent to the worker for a step. Who wants its state says [`Input::Stop`] and waits
    /// until they are.
    fn is_settled(&self) -> bool {
        true
    }

    /// Whether its losses speak for its state, so that it may take the place of an earlier checkpoint. Blocks are gathered
    /// when all have agreed.
    fn is_healthy(&self) -> bool {
        true
    }

    /// The step of the last state that is known to be good, if this peer keeps one to go back to.
    fn good_step(&self) -> Option<u64> {
        None
    }
}
