//! Who wants to join a swarm asks one of its members for what it trains.

use nettorrent_net::address::Address;
use nettorrent_net::ask::{ask_any, find_addresses};
use nettorrent_net::handshake::Terms;
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::service::{Answer, Invitation, JobPackage, Question};
use nettorrent_net::ticket::Ticket;

use crate::error::SessionError;
use crate::options::Options;
use crate::run_folder::RunFolder;

/// Who was let in, and who is there, as one of the members tells.
pub struct Invited {
    pub(crate) invitation: Invitation,
    pub(crate) identity: Identity,
    /// Where the one who was asked sees this machine.
    pub(crate) seen: Address,
}

impl Invited {
    /// Asks the swarm of a ticket to be let in, and for what it trains.
    pub async fn ask(ticket: &Ticket, options: &Options) -> Result<Self, SessionError> {
        let identity = Identity::visitor(ticket)?;
        let addresses = find_addresses(ticket, options.discover).await?;
        let terms =
            Terms { encryption: options.encryption, ..Terms::new(identity.clone(), Purpose::Joiner { job: None }) };
        match ask_any(&*options.transport, &terms, &addresses, &Question::Join).await? {
            (Answer::Join(invitation), seen) => {
                let identity = identity.admitted(&invitation.admission)?;
                Ok(Self { invitation: *invitation, identity, seen })
            }
            (Answer::NotAdmitted(reason), _) => Err(reason.into()),
            _ => Err(SessionError::OtherVersion),
        }
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
        &self.invitation.package
    }

    /// Number of peers that are there.
    pub fn n_members(&self) -> usize {
        self.invitation.members.len()
    }
}
