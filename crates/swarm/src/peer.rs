//! A peer: inputs in, outbox out. It holds the whole network, or blocks of it.

use std::sync::Arc;
use std::time::Duration;

use crate::effects::{Input, Outbox, Status};
use crate::layers::{BlockView, LayerPeer, Origin};
use crate::malformed::Malformed;
use crate::place::{Place, State};
use crate::replica::Replica;
use crate::setup::Setup;
use crate::strategy::Strategy;
use crate::view::{PeerId, View};

/// One peer of a swarm.
pub struct Peer {
    kind: Kind,
}

enum Kind {
    Whole(Box<Replica>),
    Layers(Box<LayerPeer>),
}

impl Peer {
    /// A peer that holds the whole network, with the job's strategy; it waits for its first view.
    pub fn new(id: PeerId, setup: &Setup, state: State) -> Self {
        Self { kind: Kind::Whole(Box::new(Replica::new(id, setup.replica.clone(), state))) }
    }

    /// A peer with a strategy that need not be in the list.
    pub fn with_strategy(id: PeerId, setup: &Setup, strategy: Box<dyn Strategy>, state: State) -> Self {
        Self { kind: Kind::Whole(Box::new(Replica::with_strategy(id, setup.replica.clone(), strategy, state))) }
    }

    /// A peer of a layer network, that holds nothing until it is known who takes part.
    ///
    /// # Panics
    /// If the setup is not that of a layer network.
    pub fn in_layers(id: PeerId, setup: Arc<Setup>, origin: Origin) -> Self {
        Self { kind: Kind::Layers(Box::new(LayerPeer::new(id, setup, origin))) }
    }

    /// Takes one input and says what is to be done. An error is the sender's fault and leaves the peer as it was, but for
    /// parts of a round that the sender's own message was to complete.
    pub fn handle(&mut self, now: Duration, input: Input, out: &mut Outbox) -> Result<(), Malformed> {
        match &mut self.kind {
            Kind::Whole(replica) => replica.handle(now, input, out),
            Kind::Layers(peer) => peer.handle(now, input, out),
        }
    }

    /// The parameters as they are; of a peer that holds blocks, none (see [`Self::blocks`]).
    pub fn values(&self) -> Arc<Vec<f32>> {
        match &self.kind {
            Kind::Whole(replica) => replica.values().clone(),
            Kind::Layers(_) => Arc::default(),
        }
    }

    /// The blocks of a layer network that it holds.
    pub fn blocks(&self) -> Vec<BlockView> {
        match &self.kind {
            Kind::Whole(_) => Vec::new(),
            Kind::Layers(peer) => peer.blocks(),
        }
    }

    /// How far it is.
    pub fn place(&self) -> &Place {
        match &self.kind {
            Kind::Whole(replica) => replica.place(),
            Kind::Layers(peer) => peer.place(),
        }
    }

    /// All that training could go on from, for a checkpoint: the state after the last round. None where it holds blocks:
    /// these are gathered, see [`Outbox::saved`].
    pub fn state(&self) -> Option<State> {
        match &self.kind {
            Kind::Whole(replica) => Some(replica.state()),
            Kind::Layers(_) => None,
        }
    }

    /// Whether its losses speak for its state, so that it may take the place of an earlier checkpoint.
    pub fn is_healthy(&self) -> bool {
        match &self.kind {
            Kind::Whole(replica) => replica.is_healthy(),
            // Blocks are gathered when all have agreed.
            Kind::Layers(_) => true,
        }
    }

    /// The step of the last state that is known to be good, if this peer keeps one to go back to.
    pub fn good_step(&self) -> Option<u64> {
        match &self.kind {
            Kind::Whole(replica) => replica.good_step(),
            Kind::Layers(_) => None,
        }
    }

    /// The view it is in.
    pub fn view(&self) -> &View {
        match &self.kind {
            Kind::Whole(replica) => replica.view(),
            Kind::Layers(peer) => peer.view(),
        }
    }

    /// Whether all epochs are done and tested.
    pub fn is_finished(&self) -> bool {
        match &self.kind {
            Kind::Whole(replica) => replica.is_finished(),
            Kind::Layers(peer) => peer.is_finished(),
        }
    }

    /// What it is doing, and whom it waits for.
    pub fn status(&self) -> Status {
        match &self.kind {
            Kind::Whole(replica) => replica.status(),
            Kind::Layers(peer) => peer.status(),
        }
    }
}
