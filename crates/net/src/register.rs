//! What a member knows about who belongs to its swarm: the charter, its own certificate and those of others.
//!
//! Nothing here knows of links or views. Whoever has a link asks here whether it may be, and hands in what members tell each other.

use std::collections::BTreeMap;

use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, LIFETIME, Pass};
use crate::charter::{Amendment, Charter, MAX_KEYS, is_removed};
use crate::clock::Clock;
use crate::keys::{PrivateKey, PublicKey, Signature};
use crate::refusal::Refusal;
use crate::ticket::Secret;

/// The seat in the name of those who have none: joiners and observers.
pub const NO_JOIN_INDEX: u32 = (1 << 24) - 1;

/// What a newcomer is given: from then on it is a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub(crate) amendment: Amendment,
    pub(crate) certificate: Certificate,
    /// Who else was let in with the same ticket.
    pub(crate) admitted: Vec<Certificate>,
}

/// Why somebody with a ticket is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum NotAdmitted {
    /// The ticket was good for so many.
    #[error("the ticket was good for {uses} to join, and they have: ask the swarm's owner for a new one")]
    UsedUp {
        /// How many.
        uses: u32,
    },
    /// The ticket's time is over.
    #[error("the ticket's time is over: ask the swarm's owner for a new one")]
    Ended,
    /// The owner has removed this key.
    #[error("the swarm's owner has removed this peer for good")]
    Removed,
    /// There is no room.
    #[error("too many have been let in with this ticket: the swarm's owner can replace it with `members --rotate`")]
    Full,
    /// What it was given does not fit together.
    #[error("what the swarm has sent is not signed as it should be: do not join this swarm")]
    Unsound,
}

/// What a charter that was handed in comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// It is in force.
    Adopted,
    /// There is the same already, or a later one.
    Known,
    /// It removes this very peer.
    Removed,
    /// It is not what the owner has signed.
    Unsound,
}

/// What a member knows about who belongs to its swarm.
pub(crate) struct Register {
    clock: Clock,
    amendment: Amendment,
    seal: PrivateKey,
    own: Certificate,
    /// Members that were met.
    members: BTreeMap<PeerId, Pass>,
    /// Who was let in with the present ticket.
    admitted: BTreeMap<PublicKey, Certificate>,
}

impl Register {
    /// The register of who founds a swarm, or was there when it was founded.
    pub(crate) fn found(amendment: &Amendment, owner: &PublicKey, own: (PublicKey, u32), clock: Clock) -> Option<Self> {
        let seal = amendment.unlock(owner)?;
        let now = clock.now();
        let own = Certificate::issue(&seal, own, now, now);
        let amendment = amendment.clone();
        Some(Self { clock, amendment, seal, own, members: BTreeMap::new(), admitted: BTreeMap::new() })
    }

    /// The register of a newcomer.
    pub(crate) fn admitted(admission: &Admission, owner: &PublicKey, key: &PublicKey, clock: Clock) -> Option<Self> {
        let Admission { amendment, certificate, admitted } = admission;
        let seal = amendment.unlock(owner)?;
        let is_own = certificate.key() == key && certificate.seat() < NO_JOIN_INDEX;
        if !is_own || !certificate.is_under(&seal.public()) {
            return None;
        }
        let (amendment, own) = (amendment.clone(), certificate.clone());
        let mut register = Self { clock, amendment, seal, own, members: BTreeMap::new(), admitted: BTreeMap::new() };
        register.on_admitted(admitted.iter().chain([certificate]).cloned().collect());
        Some(register)
    }

    pub(crate) fn charter(&self) -> &Charter {
        &self.amendment.charter
    }

    /// All of the charter in force, for other members.
    pub(crate) fn amendment(&self) -> &Amendment {
        &self.amendment
    }

    /// What tickets hold.
    pub(crate) fn admission(&self) -> &Secret {
        &self.amendment.admission
    }

    /// What this member shows.
    pub(crate) fn pass(&self) -> Pass {
        Pass { head: self.charter().head.clone(), certificate: self.own.clone() }
    }

    /// Whether somebody who shows this is a member.
    pub(crate) fn recognise(&self, pass: &Pass) -> Result<(), Refusal> {
        if !pass.is_by(self.charter().owner()) || pass.certificate.seat() >= NO_JOIN_INDEX {
            return Err(Refusal::NoMember);
        }
        self.check(pass)
    }

    /// Whether what somebody has shown still counts.
    fn check(&self, pass: &Pass) -> Result<(), Refusal> {
        let (charter, certificate) = (self.charter(), &pass.certificate);
        if let Some(word) = charter.removal(certificate.key()) {
            return Err(Refusal::Removed(word));
        }
        if self.has_expired(certificate) {
            return Err(Refusal::Expired);
        }
        if pass.head.rank() < charter.head.rank() && !charter.keeps(certificate.key()) {
            return Err(Refusal::Outdated);
        }
        let claimed = certificate.peer();
        let is_another = |known: &Pass| known.certificate.key() != certificate.key();
        let known = self.members.get(&claimed).filter(|known| !self.has_expired(&known.certificate));
        if claimed == self.own.peer() || known.is_some_and(is_another) {
            return Err(Refusal::WrongKey { claimed });
        }
        Ok(())
    }

    /// Takes note of a member that was recognised.
    pub(crate) fn meet(&mut self, pass: &Pass) {
        let peer = pass.certificate.peer();
        if self.members.len() >= MAX_KEYS && !self.members.contains_key(&peer) {
            let first = self.members.iter().min_by_key(|(_, pass)| pass.certificate.expires()).map(|(peer, _)| *peer);
            first.and_then(|first| self.members.remove(&first));
        }
        self.members.insert(peer, pass.clone());
    }

