//! Questions that joiners and observers ask a peer, and its answers.

use bytes::Bytes;
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{PeerId, Phase};
use serde::{Deserialize, Serialize};

use crate::address::Address;

/// A question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Question {
    /// What is being trained here, and who is there? Asked by who wants to take part.
    Join,
    /// How is it going?
    Status,
    /// Some bytes, please: asked by who wants to know how fast the link is. At most [`MOST_PROBE_BYTES`] are given.
    Probe {
        /// How many.
        n_bytes: u32,
    },
}

/// The most that one probe is answered with: it fits into a frame.
pub(crate) const MOST_PROBE_BYTES: usize = 2 << 20;

/// An answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// What is needed to take part.
    Join(Invitation),
    /// How it is going.
    Status(PeerStatus),
    /// The bytes; none if others have just asked for some.
    Probe(Vec<u8>),
}

/// What is needed to take part: the job travels, the data do not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Invitation {
    /// What is trained.
    pub package: JobPackage,
    /// The join index that is free.
    pub join_index: u32,
    /// Who is there, and where.
    pub members: Vec<(PeerId, Address)>,
}

/// A job as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPackage {
    /// The job, as TOML.
    pub job: String,
    /// The model's description, as TOML.
    pub model: String,
    /// What the training and the test data are, so that everyone trains on the same.
    pub data: [[u8; 32]; 2],
}

/// How a peer is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Which peer.
    pub peer: PeerId,
    /// The machine that it runs on.
    pub host: String,
    /// What it is doing.
    pub phase: Phase,
    /// Epochs done, of how many.
    pub epoch: u64,
    /// See `epoch`.
    pub epochs: u64,
    /// Rounds done.
    pub round: u32,
    /// What it trains in a second, over the last rounds.
    pub samples_per_s: f64,
    /// The step that it is in, counted from 1; where a round has several, its first.
    pub step: u64,
    /// Whom it waits for.
    pub waits_for: Vec<Awaited>,
    /// For how long it has been at this.
    pub since_s: f64,
    /// Who is there, and where, as it knows.
    pub members: Vec<(PeerId, Address)>,
}

/// Somebody who is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Who.
    pub peer: PeerId,
    /// Where it is, if that is known.
    pub address: Option<Address>,
}

/// A message that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("a question or an answer cannot be read: {0}")]
pub struct Unreadable(#[from] postcard::Error);

/// Puts a question or an answer into a frame.
pub(crate) fn to_frame(message: &impl Serialize) -> Frame {
    let body: Bytes = postcard::to_allocvec(message).expect("plain values can be written").into();
    Frame::new(Kind::Service, body)
}

/// Reads a question or an answer; its sender is not trusted.
pub(crate) fn from_frame<'a, T: Deserialize<'a>>(frame: &'a Frame) -> Result<T, Unreadable> {
    Ok(postcard::from_bytes(&frame.body)?)
}
