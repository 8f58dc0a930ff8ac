//! A peer: inputs in, outbox out. It holds the whole network, or blocks of it.

use std::sync::Arc;
use std::time::Duration;

use crate::layers::{BlockView, LayerPeer, Origin, SavedBlock};
use crate::place::{Place, State};
use crate::record::Record;
use crate::replica::Replica;
use crate::setup::Setup;
use crate::strategy::{Malformed, Strategy};
use crate::view::{PeerId, View};
use crate::wire::Frame;
use crate::work::{Done, Work};

/// What can happen to a peer.
#[derive(Debug)]
pub enum Input {
    /// Work is done, or a part of it; it has taken this long so far.
    Done {
        /// What.
        done: Done,
        /// How long.
        took: Duration,
    },
    /// Another peer sent something.
    Frame {
        /// Who.
        from: PeerId,
        /// What.
        frame: Frame,
    },
    /// A timer has run out.
    Timer(TimerToken),
    /// The host has found out how many bytes a second this peer's links carry.
    Uplink(f64),
    /// Other peers take part now. The first view begins the training.
    View(View),
}

/// What a peer wants done.
#[derive(Debug, Default)]
pub struct Outbox {
    /// What to send, in this order.
    pub frames: Vec<(PeerId, Frame)>,
    /// After how long to give which timer back.
    pub timers: Vec<(Duration, TimerToken)>,
    /// What to compute, one after the other.
    pub work: Vec<Work>,
    /// What to tell people.
    pub records: Vec<Record>,
    /// Whose frames turned out to be malformed when their time came, and why: like an error at once, it costs the sender.
    pub refused: Vec<(PeerId, Malformed)>,
    /// Blocks of the network that were gathered here to be kept, in a layer network.
    pub saved: Vec<SavedBlock>,
    /// Why the peer cannot go on, if it cannot.
    pub failure: Option<String>,
}

/// Names a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerToken {
    pub(crate) view: u32,
    pub(crate) round: u32,
    pub(crate) timer: u32,
}

/// What a peer is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It waits for the first view, or its members agree on whose parameters go on.
    Agreeing,
    /// It computes its turn.
    Training,
    /// Its turn is over, and it exchanges with others.
    Exchanging,
    /// Replicas are brought together at the end of an epoch.
    Syncing,
    /// All epochs are done, the last test is not.
    Testing,
    /// All is done.
    Finished,
}

/// What a peer can say about itself at any time.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// What it is doing.
    pub phase: Phase,
    /// Epochs done.
    pub epoch: u64,
    /// Rounds done.
    pub round: u32,
    /// Whose message has to come next, if it waits.
    pub waits_for: Vec<PeerId>,
    /// When this phase of this round began, by the host's clock. A peer that waits for long is handed nothing, so only its
    /// host knows how long that is.
    pub began: Duration,
}

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
    pub fn new(id: PeerId, setup: Arc<Setup>, state: State) -> Self {
        Self { kind: Kind::Whole(Box::new(Replica::new(id, setup, state))) }
    }

    /// A peer with a strategy that need not be in the list.
    pub fn with_strategy(id: PeerId, setup: Arc<Setup>, strategy: Box<dyn Strategy>, state: State) -> Self {
        Self { kind: Kind::Whole(Box::new(Replica::with_strategy(id, setup, strategy, state))) }
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
