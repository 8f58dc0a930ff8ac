//! What makes a peer a member: its key and its seat, signed with the swarm's seal, until it expires.

use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use crate::charter::CharterHead;
use crate::keys::{PrivateKey, PublicKey, Signature};

/// How long a certificate is good. It is renewed when half of that is over, so clocks may differ by hours.
pub(crate) const LIFETIME: u64 = 24 * 60 * 60;

const CERTIFICATE: &str = "certificate";

/// A member's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Certificate {
    content: Content,
    signature: Signature,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    key: PublicKey,
    seat: u32,
    since: u64,
    expires: u64,
}

impl Certificate {
    /// A certificate for this key in this seat, from `now` on. `since` tells when it was let in.
    pub(crate) fn issue(seal: &PrivateKey, (key, seat): (PublicKey, u32), since: u64, now: u64) -> Self {
        let content = Content { key, seat, since, expires: now.saturating_add(LIFETIME) };
        Self { signature: seal.sign(CERTIFICATE, &content), content }
    }

    /// Whether this seal has signed it.
    pub(crate) fn is_under(&self, seal: &PublicKey) -> bool {
        seal.has_signed(CERTIFICATE, &self.content, &self.signature)
    }

    /// Whose it is.
    pub(crate) fn key(&self) -> &PublicKey {
        &self.content.key
    }

    /// The seat that was given to it.
    pub(crate) fn seat(&self) -> u32 {
        self.content.seat
    }

    /// The name of whose it is.
    pub(crate) fn peer(&self) -> PeerId {
        self.content.key.in_seat(self.content.seat)
    }

    /// When its holder was let in, in seconds since 1970.
    pub(crate) fn since(&self) -> u64 {
        self.content.since
    }

    /// Until when it is good, in seconds since 1970.
    pub(crate) fn expires(&self) -> u64 {
        self.content.expires
    }
}

/// What a member shows: its certificate, and the owner's word for the seal that signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass {
    pub(crate) head: CharterHead,
    pub(crate) certificate: Certificate,
}

impl Pass {
    /// Whether it fits together and goes back to this owner. Whether it still counts is another question.
    pub(crate) fn is_by(&self, owner: &PublicKey) -> bool {
        self.head.is_by(owner) && self.certificate.is_under(self.head.seal())
    }
}
