//! What a peer tells whoever runs it.

use std::path::PathBuf;

use nettorrent_history::{PeerProgress, Resources};
use nettorrent_net::address::Address;
use nettorrent_net::report;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::Record;
use serde::{Deserialize, Serialize};

/// What a peer tells whoever runs it; a process of a swarm on one machine, as lines of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PeerEvent {
    /// It can be reached there.
    Listening {
        /// Who.
        peer: PeerId,
        /// Where.
        address: Address,
    },
    /// How it goes, a few times in a second.
    Progress(PeerProgress),
    /// What it took of its machine, once a second.
    Resources(Resources),
    /// Something that does not happen often.
    Record(Record),
    /// What another peer tells about itself: progress, resources and records.
    Heard(Vec<PeerEvent>),
    /// Somebody came, went, was given up or not let in.
    Note {
        /// Who tells.
        peer: PeerId,
        /// What.
        text: String,
        /// Whether that is no news for those who started all peers.
        is_routine: bool,
    },
    /// A checkpoint is whole on the disk.
    Checkpoint {
        /// Where.
        path: PathBuf,
        /// Epochs done.
        epoch: u64,
        /// Steps done.
        step: u64,
    },
    /// One could not be written.
    CheckpointFailed {
        /// Epochs done.
        epoch: u64,
        /// Steps done.
        step: u64,
        /// Why.
        problem: String,
    },
    /// It has ended.
    Ended {
        /// Who.
        peer: PeerId,
        /// How.
        ending: Ending,
        /// Epochs done.
        epoch: u64,
        /// The last epoch of the run.
        last_epoch: u64,
        /// Steps done.
        step: u64,
        /// Whether the last checkpoint is this peer's to write.
        is_writer: bool,
        /// Its peak memory, where the system tells.
        peak_rss_bytes: Option<u64>,
    },
}

/// How a peer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// All epochs are done.
    Finished,
    /// It was told to leave.
    Left,
    /// It cannot go on.
    Failed(String),
}

impl From<report::Ending> for Ending {
    fn from(ending: report::Ending) -> Self {
        match ending {
            report::Ending::Finished => Self::Finished,
            report::Ending::Left => Self::Left,
            report::Ending::Failed(problem) => Self::Failed(problem),
        }
    }
}
