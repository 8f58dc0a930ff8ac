//! Why a link does not come about, in words that say what to do next.

use std::io;
use std::time::Duration;

use data_encoding::HEXLOWER;
use nettorrent_swarm::view::PeerId;
use serde::{Deserialize, Serialize};

use crate::frames::ReadError;
use crate::keys::Signature;
use crate::ticket::SwarmId;

/// Which job a peer trains: a hash of its description.
pub type JobHash = [u8; 32];

/// What one side tells the other when it does not want the link. "Ours" is the side that reads it, "theirs" the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The protocols differ.
    #[error(
        "this side speaks version {ours} of the protocol and the other side version {theirs}: \
         update the older of the two programs"
    )]
    WrongVersion {
        /// The own version.
        ours: u32,
        /// The other's version.
        theirs: u32,
    },
    /// The swarms differ.
    #[error(
        "this side belongs to swarm {ours} and the other side to swarm {theirs}; was the ticket from another swarm?"
    )]
    WrongSwarm {
        /// The own swarm.
        ours: SwarmId,
        /// The other's swarm.
        theirs: SwarmId,
    },
    /// Somebody who is no member does not hold the present ticket's secret.
    #[error("the ticket is not, or no longer, the one of this swarm: ask its owner for the present one")]
    WrongTicket,
    /// Somebody claims to be a member and shows no certificate that the swarm has signed.
    #[error("a peer has shown no certificate of this swarm: join the swarm with its ticket")]
    NoMember,
    /// A certificate's time is over.
    #[error("a peer's certificate has expired: join the swarm anew, and check the clocks of both machines")]
    Expired,
    /// A certificate is of an earlier policy, and the present one does not keep its holder.
    #[error("the swarm has replaced its keys, and this peer's certificate is of the earlier ones: join the swarm anew")]
    Outdated,
    /// The swarm's owner has removed this peer.
    #[error("the swarm's owner has removed this peer for good")]
    Removed(Signature),
    /// The jobs differ.
    #[error(
        "this side trains job {} and the other side job {}: \
         join with the job file that the swarm was started with, or without one", short(.ours), short(.theirs)
    )]
    WrongJob {
        /// The own job.
        ours: JobHash,
        /// The other's job.
        theirs: JobHash,
    },
    /// A name was claimed that belongs to another key.
    #[error("the key that was shown is not the one of {claimed}, who was claimed to be there: join the swarm anew")]
    WrongKey {
        /// The name.
        claimed: PeerId,
    },
    /// Another peer was expected.
    #[error("{expected:?} was expected at this address and {found:?} is there: it has been restarted, or moved")]
    WrongPeer {
        /// Who was dialled.
        expected: PeerId,
        /// Who answered.
        found: PeerId,
    },
    /// A peer dialled itself.
    #[error("this is the process's own address: leave it out")]
    Oneself,
    /// Both dialled each other, and another link is kept.
    #[error("both sides dialled each other at once: use the other link, which is there or about to be")]
    Crossed,
    /// There are enough links.
    #[error("all of the {most} links are taken: try another peer, or again later")]
    TooMany {
        /// How many there may be.
        most: u32,
    },
}

impl Refusal {
    /// The same as the other side sees it.
    #[must_use]
    pub(crate) fn mirrored(self) -> Self {
        match self {
            Self::WrongVersion { ours, theirs } => Self::WrongVersion { ours: theirs, theirs: ours },
            Self::WrongSwarm { ours, theirs } => Self::WrongSwarm { ours: theirs, theirs: ours },
            Self::WrongJob { ours, theirs } => Self::WrongJob { ours: theirs, theirs: ours },
            same => same,
        }
    }
}

fn short(job: &JobHash) -> String {
    HEXLOWER.encode(&job[..4])
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// This side did not want the link; the other side was told why.
    #[error("the link was refused: {0}")]
    Refused(Refusal),
    /// The other side did not want the link, and told us why.
    #[error("the other side refused the link: {0}")]
    RefusedByThem(Refusal),
    /// TLS met plain frames.
    #[error("one side encrypts, the other does not: start both with encryption, or both without")]
    MixedEncryption,
    /// Whatever is there, it is none of us.
    #[error(
        "what answers there is not NetTorrent, or of a version that cannot talk to this one: check the address, the port \
         and `nettorrent --version` on both sides"
    )]
    NotNetTorrent,
    /// Nothing came for too long.
    #[error("the other side did not finish the handshake within {0:?}: try again, or check the address and the port")]
    Deadline(Duration),
    /// Too many others knocked at the same time.
    #[error("too many connections were being made at once, and this was the oldest: try again")]
    PushedOut,
    /// The stream ended.
    #[error("the other side hung up during the handshake: look there for the reason")]
    HungUp,
    /// TLS failed for another reason.
    #[error("encryption could not be set up: {0}")]
    Tls(rustls::Error),
    /// The socket failed.
    #[error("the connection failed during the handshake: {0}")]
    Failed(#[from] io::Error),
}

impl HandshakeError {
    /// Whether a ticket does not fit the swarm.
    pub(crate) fn is_wrong_ticket(&self) -> bool {
        match self {
            Self::Refused(refusal) | Self::RefusedByThem(refusal) => {
                matches!(refusal, Refusal::WrongTicket | Refusal::WrongSwarm { .. })
            }
            _ => false,
        }
    }

    /// Whether the two sides called each other at the same time, so that another connection is there or about to be.
    pub fn is_crossed(&self) -> bool {
        matches!(self, Self::Refused(Refusal::Crossed) | Self::RefusedByThem(Refusal::Crossed))
    }
}

impl From<ReadError> for HandshakeError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Ended | ReadError::CutOff { .. } => Self::HungUp,
            ReadError::Malformed(_) => Self::NotNetTorrent,
            ReadError::Failed(error) => Self::from_stream(error),
        }
    }
}

impl HandshakeError {
    /// What a stream's error means: TLS hides its own in those of the socket.
    pub(crate) fn from_stream(error: io::Error) -> Self {
        if let Some(tls) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            return Self::from_tls(tls);
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self::HungUp,
            _ => Self::Failed(error),
        }
    }

    /// What TLS wants to say, which for others are bare alerts.
    pub(crate) fn from_tls(error: &rustls::Error) -> Self {
        use rustls::AlertDescription as Alert;
        use rustls::Error;
        match error {
            Error::InvalidCertificate(_)
            | Error::NoCertificatesPresented
            | Error::InvalidMessage(_)
            | Error::PeerIncompatible(_)
            | Error::NoApplicationProtocol
            | Error::AlertReceived(
                Alert::UnknownCA
                | Alert::BadCertificate
                | Alert::CertificateUnknown
                | Alert::CertificateRequired
                | Alert::DecryptError
                | Alert::AccessDenied
                | Alert::UnsupportedCertificate
                | Alert::NoApplicationProtocol
                | Alert::ProtocolVersion
                | Alert::HandshakeFailure,
            ) => Self::NotNetTorrent,
            other => Self::Tls(other.clone()),
        }
    }
}
