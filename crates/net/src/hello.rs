//! The first words on a link: who is there, of which swarm, and what for.

use bytes::Bytes;
use nettorrent_swarm::view::PeerId;
use nettorrent_swarm::wire::{Frame, Kind};
use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::certificate::Pass;
use crate::keys::{PublicKey, Signature};
use crate::refusal::{JobHash, Refusal};
use crate::sealed_file::Name;
use crate::ticket::SwarmId;

/// The protocol that this program speaks; peers of other versions are refused.
pub const VERSION: u32 = 14;

/// The longest that a frame of a handshake may be.
pub(crate) const MAX_HELLO_LEN: usize = 1 << 10;

// What follows can never change: a hello is a frame whose head begins with the body's length (4 bytes, little-endian) and a
// zero for its kind, 24 bytes in all; its body begins with these 8 bytes and 4 bytes of version, little-endian. So programs
// of all versions recognise each other.
const MAGIC: [u8; 8] = *b"NetTorr\0";
const MAGIC_AT: usize = 24;

/// Who speaks, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The swarm that it belongs to.
    pub swarm: SwarmId,
    /// Its key, which is who it is.
    pub key: PublicKey,
    /// Its name: a join index and a part of its key. Joiners and observers have [`NO_JOIN_INDEX`](crate::trust_store::NO_JOIN_INDEX) as theirs.
    pub peer: PeerId,
    /// What shows that it is a member; who has none has to know the ticket.
    pub(crate) pass: Option<Pass>,
    /// What it wants.
    pub purpose: Purpose,
    /// The address under which it sees the one it speaks to.
    pub seen: Address,
    /// Fresh randomness, so that no proof can be used twice.
    pub(crate) nonce: [u8; 32],
    /// Its part of a cover for secrets, where the link is not encrypted.
    pub(crate) exchange: Option<[u8; 32]>,
    /// The name of its token in a directory that others may share.
    pub(crate) token: Option<Name>,
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// To take part.
    Peer {
        /// Tells apart the lives of a peer.
        generation: u32,
        /// What it trains.
        job: JobHash,
    },
    /// To be let in.
    Joiner {
        /// What it wants to train, if it knows.
        job: Option<JobHash>,
    },
    /// To ask how things stand.
    Observer,
}

impl Purpose {
    /// What it trains, if it knows.
    pub fn job(&self) -> Option<JobHash> {
        match self {
            Self::Peer { job, .. } => Some(*job),
            Self::Joiner { job } => *job,
            Self::Observer => None,
        }
    }
}

/// What comes after the hellos.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// That the key in the hello is its sender's, and of who is no member also that it knows the ticket's secret.
    Proof {
        /// Of both hellos.
        signature: Signature,
        /// HMAC-SHA256 of both hellos.
        ticket: Option<[u8; 32]>,
    },
    /// The link is wanted.
    Accepted,
    /// The link is not wanted.
    Refused(Refusal),
}

/// Why a frame is no hello, or none that we can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoHello {
    /// It comes from a program of this version.
    Version(u32),
    /// It is something else.
    Malformed,
}

impl Hello {
    /// The frame that it travels in.
    pub fn to_frame(&self) -> Frame {
        let mut body = MAGIC.to_vec();
        body.extend(VERSION.to_le_bytes());
        let body = postcard::to_extend(self, body).expect("a hello has nothing that cannot be written");
        Frame::new(Kind::Hello, Bytes::from(body))
    }

    /// Reads one; its bytes are hostile until checked.
    pub fn from_frame(frame: &Frame) -> Result<Self, NoHello> {
        if frame.head.kind != Kind::Hello {
            return Err(NoHello::Malformed);
        }
        let rest = frame.body.strip_prefix(&MAGIC).ok_or(NoHello::Malformed)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(NoHello::Malformed)?;
        let version = u32::from_le_bytes(*version);
        if version != VERSION {
            return Err(NoHello::Version(version));
        }
        postcard::from_bytes(rest).map_err(|_| NoHello::Malformed)
    }
}

impl Answer {
    pub(crate) fn to_frame(self) -> Frame {
        let body = postcard::to_allocvec(&self).expect("an answer has nothing that cannot be written");
        Frame::new(Kind::Hello, Bytes::from(body))
    }

