//! What members say to each other about membership, as bytes that are hostile until they are checked.

use bytes::Bytes;
use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use super::links::Report;
use super::member::Member;

/// The longest packet: a full list of [`MAX_MEMBERS`] fits in.
pub const MAX_PACKET_LEN: usize = 1 << 20;

/// The most members that are known at a time, the dead who are not yet forgotten among them.
pub const MAX_MEMBERS: usize = 4096;

/// The first byte of a packet of the failure detector; foca's own bytes follow.
const DETECTOR: u8 = 0;

/// The first byte of a packet that holds a [`Message`].
const MESSAGE: u8 = 1;

/// What members say beside what the failure detector says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Message {
    /// The sender wants this to be the next view; its members are sorted. `base` is the latest that had a quorum.
    Propose { number: u32, base: u32, members: Vec<Member> },
    /// The proposal is known, and none with a number up to this one will be acknowledged any more.
    Acknowledge { number: u32 },
    /// The proposal or the view of this number is not accepted: this is the highest number promised.
    Refuse { number: u32, promised: u32 },
    /// All members of the proposal have acknowledged it: it is the view.
    Commit { number: u32 },
    /// The view is in place.
    Done { number: u32 },
    /// How the sender is and whom it hears. Members say this to each other now and then.
    Report(Report),
    /// The sender suspects the receiver, who had better object.
    Suspected { generation: u32, incarnation: u16 },
    /// The sender leaves.
    Leaving,
    /// The receiver is to answer at once: the sender wants to know how near it is.
    Ask { number: u32 },
    /// The answer to that.
    Answer { number: u32 },
}

/// What a packet holds.
#[derive(Debug)]
pub(super) enum Packet<'a> {
    /// Something for the failure detector.
    Detector(&'a [u8]),
    /// One of our own messages.
    Message(Message),
}

/// A packet that no honest member sends. Nothing comes of it, except that its sender may count as alive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// It is too long.
    #[error("a packet of {n_bytes} bytes about membership, and {MAX_PACKET_LEN} are the most")]
    TooLong {
        /// How long it is.
        n_bytes: usize,
    },
    /// It cannot be decoded.
    #[error("a packet about membership cannot be decoded: the other side speaks another protocol or another version")]
    Undecodable,
    /// It says that it comes from somebody else.
    #[error("sender id mismatch: {from:?} claims to be {claimed:?}")]
    Impostor {
        /// Who sent it.
        from: PeerId,
        /// Who is said to have sent it.
        claimed: PeerId,
    },
    /// It is meant for somebody else.
    #[error("{from:?} sends what is meant for {meant:?}")]
    Misdirected {
        /// Who sent it.
        from: PeerId,
        /// Whom it is for.
        meant: PeerId,
    },
    /// It asks for what makes no sense, such as asking us to ask ourselves.
    #[error("{from:?} says something about membership that makes no sense")]
    Senseless {
        /// Who sent it.
        from: PeerId,
    },
    /// It proposes what cannot be a view.
    #[error("{from:?} proposes a view that {flaw}")]
    NoView {
        /// Who proposes it.
        from: PeerId,
        /// What is wrong with it.
        flaw: &'static str,
    },
}

impl Message {
    /// The packet that holds this.
    pub(super) fn to_packet(&self) -> Bytes {
        let bytes = postcard::to_extend(self, vec![MESSAGE]).expect("plain data can always be encoded");
        debug_assert!(bytes.len() <= MAX_PACKET_LEN);
        bytes.into()
    }
}

/// The packet that holds what the failure detector says.
pub(super) fn detector_packet(bytes: &[u8]) -> Bytes {
    [&[DETECTOR], bytes].concat().into()
}

