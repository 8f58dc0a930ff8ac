//! A swarm's members, as whoever holds its ticket sees them and as its owner changes them.

use std::sync::Arc;

use nettorrent_swarm::PeerId;
use serde::Serialize;

use crate::address::Address;
use crate::ask::{AskError, ask, ask_any, find_addresses};
use crate::handshake::{Encryption, Terms};
use crate::hello::Purpose;
use crate::identity::{Identity, IdentityError};
use crate::keys::PublicKey;
use crate::policy::{OwnerKey, TicketLimits};
use crate::service::{Answer, ListedMember, MemberList, Question};
use crate::ticket::Ticket;
use crate::transport::Transport;

/// The shortest beginning of a fingerprint that names a member.
const LEAST_LETTERS: usize = 6;

/// A swarm's members.
pub struct Members {
    transport: Arc<dyn Transport>,
    terms: Terms,
    ticket: Ticket,
    list: MemberList,
}

/// Why members cannot be listed or changed.
#[derive(Debug, thiserror::Error)]
pub enum MembersError {
    /// Keys cannot be made.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Nobody of the swarm can be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The answer is not what a member says.
    #[error("the peer that was asked did not understand, or its answer is not signed by the swarm's owner")]
    Senseless,
    /// There is no such member.
    #[error("there is no member {which}; there are:{}", members.iter().map(|each| format!("\n  {each}")).collect::<String>())]
    NoSuchMember {
        /// Who was asked for.
        which: String,
        /// Who is there.
        members: Vec<String>,
    },
    /// Several members fit.
    #[error(
        "several members are called {which}: name one by its key, of which {LEAST_LETTERS} letters or more are enough"
    )]
    Ambiguous {
        /// Who was asked for.
        which: String,
    },
    /// It is another swarm's key.
    #[error("this owner key is of another swarm than the ticket")]
    OtherOwner,
    /// Nobody would be left.
    #[error("nobody would be left: to end the run, stop its peers")]
    NobodyLeft,
    /// Somebody has decided something else at the same time.
    #[error(
        "the swarm's keys were changed at the same time by somebody else: list its members with the present ticket and try again"
    )]
    Superseded,
}

impl Members {
    /// Asks whoever of the swarm answers first; with `discover`, on the local network too.
    pub async fn ask(
        transport: Arc<dyn Transport>,
        ticket: &Ticket,
        encryption: Encryption,
        discover: bool,
    ) -> Result<Self, MembersError> {
        let terms = Terms { encryption, ..Terms::new(Identity::visitor(ticket)?, Purpose::Observer) };
        let addresses = find_addresses(ticket, discover).await?;
        match ask_any(&*transport, &terms, &addresses, &Question::Members).await? {
            (Answer::Members(list), _) if list.policy.is_sound(&ticket.owner) => {
                Ok(Self { transport, terms, ticket: ticket.clone(), list: *list })
            }
            _ => Err(MembersError::Senseless),
        }
    }

    /// Who is there.
    pub fn members(&self) -> &[ListedMember] {
        &self.list.members
    }

    /// The same ticket with which they were asked, which names those who are there.
    pub fn ticket(&self) -> Ticket {
        let addresses = self.members().iter().map(|member| member.address.clone()).collect();
        Ticket { addresses, ..self.ticket.clone() }
    }

    /// How long that ticket is good.
    pub fn limits(&self) -> TicketLimits {
        self.list.policy.limits()
    }

    /// The member of this number, or whose key's fingerprint begins so.
    pub fn find(&self, which: &str) -> Result<&ListedMember, MembersError> {
        let number: Option<u32> = which.parse().ok();
        let has_number = |member: &&ListedMember| number == Some(member.peer.join_index());
        let has_key = |member: &&ListedMember| {
            which.len() >= LEAST_LETTERS && member.key.fingerprint().starts_with(&which.to_lowercase())
        };
        let mut found: Vec<_> = self.members().iter().filter(has_number).collect();
        if found.is_empty() {
            found = self.members().iter().filter(has_key).collect();
        }
        match found[..] {
            [member] => Ok(member),
            [] => {
                let members = self.members().iter().map(ToString::to_string).collect();
                Err(MembersError::NoSuchMember { which: which.to_owned(), members })
            }
            _ => Err(MembersError::Ambiguous { which: which.to_owned() }),
        }
    }

    /// Replaces the swarm's keys and its ticket, and removes these members for good. Returns the new ticket.
    pub async fn amend(
        &self,
        owner: &OwnerKey,
        removed: &[PublicKey],
        limits: TicketLimits,
    ) -> Result<Ticket, MembersError> {
        if owner.public() != self.ticket.owner {
            return Err(MembersError::OtherOwner);
        }
        let MemberList { policy, keys, members } = &self.list;
        let keys = keys.iter().chain(members.iter().map(|member| &member.key)).copied();
        let policy_update = owner.amend(policy, keys, removed, limits);
        // Those who are removed must not get to know the new secrets.
        let kept: Vec<&ListedMember> = members.iter().filter(|member| !removed.contains(&member.key)).collect();
        let addresses: Vec<Address> = kept.iter().map(|member| member.address.clone()).collect();
        let ticket = policy_update.ticket(addresses);
        let question = Question::Amend(Box::new(policy_update));
        let mut problem = MembersError::NobodyLeft;
        for member in kept {
            let terms = Terms { expected: Some(member.peer), ..self.terms.clone() };
            match ask(&*self.transport, &terms, &member.address, &question).await {
                Ok((Answer::Amended { is_in_force: true }, _)) => return Ok(ticket),
                Ok((Answer::Amended { is_in_force: false }, _)) => return Err(MembersError::Superseded),
                Ok(_) => problem = MembersError::Senseless,
                Err(error) => problem = error.into(),
            }
        }
        Err(problem)
    }
}

/// A member as a list of them in JSON has it.
#[derive(Debug, Serialize)]
pub struct MemberEntry<'a> {
    /// Its name, as events and `status` have it.
    peer: PeerId,
    /// Its number, as people see it.
    number: u32,
    /// The fingerprint of its key.
    key: String,
    /// Where it is.
    address: &'a Address,
    /// When it was let in, in seconds since 1970.
    since: u64,
    /// When its certificate expires unless it is renewed, in seconds since 1970.
    expires: u64,
}

impl ListedMember {
    /// The same for a list in JSON.
    pub fn entry(&self) -> MemberEntry<'_> {
        let Self { peer, key, address, since, expires } = self;
        MemberEntry {
            peer: *peer,
            number: peer.join_index(),
            key: key.fingerprint(),
            address,
            since: *since,
            expires: *expires,
        }
    }
}

impl std::fmt::Display for ListedMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}, key {}", self.peer, self.address, self.key)
    }
}
