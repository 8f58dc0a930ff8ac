//! Which swarm a command asks something, without taking part in it.

use clap::Args;
use nettorrent_net::handshake::Encryption;

use crate::ticket::TicketArguments;

/// The swarm that is asked, and how it is reached.
#[derive(Args)]
pub(crate) struct AskedSwarm {
    #[command(flatten)]
    pub(crate) ticket: TicketArguments,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// How a swarm is reached.
#[derive(Args)]
pub(crate) struct Reach {
    /// Look for peers on the local network by mDNS, too.
    #[arg(long)]
    pub(crate) discover: bool,
    /// The swarm does not encrypt.
    #[arg(long)]
    plain: bool,
}

impl Reach {
    /// Whether its links are encrypted.
    pub(crate) fn encryption(&self) -> Encryption {
        if self.plain { Encryption::Off } else { Encryption::On }
    }
}