impl<'a> Packet<'a> {
    /// Reads a packet; `from` has sent it to `to`.
    pub(super) fn parse(from: PeerId, to: PeerId, bytes: &'a [u8]) -> Result<Self, Malformed> {
        if bytes.len() > MAX_PACKET_LEN {
            return Err(Malformed::TooLong { n_bytes: bytes.len() });
        }
        if from == to {
            return Err(Malformed::Impostor { from, claimed: to });
        }
        let (tag, rest) = bytes.split_first().ok_or(Malformed::Undecodable)?;
        match *tag {
            DETECTOR => Ok(Self::Detector(rest)),
            MESSAGE => {
                let (message, rest) = postcard::take_from_bytes(rest).map_err(|_| Malformed::Undecodable)?;
                if !rest.is_empty() {
                    return Err(Malformed::Undecodable);
                }
                if let Message::Propose { number, base, members } = &message {
                    check_proposal((*number, *base), members, from, to)?;
                }
                Ok(Self::Message(message))
            }
            _ => Err(Malformed::Undecodable),
        }
    }
}

fn check_proposal((number, base): (u32, u32), members: &[Member], from: PeerId, to: PeerId) -> Result<(), Malformed> {
    let lists = |peer| members.iter().any(|member| member.id == peer);
    let flaw = if number == 0 {
        "has no number"
    } else if base == 0 || base > number {
        "comes before the view that it goes back to"
    } else if members.len() > MAX_MEMBERS {
        "has too many members"
    } else if !members.is_sorted_by(|a, b| a.id < b.id) {
        "is not sorted"
    } else if !lists(from) {
        "lacks its proposer"
    } else if !lists(to) {
        "lacks who is asked"
    } else {
        return Ok(());
    };
    Err(Malformed::NoView { from, flaw })
}

#[cfg(test)]
mod tests {
    use nettorrent_swarm::view::PeerId;

    use crate::address::Address;
    use crate::key_address::{KeyAddress, MAX_RELAY_LEN};

    use super::{MAX_MEMBERS, MAX_PACKET_LEN, Malformed, Member, Message, Packet};

    fn member(join_index: u32) -> Member {
        let sockets: Vec<_> = (0..40).map(|host| ([255, 255, 255, host], 65535).into()).collect();
        let relay = Some(format!("http://{}", "r".repeat(MAX_RELAY_LEN - 7)));
        let address = Address::Key(KeyAddress::new([255; 32], relay, &sockets).unwrap());
        Member { id: PeerId::new(join_index, u64::MAX), generation: u32::MAX, address }
    }

    fn parse(message: &Message) -> Result<(), Malformed> {
        Packet::parse(member(0).id, member(1).id, &message.to_packet()).map(|_| ())
    }

    #[test]
    fn the_largest_proposal_fits_in_a_packet() {
        let first = u32::MAX >> 8;
        let members: Vec<_> = (0..MAX_MEMBERS as u32).map(|rank| member(first - MAX_MEMBERS as u32 + rank)).collect();
        let (from, to) = (members[0].id, members[1].id);
        let bytes = Message::Propose { number: u32::MAX, base: 1, members }.to_packet();
        assert!(bytes.len() < MAX_PACKET_LEN);
        assert!(Packet::parse(from, to, &bytes).is_ok());
    }

    #[test]
    fn proposals_that_cannot_be_views_are_refused() {
        let propose = |number, join_indices: &[u32]| {
            let members = join_indices.iter().map(|join_index| member(*join_index)).collect();
            parse(&Message::Propose { number, base: 1, members }).is_ok()
        };
        assert!(propose(1, &[0, 1, 2]));
        assert!(!propose(0, &[0, 1, 2]));
        assert!(!propose(1, &[0, 2, 1]));
        assert!(!propose(1, &[0, 1, 1]));
        assert!(!propose(1, &[0, 2]));
        assert!(!propose(1, &[1, 2]));
        assert!(!propose(1, &[]));
    }

    #[test]
    fn bytes_that_are_left_over_are_refused() {
        let mut bytes = Message::Leaving.to_packet().to_vec();
        assert!(Packet::parse(member(0).id, member(1).id, &bytes).is_ok());
        bytes.push(0);
        assert!(Packet::parse(member(0).id, member(1).id, &bytes).is_err());
    }
}
