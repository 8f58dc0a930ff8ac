//! Who a peer is: whoever holds its private key. What it may do follows from what it can show besides: a member its certificate,
//! anybody else that it knows a ticket's secret.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nettorrent_swarm::view::PeerId;
use ring::hmac;

use crate::address::Address;
use crate::certificate::Pass;
use crate::clock::Clock;
use crate::key_tls::TlsKeys;
use crate::keys::{PrivateKey, PublicKey, Signature};
use crate::refusal::Refusal;
use crate::ticket::{Secret, SwarmId, Ticket, random_bytes};
use crate::trust_store::{Admission, NO_JOIN_INDEX, NotAdmitted, TrustStore};

const PROOF: &str = "handshake";

/// A peer's name and keys, for as long as its process lives. Clones are the same peer.
#[derive(Clone)]
pub struct Identity {
    /// Its name: a join index, and a part of its key.
    pub peer: PeerId,
    key: Arc<PrivateKey>,
    trust: Trust,
    pub(crate) tls: TlsKeys,
}

#[derive(Clone)]
enum Trust {
    Member(Arc<Mutex<TrustStore>>),
    Visitor(Arc<Visit>),
}

/// What who holds a ticket knows of a swarm.
struct Visit {
    secret: Secret,
    owner: PublicKey,
    /// Policies with a lower number do not count any more.
    number: u32,
    clock: Clock,
}

/// A key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// TLS cannot use it.
    #[error("TLS could not be set up with this peer's key: {0}")]
    Tls(#[from] rustls::Error),
    /// The keys of a swarm do not fit together.
    #[error(transparent)]
    Unsound(#[from] NotAdmitted),
}

impl Identity {
    /// A fresh key, for who asks a swarm something.
    pub fn visitor(ticket: &Ticket) -> Result<Self, IdentityError> {
        Self::visitor_with(PrivateKey::from_seed(&random_bytes()), ticket, Clock::System)
    }

    pub(crate) fn visitor_with(key: PrivateKey, ticket: &Ticket, clock: Clock) -> Result<Self, IdentityError> {
        let Ticket { secret, owner, number, .. } = ticket.clone();
        let trust = Trust::Visitor(Arc::new(Visit { secret, owner, number, clock }));
        let peer = key.public().named(NO_JOIN_INDEX);
        Ok(Self { peer, tls: TlsKeys::new(&key)?, key: Arc::new(key), trust })
    }

    pub(crate) fn member(key: PrivateKey, trust_store: TrustStore) -> Result<Self, IdentityError> {
        let peer = trust_store.own().peer();
        let trust = Trust::Member(Arc::new(Mutex::new(trust_store)));
        Ok(Self { peer, tls: TlsKeys::new(&key)?, key: Arc::new(key), trust })
    }

    /// The present ticket of the swarm, which names these addresses; none for who is no member.
    pub fn ticket(&self, addresses: Vec<Address>) -> Option<Ticket> {
        Some(self.trust_store()?.policy_update().ticket(addresses))
    }

    /// The same key, as the member that it is from now on.
    pub fn admitted(&self, admission: &Admission) -> Result<Self, NotAdmitted> {
        let Trust::Visitor(visit) = &self.trust else { return Ok(self.clone()) };
        let is_present = admission.policy_update.policy.number() >= visit.number;
        let trust_store = TrustStore::admitted(admission, &visit.owner, &self.key(), visit.clock.clone());
        let trust_store = trust_store.filter(|_| is_present).ok_or(NotAdmitted::Unsound)?;
        let peer = trust_store.own().peer();
        Ok(Self { peer, trust: Trust::Member(Arc::new(Mutex::new(trust_store))), ..self.clone() })
    }

    /// The swarm that it belongs to.
    pub fn swarm(&self) -> SwarmId {
        SwarmId::of_owner(&self.owner())
    }

    /// Its public key.
    pub(crate) fn key(&self) -> PublicKey {
        self.key.public()
    }

    fn owner(&self) -> PublicKey {
        match &self.trust {
            Trust::Member(trust_store) => *lock(trust_store).policy().owner(),
            Trust::Visitor(visit) => visit.owner,
        }
    }

    /// What a member knows; nothing if this is none.
    pub(crate) fn trust_store(&self) -> Option<MutexGuard<'_, TrustStore>> {
        match &self.trust {
            Trust::Member(trust_store) => Some(lock(trust_store)),
            Trust::Visitor(_) => None,
        }
    }

    /// Whether somebody who shows this is a member of the swarm.
    pub(crate) fn recognise(&self, pass: &Pass) -> Result<(), Refusal> {
        match &self.trust {
            Trust::Member(trust_store) => lock(trust_store).recognise(pass),
            Trust::Visitor(visit) if !pass.is_by(&visit.owner) || pass.head.number() < visit.number => {
                Err(Refusal::NoMember)
            }
            Trust::Visitor(visit) if pass.certificate.expires() < visit.clock.now() => Err(Refusal::Expired),
            Trust::Visitor(_) => Ok(()),
        }
    }

    /// Takes note of a member with whom there is a connection.
    pub(crate) fn meet(&self, pass: &Pass) {
        if let Some(mut trust_store) = self.trust_store() {
            trust_store.meet(pass);
        }
    }

    /// Signs what was said in a handshake.
    pub(crate) fn sign(&self, transcript: &[u8]) -> Signature {
        self.key.sign(PROOF, &transcript)
    }

    /// Shows that the ticket's secret is known to who says this.
    pub(crate) fn authenticate(&self, transcript: &[u8]) -> [u8; 32] {
        let mut code = [0; 32];
        code.copy_from_slice(hmac::sign(&self.ticket_key(), transcript).as_ref());
        code
    }

    /// Whether somebody has shown that it knows the ticket's secret.
    pub(crate) fn is_authentic(&self, transcript: &[u8], code: &[u8; 32]) -> bool {
        hmac::verify(&self.ticket_key(), transcript, code).is_ok()
    }

    fn ticket_key(&self) -> hmac::Key {
        let derive = |secret: &Secret| secret.derive::<32>("handshake");
        let key = match &self.trust {
            Trust::Member(trust_store) => derive(lock(trust_store).admission()),
            Trust::Visitor(visit) => derive(&visit.secret),
        };
        hmac::Key::new(hmac::HMAC_SHA256, &key)
    }
}

/// Whether the holder of a key has signed what was said in a handshake.
pub(crate) fn has_signed(key: &PublicKey, transcript: &[u8], signature: &Signature) -> bool {
    key.has_signed(PROOF, &transcript, signature)
}

fn lock(trust_store: &Mutex<TrustStore>) -> MutexGuard<'_, TrustStore> {
    trust_store.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("peer", &self.peer).field("swarm", &self.swarm()).finish_non_exhaustive()
    }
}
