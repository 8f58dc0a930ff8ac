//! A swarm's policy: what its owner has decided about keys and tickets, and has signed.
//!
//! ```text
//! owner's key ── signs ── policy: number, the issuer key's public half, which ticket is good, who is kept, who is removed
//!                             │
//!                    issuer key (members hold it) ── signs ── certificate: a member's key, its join index, when it expires
//! ```
//!
//! A policy with a higher number replaces one with a lower. With it comes another issuer key and another admission secret, so what was
//! signed or given away before counts only for those whom the new policy keeps.

use data_encoding::BASE32_NOPAD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::address::Address;
use crate::keys::{PrivateKey, PublicKey, Signature, sha256};
use crate::ticket::{Secret, Ticket};

/// The most keys that a policy keeps, and the most that it removes.
pub(crate) const MAX_KEYS: usize = 4096;

/// How the text of an owner's key begins; the number is its version.
const OWNER_PREFIX: &str = "nt-owner1";

const POLICY: &str = "policy";
const REMOVAL: &str = "removal";

/// How long a ticket is good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketLimits {
    /// How many may join with it; any number if nothing is said.
    pub uses: Option<u32>,
    /// Until when, in seconds since 1970; for ever if nothing is said.
    pub ends: Option<u64>,
}

impl TicketLimits {
    /// Whether its time is over, in seconds since 1970.
    pub fn have_ended(&self, now: u64) -> bool {
        self.ends.is_some_and(|ends| ends < now)
    }
}

/// A policy's beginning, which is enough to check certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyHead {
    statement: Statement,
    signature: Signature,
}

/// What an owner signs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Statement {
    owner: PublicKey,
    number: u32,
    issuer: PublicKey,
    /// The SHA-256 of the rest.
    rest: [u8; 32],
}

impl PolicyHead {
    /// Whether this owner has signed it.
    pub(crate) fn is_by(&self, owner: &PublicKey) -> bool {
        self.statement.owner == *owner && owner.has_signed(POLICY, &self.statement, &self.signature)
    }

    pub(crate) fn number(&self) -> u32 {
        self.statement.number
    }

    pub(crate) fn issuer(&self) -> &PublicKey {
        &self.statement.issuer
    }

    /// Of two policies the one of higher rank is in force; the issuer key decides only if an owner has signed two of one number.
    pub(crate) fn rank(&self) -> (u32, &PublicKey) {
        (self.statement.number, &self.statement.issuer)
    }
}

/// What the owner of a swarm has decided. Nothing in it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) head: PolicyHead,
    rest: Rest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Rest {
    /// What shows which admission secret is meant, and does not give it away.
    ticket: [u8; 32],
    limits: TicketLimits,
    /// Members whose certificates of earlier policies still count.
    kept: Vec<PublicKey>,
    /// Who can never come back, and the owner's signature of that.
    removed: Vec<(PublicKey, Signature)>,
}

impl Rest {
    fn hash(&self) -> [u8; 32] {
        sha256(&postcard::to_allocvec(self).expect("plain data can be written"))
    }
}

impl Policy {
    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.head.number()
    }

    pub(crate) fn owner(&self) -> &PublicKey {
        &self.head.statement.owner
    }

    pub(crate) fn limits(&self) -> TicketLimits {
        self.rest.limits
    }

    pub(crate) fn keeps(&self, key: &PublicKey) -> bool {
        self.rest.kept.binary_search(key).is_ok()
    }

    /// The owner's signature that a key is removed, if it is.
    pub(crate) fn removal(&self, key: &PublicKey) -> Option<Signature> {
        self.rest.removed.iter().find(|(removed, _)| removed == key).map(|(_, signature)| *signature)
    }

    /// Whether it is what this owner has signed, whole and of a size that makes sense.
    pub(crate) fn is_sound(&self, owner: &PublicKey) -> bool {
        let Rest { kept, removed, .. } = &self.rest;
        kept.len() <= MAX_KEYS
            && removed.len() <= MAX_KEYS
            && kept.is_sorted()
            && self.rest.hash() == self.head.statement.rest
            && self.head.is_by(owner)
    }
}