    pub(crate) fn from_frame(frame: &Frame) -> Option<Self> {
        (frame.head.kind == Kind::Hello).then(|| postcard::from_bytes(&frame.body).ok()).flatten()
    }
}

/// Whether a stream that begins like this is a plain one of ours.
pub(crate) fn looks_like_hello(first: &[u8]) -> bool {
    first.get(MAGIC_AT..MAGIC_AT + MAGIC.len()) == Some(&MAGIC)
}

/// Whether a stream that begins like this is TLS: one of its four types of records, and its version. Our own frames cannot
/// begin so, as they would be too long for a hello.
pub(crate) fn looks_like_tls(first: &[u8]) -> bool {
    matches!(first, [0x14..=0x17, 0x03, 0x00..=0x04, ..])
}

#[cfg(test)]
mod tests {
    use super::{Answer, Hello, MAGIC, MAX_HELLO_LEN, NoHello, Purpose, VERSION, looks_like_hello, looks_like_tls};
    use crate::founder::Founder;
    use crate::refusal::Refusal;
    use crate::ticket::{Secret, SwarmId};
    use bytes::Bytes;
    use nettorrent_swarm::wire::{Frame, Kind};

    fn hello() -> Hello {
        let identity = Founder::from_secret(&Secret::from_bytes([1; 32])).member(3).unwrap();
        Hello {
            swarm: SwarmId([1; 16]),
            key: identity.key(),
            peer: identity.peer,
            pass: identity.trust_store().map(|trust_store| trust_store.pass()),
            purpose: Purpose::Peer { generation: u32::MAX, job: [255; 32] },
            seen: "[2001:db8::1]:65535".parse().unwrap(),
            nonce: [255; 32],
            exchange: Some([255; 32]),
            token: Some([255; 16]),
        }
    }

    #[test]
    fn hellos_come_back_as_they_were() {
        for purpose in [hello().purpose, Purpose::Joiner { job: Some([2; 32]) }, Purpose::Observer] {
            let hello = Hello { purpose, ..hello() };
            let frame = hello.to_frame();
            assert!(frame.body.len() < MAX_HELLO_LEN * 3 / 4, "{}", frame.body.len());
            assert_eq!(Hello::from_frame(&frame), Ok(hello));
        }
    }

    #[test]
    fn hellos_of_other_versions_are_recognised_whatever_follows() {
        let mut body = MAGIC.to_vec();
        body.extend((VERSION + 1).to_le_bytes());
        body.extend(b"something that has not been thought of yet");
        let frame = Frame::new(Kind::Hello, Bytes::from(body));
        assert_eq!(Hello::from_frame(&frame), Err(NoHello::Version(VERSION + 1)));
    }

    #[test]
    fn cut_and_changed_hellos_are_no_hellos() {
        let whole = hello().to_frame().body;
        for end in 0..whole.len() {
            let frame = Frame::new(Kind::Hello, whole.slice(..end));
            assert_eq!(Hello::from_frame(&frame), Err(NoHello::Malformed), "{end}");
        }
        let other_kind = Frame::new(Kind::Service, whole);
        assert_eq!(Hello::from_frame(&other_kind), Err(NoHello::Malformed));
    }

    #[test]
    fn answers_come_back_as_they_were() {
        let signature = Founder::from_secret(&Secret::from_bytes([1; 32])).member(3).unwrap().sign(b"something");
        let proof = Answer::Proof { signature, ticket: Some([9; 32]) };
        let removed = Answer::Refused(Refusal::Removed(signature));
        for answer in [proof, Answer::Accepted, removed, Answer::Refused(Refusal::TooMany { most: 5 })] {
            assert_eq!(Answer::from_frame(&answer.to_frame()), Some(answer));
        }
        assert_eq!(Answer::from_frame(&Frame::new(Kind::Hello, Bytes::from_static(b"\xff"))), None);
    }

    #[test]
    fn streams_are_told_apart_by_how_they_begin() {
        let frame = hello().to_frame();
        let plain = [&frame.head.to_bytes()[..], &frame.body].concat();
        assert!(looks_like_hello(&plain) && !looks_like_tls(&plain));
        let tls = [0x16, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
        assert!(looks_like_tls(&tls) && !looks_like_hello(&tls));
        assert!(!looks_like_hello(b"GET / HTTP/1.1\r\n\r\n") && !looks_like_tls(b"GET"));
    }
}
