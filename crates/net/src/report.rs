//! What a node tells while it runs, what it can be told, and how it ends.

use std::time::Duration;

use nettorrent_swarm::record::Record;
use nettorrent_swarm::{PeerId, SavedBlock};

use crate::membership::Note;
use crate::shared_folder::News;
use crate::ticket::Ticket;

/// What a node tells while it runs.
pub enum Report<'a> {
    /// Something happened at the peer.
    Record {
        /// What.
        record: &'a Record,
        /// If it is the end of a round, for whom the peer waited in it, as far as is known.
        waits: &'a [(PeerId, Duration)],
    },
    /// A block of a network that no peer holds whole was gathered here to be kept. The next comes after [`Command::BlockWritten`].
    Saved(&'a SavedBlock),
    /// Somebody came, went, or was given up.
    Note(&'a Note),
    /// Somebody was not let in, or a member was cut off, and why.
    Refused(String),
    /// What the swarm's owner has decided about its keys and members.
    Keys(String),
    /// By which way a link goes, if it is not TCP.
    Route(String),
    /// With what others ask to be let in now: who is there, or the swarm's keys, have changed.
    Ticket(&'a Ticket),
    /// Who shares the directory, or why it is not used any more.
    Folder(&'a News),
    /// Another peer tells about itself, as this one is the first member of its view.
    Telemetry {
        /// Who.
        from: PeerId,
        /// What; only who sends and who reads it need to understand it.
        bytes: &'a [u8],
    },
    /// Nothing; time has passed.
    Tick,
    /// Training is over, or is given up: the last chance to tell others something.
    Ending,
}

/// What a node can be told while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// The last block that was to be saved is written, or could not be.
    BlockWritten {
        /// Whether it is.
        is_written: bool,
    },
    /// Leave the others and end.
    Leave,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All epochs are done.
    Finished,
    /// This peer was told to leave.
    Left,
    /// It cannot go on.
    Failed(String),
}