/// Whether a swarm's owner has removed this key.
pub(crate) fn is_removed(owner: &PublicKey, key: &PublicKey, signature: &Signature) -> bool {
    owner.has_signed(REMOVAL, &(owner, key), signature)
}

/// A policy with the secrets that belong to it. Only members get to see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyUpdate {
    pub(crate) policy: Policy,
    /// From which the issuer key is made.
    issuer: Secret,
    /// What tickets hold.
    pub(crate) admission: Secret,
}

impl PolicyUpdate {
    /// The ticket with which others ask to be let in, at these addresses.
    pub(crate) fn ticket(&self, addresses: Vec<Address>) -> Ticket {
        let Self { policy, admission, .. } = self;
        Ticket { secret: admission.clone(), owner: *policy.owner(), number: policy.number(), addresses }
    }

    /// The issuer key, if all this is this owner's and fits together.
    pub(crate) fn unlock(&self, owner: &PublicKey) -> Option<PrivateKey> {
        let issuer = PrivateKey::from_seed(self.issuer.bytes());
        let is_sound = self.policy.is_sound(owner)
            && issuer.public() == *self.policy.head.issuer()
            && self.admission.derive::<32>("ticket") == self.policy.rest.ticket;
        is_sound.then_some(issuer)
    }
}

/// The key that decides about a swarm; only who started it has it.
#[derive(Debug)]
pub struct OwnerKey(PrivateKey);

impl OwnerKey {
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        Self(PrivateKey::from_seed(seed))
    }

    /// It as a line of text, for a file that nobody else may read.
    pub fn to_text(&self) -> Zeroizing<String> {
        let seed = self.0.seed();
        let content = Zeroizing::new([&seed[..], &checksum(seed)].concat());
        Zeroizing::new(format!("{OWNER_PREFIX}{}", BASE32_NOPAD.encode(&content).to_ascii_lowercase()))
    }

    /// What [`to_text`](Self::to_text) has written; none if it is something else, or damaged.
    pub fn from_text(text: &str) -> Option<Self> {
        let letters = Zeroizing::new(text.trim().strip_prefix(OWNER_PREFIX)?.to_ascii_uppercase());
        let content = Zeroizing::new(BASE32_NOPAD.decode(letters.as_bytes()).ok()?);
        let (seed, found) = content.split_first_chunk::<32>()?;
        (found == checksum(seed)).then(|| Self::from_seed(seed))
    }

    /// Its public half, by which the swarm is known.
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// The first policy, with these secrets.
    pub(crate) fn found(&self, issuer: Secret, admission: Secret, limits: TicketLimits) -> PolicyUpdate {
        self.sign(1, issuer, admission, Rest { ticket: [0; 32], limits, kept: Vec::new(), removed: Vec::new() })
    }

    /// The policy after this one: with fresh secrets, for these members without those who are removed.
    pub(crate) fn amend(
        &self,
        policy: &Policy,
        members: impl IntoIterator<Item = PublicKey>,
        removed: &[PublicKey],
        limits: TicketLimits,
    ) -> PolicyUpdate {
        let owner = self.public();
        let mut all_removed = policy.rest.removed.clone();
        for key in removed.iter().filter(|key| policy.removal(key).is_none()) {
            all_removed.push((*key, self.0.sign(REMOVAL, &(owner, key))));
        }
        let is_removed = |key: &PublicKey| all_removed.iter().any(|(removed, _)| removed == key);
        let mut kept: Vec<PublicKey> = members.into_iter().filter(|key| !is_removed(key)).collect();
        kept.sort_unstable();
        kept.dedup();
        let rest = Rest { ticket: [0; 32], limits, kept, removed: all_removed };
        self.sign(policy.number().saturating_add(1), Secret::random(), Secret::random(), rest)
    }

    fn sign(&self, number: u32, issuer: Secret, admission: Secret, rest: Rest) -> PolicyUpdate {
        let rest = Rest { ticket: admission.derive("ticket"), ..rest };
        let seal_key = PrivateKey::from_seed(issuer.bytes()).public();
        let statement = Statement { owner: self.public(), number, issuer: seal_key, rest: rest.hash() };
        let signature = self.0.sign(POLICY, &statement);
        PolicyUpdate { policy: Policy { head: PolicyHead { statement, signature }, rest }, issuer, admission }
    }
}

