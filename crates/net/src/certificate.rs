//! What makes a peer a member: its key and its join index, signed with the swarm's issuer key, until it expires.

use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use crate::keys::{PrivateKey, PublicKey, Signature};
use crate::policy::PolicyHead;

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
    join_index: u32,
    since: u64,
    expires: u64,
}

impl Certificate {
    /// A certificate for this key with this join index, from `now` on. `since` tells when it was let in.
    pub(crate) fn issue(issuer: &PrivateKey, (key, join_index): (PublicKey, u32), since: u64, now: u64) -> Self {
        let content = Content { key, join_index, since, expires: now.saturating_add(LIFETIME) };
        Self { signature: issuer.sign(CERTIFICATE, &content), content }
    }

    /// Whether this issuer key has signed it.
    pub(crate) fn is_under(&self, issuer: &PublicKey) -> bool {
        issuer.has_signed(CERTIFICATE, &self.content, &self.signature)
    }

    /// Whose it is.
    pub(crate) fn key(&self) -> &PublicKey {
        &self.content.key
    }

    /// The join index that was given to it.
    pub(crate) fn join_index(&self) -> u32 {
        self.content.join_index
    }

    /// The name of whose it is.
    pub(crate) fn peer(&self) -> PeerId {
        self.content.key.named(self.content.join_index)
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

/// What a member shows: its certificate, and the owner's signature of the issuer key that signed it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pass {
    pub(crate) head: PolicyHead,
    pub(crate) certificate: Certificate,
}

impl Pass {
    /// Whether it fits together and goes back to this owner. Whether it still counts is another question.
    pub(crate) fn is_by(&self, owner: &PublicKey) -> bool {
        self.head.is_by(owner) && self.certificate.is_under(self.head.issuer())
    }
}
