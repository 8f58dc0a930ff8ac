//! What a member knows about who belongs to its swarm: the policy, its own certificate and those of others.
//!
//! Nothing here knows of links or views. Whoever has a link asks here whether it may be, and hands in what members tell each other.

use std::collections::BTreeMap;

use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use crate::certificate::{Certificate, LIFETIME, Pass};
use crate::clock::Clock;
use crate::keys::{PrivateKey, PublicKey, Signature};
use crate::policy::{MAX_KEYS, Policy, PolicyUpdate, is_removed};
use crate::refusal::Refusal;
use crate::ticket::Secret;

/// The join index in the name of those who have none: joiners and observers.
pub const NO_JOIN_INDEX: u32 = (1 << 24) - 1;

/// What a newcomer is given: from then on it is a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    pub(crate) policy_update: PolicyUpdate,
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

/// What a policy that was handed in comes to.
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
pub(crate) struct TrustStore {
    clock: Clock,
    policy_update: PolicyUpdate,
    issuer: PrivateKey,
    own: Certificate,
    /// Members that were met.
    members: BTreeMap<PeerId, Pass>,
    /// Who was let in with the present ticket.
    admitted: BTreeMap<PublicKey, Certificate>,
}

impl TrustStore {
    /// The trust store of who founds a swarm, or was there when it was founded.
    pub(crate) fn found(
        policy_update: &PolicyUpdate,
        owner: &PublicKey,
        own: (PublicKey, u32),
        clock: Clock,
    ) -> Option<Self> {
        let issuer = policy_update.unlock(owner)?;
        let now = clock.now();
        let own = Certificate::issue(&issuer, own, now, now);
        let policy_update = policy_update.clone();
        Some(Self { clock, policy_update, issuer, own, members: BTreeMap::new(), admitted: BTreeMap::new() })
    }

    /// The trust store of a newcomer.
    pub(crate) fn admitted(admission: &Admission, owner: &PublicKey, key: &PublicKey, clock: Clock) -> Option<Self> {
        let Admission { policy_update, certificate, admitted } = admission;
        let issuer = policy_update.unlock(owner)?;
        let is_own = certificate.key() == key && certificate.join_index() < NO_JOIN_INDEX;
        if !is_own || !certificate.is_under(&issuer.public()) {
            return None;
        }
        let (policy_update, own) = (policy_update.clone(), certificate.clone());
        let mut trust_store =
            Self { clock, policy_update, issuer, own, members: BTreeMap::new(), admitted: BTreeMap::new() };
        trust_store.on_admitted(admitted.iter().chain([certificate]).cloned().collect());
        Some(trust_store)
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy_update.policy
    }

    /// All of the policy in force, for other members.
    pub(crate) fn policy_update(&self) -> &PolicyUpdate {
        &self.policy_update
    }

    /// What tickets hold.
    pub(crate) fn admission(&self) -> &Secret {
        &self.policy_update.admission
    }

    /// What this member shows.
    pub(crate) fn pass(&self) -> Pass {
        Pass { head: self.policy().head.clone(), certificate: self.own.clone() }
    }

    /// Whether somebody who shows this is a member.
    pub(crate) fn recognise(&self, pass: &Pass) -> Result<(), Refusal> {
        if !pass.is_by(self.policy().owner()) || pass.certificate.join_index() >= NO_JOIN_INDEX {
            return Err(Refusal::NoMember);
        }
        self.check(pass)
    }

