//! What can happen to a peer, and what it wants done.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::block::SavedBlock;
use crate::malformed::Malformed;
use crate::record::Record;
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
    /// The link to another peer has ended. Whether the peer itself is gone, a view will say.
    LinkEnded(PeerId),
    /// A timer has run out.
    Timer(TimerToken),
    /// The host has found out how many bytes a second this peer's links carry.
    Uplink(f64),
    /// The host says at which site this peer is: those that are told the same are at the same. With 0, as if it had said nothing, it is
    /// at one with those that are near by.
    Site(u64),
    /// The host has measured how long it takes until these have answered. Who is not among them is not known.
    RoundTrips(BTreeMap<PeerId, Duration>),
    /// The host has written the last block that was to be saved, or could not: it has time for the next.
    BlockWritten {
        /// Whether it has.
        is_written: bool,
    },
    /// The host wants to stop: nothing more is to be begun that would not be over soon.
    Stop,
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
    /// Blocks of the network that were gathered here to be kept, where no peer holds it whole. The next one comes after
    /// [`Input::BlockWritten`].
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
    /// It trains locally.
    Training,
    /// Its local phase is over, and it exchanges with others.
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