/// Tells a damaged key from a whole one, and nothing about the key.
fn checksum(seed: &[u8; 32]) -> [u8; 4] {
    let mut checksum = [0; 4];
    checksum.copy_from_slice(&sha256(&[b"owner key".as_slice(), seed].concat())[..4]);
    checksum
}

#[cfg(test)]
mod tests {
    use super::{MAX_KEYS, OwnerKey, PolicyUpdate, TicketLimits, is_removed};
    use crate::keys::{PrivateKey, PublicKey};
    use crate::ticket::Secret;

    fn owner() -> OwnerKey {
        OwnerKey::from_seed(&[1; 32])
    }

    fn founded() -> PolicyUpdate {
        owner().found(Secret::from_bytes([2; 32]), Secret::from_bytes([3; 32]), TicketLimits::default())
    }

    fn key(n: u8) -> PublicKey {
        PrivateKey::from_seed(&[n; 32]).public()
    }

    #[test]
    fn only_what_the_owner_has_signed_counts_and_only_whole() {
        let good = founded();
        assert!(good.unlock(&owner().public()).is_some());
        assert!(good.unlock(&key(9)).is_none());
        let mut changed = good.clone();
        changed.policy.rest.limits.uses = Some(7);
        assert!(changed.unlock(&owner().public()).is_none());
        let mut changed = good.clone();
        changed.policy.head.statement.number = 2;
        assert!(changed.unlock(&owner().public()).is_none());
        let other_seal = PolicyUpdate { issuer: Secret::from_bytes([4; 32]), ..good.clone() };
        assert!(other_seal.unlock(&owner().public()).is_none());
        let other_ticket = PolicyUpdate { admission: Secret::from_bytes([4; 32]), ..good };
        assert!(other_ticket.unlock(&owner().public()).is_none());
    }

    #[test]
    fn a_removed_key_is_never_kept_again_and_can_see_the_owners_word_for_it() {
        let first = founded();
        let second = owner().amend(&first.policy, [key(5), key(6)], &[key(6)], TicketLimits::default());
        assert!(second.unlock(&owner().public()).is_some());
        assert_eq!(second.policy.number(), 2);
        assert!(second.policy.keeps(&key(5)) && !second.policy.keeps(&key(6)));
        let third = owner().amend(&second.policy, [key(5), key(6)], &[], TicketLimits::default());
        assert!(!third.policy.keeps(&key(6)));
        let word = third.policy.removal(&key(6)).unwrap();
        assert!(is_removed(&owner().public(), &key(6), &word));
        assert!(!is_removed(&owner().public(), &key(5), &word) && !is_removed(&key(7), &key(6), &word));
        assert_ne!((&first.issuer, &first.admission), (&second.issuer, &second.admission));
    }

    #[test]
    fn an_owners_key_comes_back_from_its_text_unless_that_is_damaged() {
        let text = owner().to_text();
        assert_eq!(OwnerKey::from_text(&format!("{}\n", *text)).unwrap().public(), owner().public());
        assert!(OwnerKey::from_text(&text[..text.len() - 1]).is_none());
        assert!(OwnerKey::from_text(&text.replacen('a', "b", 1)).is_none());
        assert!(OwnerKey::from_text("nt-owner1").is_none() && OwnerKey::from_text("").is_none());
    }

    #[test]
    fn a_ticket_is_good_through_its_last_second_or_for_ever() {
        let until = |ends| TicketLimits { ends, ..TicketLimits::default() };
        assert!(until(Some(7)).have_ended(8) && !until(Some(7)).have_ended(7));
        assert!(!until(None).have_ended(u64::MAX));
    }

    #[test]
    fn a_charter_of_senseless_size_is_refused_whoever_signed_it() {
        let keys = |n: usize| (0..n).map(|n| PublicKey([n.to_le_bytes(); 4].concat().try_into().unwrap()));
        let most = owner().amend(&founded().policy, keys(MAX_KEYS), &[], TicketLimits::default());
        assert!(most.policy.is_sound(&owner().public()));
        let more = owner().amend(&founded().policy, keys(MAX_KEYS + 1), &[], TicketLimits::default());
        assert!(!more.policy.is_sound(&owner().public()));
    }
}