    /// Whether what somebody has shown still counts.
    fn check(&self, pass: &Pass) -> Result<(), Refusal> {
        let (policy, certificate) = (self.policy(), &pass.certificate);
        if let Some(word) = policy.removal(certificate.key()) {
            return Err(Refusal::Removed(word));
        }
        if self.has_expired(certificate) {
            return Err(Refusal::Expired);
        }
        if pass.head.rank() < policy.head.rank() && !policy.keeps(certificate.key()) {
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
        let (key, join_index, since) = (*self.own.key(), self.own.join_index(), self.own.since());
        self.own = Certificate::issue(&self.issuer, (key, join_index), since, now);
    }

    /// Lets somebody in who holds the ticket, and gives it a join index behind all that are taken.
    pub(crate) fn admit(
        &mut self,
        key: &PublicKey,
        taken: impl Iterator<Item = PeerId>,
    ) -> Result<Admission, NotAdmitted> {
        let now = self.clock.now();
        let limits = self.policy().limits();
        if self.policy().removal(key).is_some() {
            return Err(NotAdmitted::Removed);
        }
        if limits.have_ended(now) {
            return Err(NotAdmitted::Ended);
        }
        if limits.uses.is_none() {
            // Nobody counts, so who never came need not be remembered.
            self.admitted.retain(|_, certificate| certificate.expires() >= now);
        }
        // Who asks twice is let in once.
        if self.admitted.get(key).is_none_or(|certificate| certificate.expires() < now) {
            let n_uses = self.admitted.len() - usize::from(self.admitted.contains_key(key));
            if let Some(uses) = limits.uses.filter(|uses| n_uses >= *uses as usize) {
                return Err(NotAdmitted::UsedUp { uses });
            }
            let join_index = self.free_join_index(taken).filter(|_| n_uses < MAX_KEYS).ok_or(NotAdmitted::Full)?;
            self.admitted.insert(*key, Certificate::issue(&self.issuer, (*key, join_index), now, now));
        }
        let certificate = self.admitted[key].clone();
        let admitted = self.admitted.values().cloned().collect();
        Ok(Admission { policy_update: self.policy_update.clone(), certificate, admitted })
    }

    fn free_join_index(&self, taken: impl Iterator<Item = PeerId>) -> Option<u32> {
        let known =
            self.members.values().map(|pass| &pass.certificate).chain(self.admitted.values()).chain([&self.own]);
        let highest = known.map(Certificate::join_index).chain(taken.map(PeerId::join_index)).max();
        highest.map_or(Some(0), |join_index| join_index.checked_add(1)).filter(|join_index| *join_index < NO_JOIN_INDEX)
    }

    /// Who was let in with the present ticket.
    pub(crate) fn all_admitted(&self) -> Vec<Certificate> {
        self.admitted.values().cloned().collect()
    }

    /// Whether it matters how many were let in.
    pub(crate) fn counts_uses(&self) -> bool {
        self.policy().limits().uses.is_some()
    }

    /// Others have let these in.
    pub(crate) fn on_admitted(&mut self, certificates: Vec<Certificate>) {
        let issuer = self.issuer.public();
        for certificate in certificates {
            if self.admitted.contains_key(certificate.key()) {
                continue;
            }
            // If one is not of the present issuer key none is, as who has sent them may not have heard of it yet. To look at all of
            // them would take long.
            let is_sound = certificate.join_index() < NO_JOIN_INDEX && certificate.is_under(&issuer);
            if !is_sound || self.admitted.len() >= MAX_KEYS {
                return;
            }
            self.admitted.insert(*certificate.key(), certificate);
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

    /// Puts a later policy in force.
    pub(crate) fn adopt(&mut self, policy_update: &PolicyUpdate) -> Adoption {
        if policy_update.policy.head.rank() <= self.policy().head.rank() {
            return Adoption::Known;
        }
        let Some(issuer) = policy_update.unlock(self.policy().owner()) else { return Adoption::Unsound };
        if policy_update.policy.removal(self.own.key()).is_some() {
            return Adoption::Removed;
        }
        (self.policy_update, self.issuer) = (policy_update.clone(), issuer);
        self.admitted.clear();
        self.issue_own(self.clock.now());
        Adoption::Adopted
    }

    /// Whether the owner has removed this very peer, as somebody says.
    pub(crate) fn is_removed(&self, word: &Signature) -> bool {
        is_removed(self.policy().owner(), self.own.key(), word)
    }

    fn has_expired(&self, certificate: &Certificate) -> bool {
        certificate.expires() < self.clock.now()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::{Admission, Adoption, NotAdmitted, TrustStore};
    use crate::certificate::{Certificate, LIFETIME, Pass};
    use crate::clock::Clock;
    use crate::keys::{PrivateKey, PublicKey};
    use crate::policy::{OwnerKey, PolicyUpdate, TicketLimits};
    use crate::refusal::Refusal;
    use crate::ticket::Secret;
    use nettorrent_swarm::view::PeerId;

    fn owner() -> OwnerKey {
        OwnerKey::from_seed(&[1; 32])
    }

    fn key(n: u8) -> PublicKey {
        PrivateKey::from_seed(&[n; 32]).public()
    }

    fn founded(limits: TicketLimits) -> PolicyUpdate {
        owner().found(Secret::from_bytes([2; 32]), Secret::from_bytes([3; 32]), limits)
    }

    /// A swarm's founder with the key 10, and its clock.
    fn founder(limits: TicketLimits) -> (TrustStore, Arc<AtomicU64>) {
        let now = Arc::new(AtomicU64::new(1_000_000));
        let clock = Clock::Set(now.clone());
        (TrustStore::found(&founded(limits), &owner().public(), (key(10), 0), clock).unwrap(), now)
    }

    fn admit(trust_store: &mut TrustStore, n: u8) -> Result<Admission, NotAdmitted> {
        trust_store.admit(&key(n), std::iter::empty())
    }

    fn join(trust_store: &mut TrustStore, n: u8) -> TrustStore {
        let admission = admit(trust_store, n).unwrap();
        TrustStore::admitted(&admission, &owner().public(), &key(n), trust_store.clock.clone()).unwrap()
    }

    #[test]
    fn newcomers_get_join_indices_behind_all_that_are_taken_or_promised_and_one_each() {
        let (mut trust_store, _) = founder(TicketLimits::default());
        let mut join_index = |n, taken: &[u32]| {
            let taken = taken.iter().map(|join_index| PeerId::new(*join_index, 7));
            trust_store.admit(&key(n), taken).unwrap().certificate.join_index()
        };
        assert_eq!(join_index(11, &[]), 1);
        assert_eq!(join_index(12, &[7]), 8);
        assert_eq!(join_index(13, &[]), 9);
        assert_eq!(join_index(11, &[]), 1, "who asks again");
    }

    #[test]
    fn who_was_let_in_is_recognised_and_nobody_else() {
        let (mut trust_store, now) = founder(TicketLimits::default());
        let newcomer = join(&mut trust_store, 11);
        let pass = newcomer.pass();
        assert_eq!(trust_store.recognise(&pass), Ok(()));
        assert_eq!(newcomer.recognise(&trust_store.pass()), Ok(()));
        // With another issuer key, whoever made it.
        let certificate = Certificate::issue(&PrivateKey::from_seed(&[9; 32]), (key(11), 1), 0, 1_000_000);
        assert_eq!(trust_store.recognise(&Pass { certificate, ..pass.clone() }), Err(Refusal::NoMember));
        let other = OwnerKey::from_seed(&[8; 32]).found(Secret::random(), Secret::random(), TicketLimits::default());
        let other =
            TrustStore::found(&other, &OwnerKey::from_seed(&[8; 32]).public(), (key(11), 1), Clock::System).unwrap();
        assert_eq!(trust_store.recognise(&other.pass()), Err(Refusal::NoMember));
        now.fetch_add(LIFETIME + 1, Ordering::Relaxed);
        assert_eq!(trust_store.recognise(&pass), Err(Refusal::Expired));
    }

    #[test]
    fn a_name_belongs_to_the_key_that_was_met_under_it() {
        let (mut trust_store, _) = founder(TicketLimits::default());
        let pass = join(&mut trust_store, 11).pass();
        trust_store.meet(&pass);
        // Another key in the same place, as if its 40 bits were the same.
        let impostor = join(&mut trust_store, 12).pass();
        trust_store.members.insert(impostor.certificate.peer(), pass);
        let claimed = impostor.certificate.peer();
        assert_eq!(trust_store.recognise(&impostor), Err(Refusal::WrongKey { claimed }));
    }

    #[test]
    fn a_certificate_is_renewed_when_half_of_its_time_is_over_and_keeps_its_join_index() {
        let (mut trust_store, now) = founder(TicketLimits::default());
        let mut newcomer = join(&mut trust_store, 11);
        let first = newcomer.pass();
        trust_store.meet(&first);
        assert!(!newcomer.renew());
        now.fetch_add(LIFETIME / 2 + 1, Ordering::Relaxed);
        assert!(newcomer.renew() && !newcomer.renew());
        let renewed = newcomer.pass();
        assert_eq!(renewed.certificate.peer(), first.certificate.peer());
        assert_eq!(renewed.certificate.since(), first.certificate.since());
        assert!(trust_store.on_renewed(first.certificate.peer(), &renewed));
        now.fetch_add(LIFETIME / 2, Ordering::Relaxed);
        assert_eq!(trust_store.objection(first.certificate.peer()), None);
        assert!(!trust_store.on_renewed(trust_store.own().peer(), &renewed), "another's");
        now.fetch_add(LIFETIME, Ordering::Relaxed);
        assert_eq!(trust_store.objection(first.certificate.peer()), Some(Refusal::Expired));
    }

    #[test]
    fn a_ticket_is_good_so_often_and_so_long_whoever_lets_in() {
        let limits = TicketLimits { uses: Some(2), ends: Some(1_000_100) };
        let (mut one, now) = founder(limits);
        let mut other = join(&mut one, 11);
        let third = admit(&mut other, 12).unwrap();
        assert_eq!(admit(&mut other, 13), Err(NotAdmitted::UsedUp { uses: 2 }));
        // What the other has done is heard later, and counts.
        one.on_admitted(vec![third.certificate.clone()]);
        assert_eq!(admit(&mut one, 13), Err(NotAdmitted::UsedUp { uses: 2 }));
        assert_eq!(admit(&mut one, 12).unwrap().certificate, third.certificate);
        now.fetch_add(101, Ordering::Relaxed);
        assert_eq!(admit(&mut one, 12), Err(NotAdmitted::Ended));
    }

    #[test]
    fn only_certificates_of_the_seal_count_as_uses() {
        let (mut trust_store, _) = founder(TicketLimits { uses: Some(1), ends: None });
        let forged = Certificate::issue(&PrivateKey::from_seed(&[9; 32]), (key(11), 1), 0, 1_000_000);
        trust_store.on_admitted(vec![forged]);
        assert!(admit(&mut trust_store, 12).is_ok());
    }

    #[test]
    fn who_is_removed_is_out_with_all_that_it_could_sign_and_the_others_stay() {
        let (mut one, _) = founder(TicketLimits::default());
        let (mut other, mut removed) = (join(&mut one, 11), join(&mut one, 12));
        for pass in [other.pass(), removed.pass()] {
            one.meet(&pass);
        }
        let policy_update = owner().amend(one.policy(), one.keys(), &[key(12)], TicketLimits::default());
        let (before, sybil) = (other.pass(), join(&mut removed, 13).pass());
        assert_eq!(one.recognise(&sybil), Ok(()), "as long as nobody is removed, every member may let others in");
        assert_eq!(one.adopt(&policy_update), Adoption::Adopted);
        assert_eq!(one.adopt(&policy_update), Adoption::Known);
        let word = match one.recognise(&removed.pass()) {
            Err(Refusal::Removed(word)) => word,
            other => panic!("{other:?}"),
        };
        assert!(removed.is_removed(&word) && !other.is_removed(&word));
        assert_eq!(one.recognise(&sybil), Err(Refusal::Outdated));
        assert_eq!(removed.adopt(&policy_update), Adoption::Removed);
        // Who has not heard of it yet is kept, and recognises who has.
        assert_eq!(one.recognise(&before), Ok(()));
        assert_eq!(other.recognise(&one.pass()), Ok(()));
        assert_eq!(other.adopt(&policy_update), Adoption::Adopted);
        assert_eq!(one.recognise(&other.pass()), Ok(()));
        assert_eq!(admit(&mut one, 12), Err(NotAdmitted::Removed));
        assert!(other.pass().certificate.join_index() == before.certificate.join_index());
    }

    #[test]
    fn what_the_owner_has_not_signed_changes_nothing() {
        let (mut trust_store, _) = founder(TicketLimits::default());
        let stranger = OwnerKey::from_seed(&[8; 32]);
        let forged = stranger.amend(trust_store.policy(), trust_store.keys(), &[key(10)], TicketLimits::default());
        assert_eq!(trust_store.adopt(&forged), Adoption::Unsound);
        assert_eq!(trust_store.policy().number(), 1);
    }

    #[test]
    fn an_admission_for_another_key_or_by_another_owner_is_refused() {
        let (mut trust_store, _) = founder(TicketLimits::default());
        let admission = admit(&mut trust_store, 11).unwrap();
        let admitted = |owner: PublicKey, own| TrustStore::admitted(&admission, &owner, &own, Clock::System).is_some();
        assert!(admitted(owner().public(), key(11)));
        assert!(!admitted(owner().public(), key(12)) && !admitted(key(8), key(11)));
    }
}
