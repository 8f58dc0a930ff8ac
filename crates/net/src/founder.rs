//! The beginning of a swarm: its owner's key, its first policy, and the members who are there from the start.

use std::sync::Arc;

use crate::address::Address;
use crate::clock::Clock;
use crate::identity::{Identity, IdentityError};
use crate::keys::PrivateKey;
use crate::policy::{OwnerKey, PolicyUpdate, TicketLimits};
use crate::ticket::{Secret, Ticket, random_bytes};
use crate::trust_store::{NotAdmitted, TrustStore};

/// All keys of a swarm, as whoever starts it has them.
pub struct Founder {
    owner: OwnerKey,
    policy_update: PolicyUpdate,
    clock: Clock,
    /// From which the keys of members come, if they are to be the same every time.
    keys: Option<Secret>,
}

impl Founder {
    /// A new swarm, whose ticket has these limits.
    pub fn new(limits: TicketLimits) -> Self {
        Self::with(&Secret::random(), limits, Clock::System)
    }

    /// The swarm that comes of this secret: for processes that are told the secret and found the swarm together.
    pub fn from_secret(secret: &Secret) -> Self {
        Self::with(secret, TicketLimits::default(), Clock::System)
    }

    /// The same, whose ticket has these limits.
    pub fn from_secret_with(secret: &Secret, limits: TicketLimits) -> Self {
        Self::with(secret, limits, Clock::System)
    }

    /// The same swarm, for whose members this clock counts.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// A swarm that is all in this process, where nobody else can be. Its keys are the same every time and so are its members' names,
    /// so that a run is the same every time; no time passes for it.
    pub fn within_process() -> Self {
        let secret = Secret::from_bytes([0; 32]);
        let swarm = Self::with(&secret, TicketLimits::default(), Clock::Set(Arc::default()));
        Self { keys: Some(secret), ..swarm }
    }

    fn with(secret: &Secret, limits: TicketLimits, clock: Clock) -> Self {
        let owner = OwnerKey::from_seed(&secret.derive("owner"));
        let derived = |purpose| Secret::from_bytes(secret.derive(purpose));
        let policy_update = owner.found(derived("issuer"), derived("admission"), limits);
        Self { owner, policy_update, clock, keys: None }
    }

    /// The key that decides about the swarm.
    pub fn owner(&self) -> &OwnerKey {
        &self.owner
    }

    /// One who is there from the start, with this join index.
    pub fn member(&self, join_index: u32) -> Result<Identity, IdentityError> {
        let (key, owner) = (self.key(join_index), self.owner.public());
        let trust_store =
            TrustStore::found(&self.policy_update, &owner, (key.public(), join_index), self.clock.clone());
        Identity::member(key, trust_store.ok_or(NotAdmitted::Unsound)?)
    }

    /// One who holds the ticket. Where keys are the same every time, the number tells visitors apart.
    pub fn visitor(&self, number: u32) -> Result<Identity, IdentityError> {
        Identity::visitor_with(self.key(number), &self.ticket(Vec::new()), self.clock.clone())
    }

    /// The ticket with which others ask to be let in, at these addresses.
    pub fn ticket(&self, addresses: Vec<Address>) -> Ticket {
        self.policy_update.ticket(addresses)
    }

    fn key(&self, number: u32) -> PrivateKey {
        let derived = self.keys.as_ref().map(|keys| keys.derive(&format!("peer {number}")));
        PrivateKey::from_seed(&derived.unwrap_or_else(random_bytes))
    }
}
