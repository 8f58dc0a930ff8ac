//! Frames: what stands before the bytes that peers send each other, and how long these may be.
//!
//! A frame is a head of fixed length and a body. Heads are small and copied; bodies are shared ([`Bytes`]), so that one
//! encoded vector goes to many receivers, or on to the next, without being copied.
//!
//! ```text
//! n_bytes: u32   kind: u8   zero: [u8; 3]   view: u32   round: u32   part: u64      (little-endian, 24 bytes)
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::malformed::Malformed;

/// How long a head is.
pub const HEAD_LEN: usize = 24;

/// The longest body. Vectors are cut into pieces far shorter than this, so a length beyond it is no honest one.
pub const MAX_BODY_LEN: usize = 4 << 20;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// The first words on a link: who is there, of which swarm, for which job. Hosts only.
    Hello = 0,
    /// Who takes part: views. Hosts only.
    Membership = 1,
    /// Questions that a person or a joiner asks, and their answers. Hosts only.
    Service = 2,
    /// Peers of a new view agree on whose parameters go on.
    Agreement = 3,
    /// Parameters and progress for those who are behind.
    Snapshot = 4,
    /// What a strategy says.
    Strategy = 5,
    /// A part of the test's result.
    Tested = 6,
    /// Who lives: failure detection. It goes before all else that waits on its link, or a peer that has much to say would be
    /// taken for dead. Hosts only.
    Probe = 7,
    /// What peers of a pipeline say to each other about blocks and what goes through them.
    Layers = 8,
    /// How fast peers are, for those who deal out work by that.
    Pace = 9,
    /// What a peer tells the first member about itself, for those who watch the run. Hosts only.
    Telemetry = 10,
}

impl Kind {
    const ALL: [Self; 11] = [
        Self::Hello,
        Self::Membership,
        Self::Service,
        Self::Agreement,
        Self::Snapshot,
        Self::Strategy,
        Self::Tested,
        Self::Probe,
        Self::Layers,
        Self::Pace,
        Self::Telemetry,
    ];
}

/// What stands before a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the frame is for.
    pub kind: Kind,
    /// The view it belongs to; frames of views that have passed mean nothing any more.
    pub view: u32,
    /// The round it belongs to, where there are rounds.
    pub round: u32,
    /// Which part of the round's exchange it is; what that means is the sender's and receiver's own business.
    pub part: u64,
    /// How long the body is.
    pub n_bytes: u32,
}

/// A head that no honest peer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The body would be too long.
    #[error("a frame of {n_bytes} bytes is announced, and {MAX_BODY_LEN} are the most")]
    TooLong {
        /// What it says.
        n_bytes: u32,
    },
    /// There is no such kind of frame.
    #[error("there is no frame of kind {kind}")]
    UnknownKind {
        /// What it says.
        kind: u8,
    },
    /// Bytes that must be zero are not: this is another protocol.
    #[error("the bytes are no frame: the other side speaks another protocol")]
    NotAFrame,
}

impl Head {
    /// The head as it travels.
    pub fn to_bytes(self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[0..4].copy_from_slice(&self.n_bytes.to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.view.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.round.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.part.to_le_bytes());
        bytes
    }

    /// Reads a head; the length it announces may be trusted to be within bounds afterwards.
    pub fn from_bytes(bytes: &[u8; HEAD_LEN]) -> Result<Self, FrameError> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if bytes[5..8] != [0; 3] {
            return Err(FrameError::NotAFrame);
        }
        let n_bytes = u32_at(0);
        if n_bytes as usize > MAX_BODY_LEN {
            return Err(FrameError::TooLong { n_bytes });
        }
        let kind = Kind::ALL.get(usize::from(bytes[4])).copied().ok_or(FrameError::UnknownKind { kind: bytes[4] })?;
        let part = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
        Ok(Self { kind, view: u32_at(8), round: u32_at(12), part, n_bytes })
    }
}

/// A head with its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the body is.
    pub head: Head,
    /// The bytes themselves, shared.
    pub body: Bytes,
}

impl Frame {
    /// A frame outside of views and rounds, as hosts send them.
    ///
    /// # Panics
    /// If the body is longer than [`MAX_BODY_LEN`].
    pub fn new(kind: Kind, body: Bytes) -> Self {
        Self::in_round(kind, 0, 0, 0, body)
    }

    /// A frame that belongs to a round of a view.
    ///
    /// # Panics
    /// If the body is longer than [`MAX_BODY_LEN`].
    pub fn in_round(kind: Kind, view: u32, round: u32, part: u64, body: Bytes) -> Self {
        assert!(body.len() <= MAX_BODY_LEN, "a body of {} bytes must be cut into pieces", body.len());
        Self { head: Head { kind, view, round, part, n_bytes: body.len() as u32 }, body }
    }

    /// What it weighs on the wire, without encryption.
    pub fn n_bytes(&self) -> usize {
        HEAD_LEN + self.body.len()
    }
}

/// A body that is one plain value.
pub fn encoded(value: &impl Serialize) -> Bytes {
    postcard::to_allocvec(value).expect("plain values can be written").into()
}

/// The plain value that is a body.
pub fn decoded<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Malformed> {
    postcard::from_bytes(body).map_err(|error| Malformed::new(format!("its message cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{FrameError, HEAD_LEN, Head, Kind, MAX_BODY_LEN};

    #[test]
    fn heads_come_back_as_they_were() {
        for kind in Kind::ALL {
            let head = Head { kind, view: 7, round: u32::MAX, part: 1 << 40 | 3, n_bytes: MAX_BODY_LEN as u32 };
            assert_eq!(Head::from_bytes(&head.to_bytes()), Ok(head));
        }
    }

    #[test]
    fn dishonest_heads_are_refused() {
        let honest = Head { kind: Kind::Strategy, view: 0, round: 0, part: 0, n_bytes: 0 }.to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes: [u8; HEAD_LEN] = honest;
            bytes[at] = byte;
            Head::from_bytes(&bytes)
        };
        assert_eq!(with(3, 0x7f), Err(FrameError::TooLong { n_bytes: 0x7f00_0000 }));
        assert_eq!(with(4, 200), Err(FrameError::UnknownKind { kind: 200 }));
        assert_eq!(with(6, 1), Err(FrameError::NotAFrame));
    }
}
