//! Who wants to join a swarm asks one of its members for what it trains.

use nettorrent_net::address::Address;
use nettorrent_net::ask::{ask_any, find_addresses};
use nettorrent_net::handshake::Terms;
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::service::{Answer, Invitation, JobPackage, Question};
use nettorrent_net::ticket::Ticket;
use nettorrent_swarm::PeerId;

use crate::error::SessionError;
use crate::options::Options;
use crate::run_folder::RunFolder;

/// Who was let in, and who is there.
pub struct Invited {
    pub(crate) identity: Identity,
    pub(crate) members: Vec<(PeerId, Address)>,
    /// Training begins when so many peers are there, this one counted.
    pub(crate) wait_for: usize,
    package: JobPackage,
    /// Where the one who was asked sees this machine.
    pub(crate) seen: Option<Address>,
}

impl Invited {
    /// Asks the swarm of a ticket to be let in, and for what it trains.
    pub async fn ask(ticket: &Ticket, options: &Options) -> Result<Self, SessionError> {
        let addresses = find_addresses(ticket, options.discover).await?;
        Self::visit(Identity::visitor(ticket)?, &addresses, options).await
    }

    /// The same with an identity that one has, at these addresses.
    pub async fn visit(identity: Identity, addresses: &[Address], options: &Options) -> Result<Self, SessionError> {
        let terms =
            Terms { encryption: options.encryption, ..Terms::new(identity.clone(), Purpose::Joiner { job: None }) };
        match ask_any(&*options.transport, &terms, addresses, &Question::Join).await? {
            (Answer::Join(invitation), seen) => {
                let Invitation { admission, members, package, .. } = *invitation;
                let identity = identity.admitted(&admission)?;
                Ok(Self { identity, members, wait_for: 1, package, seen: Some(seen) })
            }
            (Answer::NotAdmitted(reason), _) => Err(reason.into()),
            _ => Err(SessionError::OtherVersion),
        }
    }

    /// One of those who begin together and wait for each other: who the others are, it knows from elsewhere.
    pub fn founding(identity: Identity, others: Vec<(PeerId, Address)>, package: JobPackage) -> Self {
        Self { identity, wait_for: others.len() + 1, members: others, package, seen: None }
    }

    /// Asks the swarm in which a run took part to be let in again; none if it never took part in one, or nobody of it answers.
    pub async fn again(run: &RunFolder, options: &Options) -> Result<Option<Self>, SessionError> {
        let Some(ticket) = run.ticket()? else { return Ok(None) };
        match Self::ask(&ticket, options).await {
            Ok(invited) => Ok(Some(invited)),
            Err(SessionError::Ask(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What the swarm trains.
    pub fn package(&self) -> &JobPackage {
        &self.package
    }

    /// Number of peers that are there.
    pub fn n_members(&self) -> usize {
        self.members.len()
    }
}