    /// A member shows what it has been renewed to; whether that is right.
    pub(crate) fn on_renewed(&mut self, from: PeerId, pass: &Pass) -> bool {
        let is_right = pass.certificate.peer() == from && self.recognise(pass).is_ok();
        if is_right {
            self.meet(pass);
        }
        is_right
    }

    /// What a member has shown last.
    pub(crate) fn of(&self, peer: PeerId) -> Option<&Pass> {
        self.members.get(&peer)
    }

    /// The own certificate.
    pub(crate) fn own(&self) -> &Certificate {
        &self.own
    }

    /// Whether this member's certificate is no good any more, and why.
    pub(crate) fn objection(&self, peer: PeerId) -> Option<Refusal> {
        self.check(self.of(peer)?).err()
    }

    /// Renews the own certificate if half of its time is over; whether it did.
    pub(crate) fn renew(&mut self) -> bool {
        let now = self.clock.now();
        let is_due = self.own.expires() < now.saturating_add(LIFETIME / 2);
        if is_due {
            self.issue_own(now);
        }
        is_due
    }

    fn issue_own(&mut self, now: u64) {
        let (key, seat, since) = (*self.own.key(), self.own.seat(), self.own.since());
        self.own = Certificate::issue(&self.seal, (key, seat), since, now);
    }

    /// Lets somebody in who holds the ticket, and gives it a seat behind all that are taken.
    pub(crate) fn admit(
        &mut self,
        key: &PublicKey,
        taken: impl Iterator<Item = PeerId>,
    ) -> Result<Admission, NotAdmitted> {
        let now = self.clock.now();
        let limits = self.charter().limits();
        if self.charter().removal(key).is_some() {
            return Err(NotAdmitted::Removed);
        }
        if limits.ends.is_some_and(|ends| ends < now) {
            return Err(NotAdmitted::Ended);
        }
        if limits.uses.is_none() {
            // Nobody counts, so who never came need not be remembered.
            self.admitted.retain(|_, certificate| certificate.expires() >= now);
        }
        // Who asks twice is let in once.
        if !self.admitted.get(key).is_some_and(|certificate| certificate.expires() >= now) {
            let n_uses = self.admitted.len() - usize::from(self.admitted.contains_key(key));
            if let Some(uses) = limits.uses.filter(|uses| n_uses >= *uses as usize) {
                return Err(NotAdmitted::UsedUp { uses });
            }
            let seat = self.free_seat(taken).filter(|_| n_uses < MAX_KEYS).ok_or(NotAdmitted::Full)?;
            self.admitted.insert(*key, Certificate::issue(&self.seal, (*key, seat), now, now));
        }
        let certificate = self.admitted[key].clone();
        let admitted = self.admitted.values().cloned().collect();
        Ok(Admission { amendment: self.amendment.clone(), certificate, admitted })
    }

    fn free_seat(&self, taken: impl Iterator<Item = PeerId>) -> Option<u32> {
        let known =
            self.members.values().map(|pass| &pass.certificate).chain(self.admitted.values()).chain([&self.own]);
        let highest = known.map(Certificate::seat).chain(taken.map(PeerId::join_index)).max();
        highest.map_or(Some(0), |seat| seat.checked_add(1)).filter(|seat| *seat < NO_JOIN_INDEX)
    }

    /// Who was let in with the present ticket.
    pub(crate) fn all_admitted(&self) -> Vec<Certificate> {
        self.admitted.values().cloned().collect()
    }

    /// Whether it matters how many were let in.
    pub(crate) fn counts_uses(&self) -> bool {
        self.charter().limits().uses.is_some()
    }

    /// Others have let these in.
    pub(crate) fn on_admitted(&mut self, certificates: Vec<Certificate>) {
        let seal = self.seal.public();
        for certificate in certificates {
            let is_new = !self.admitted.contains_key(certificate.key()) && self.admitted.len() < MAX_KEYS;
            if is_new && certificate.seat() < NO_JOIN_INDEX && certificate.is_under(&seal) {
                self.admitted.insert(*certificate.key(), certificate);
            }
        }
    }

    /// The keys of all who belong here, whether they are reached at the moment or not.
    pub(crate) fn keys(&self) -> Vec<PublicKey> {
        let met = self.members.values().map(|pass| &pass.certificate);
        let all = met.chain(self.admitted.values()).chain([&self.own]);
        let mut keys: Vec<_> = all.filter(|each| !self.has_expired(each)).map(|each| *each.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Puts a later charter in force.
    pub(crate) fn adopt(&mut self, amendment: &Amendment) -> Adoption {
        let owner = *self.charter().owner();
        let Some(seal) = amendment.unlock(&owner) else { return Adoption::Unsound };
        if amendment.charter.head.rank() <= self.charter().head.rank() {
            return Adoption::Known;
        }
        if amendment.charter.removal(self.own.key()).is_some() {
            return Adoption::Removed;
        }
        (self.amendment, self.seal) = (amendment.clone(), seal);
        self.admitted.clear();
        self.issue_own(self.clock.now());
        Adoption::Adopted
    }

    /// Whether the owner has removed this very peer, as somebody says.
    pub(crate) fn is_removed(&self, word: &Signature) -> bool {
        is_removed(self.charter().owner(), self.own.key(), word)
    }

    fn has_expired(&self, certificate: &Certificate) -> bool {
        certificate.expires() < self.clock.now()
    }
}
