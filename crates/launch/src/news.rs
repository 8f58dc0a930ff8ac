//! What is told while peers run elsewhere, and what came of it.

use std::process::ExitStatus;

use nettorrent_history::Line;
use nettorrent_swarm::PeerId;

/// What happens.
pub enum News<'a> {
    /// A host has the program.
    Ready(&'a str),
    /// With what others join.
    Ticket(&'a str),
    /// An event of the run.
    Event(&'a Line),
    /// A host said something else, which is for people.
    Said {
        /// Which.
        host: &'a str,
        /// What.
        text: &'a str,
    },
    /// The peer at a host has ended.
    Ended {
        /// Which.
        host: &'a str,
        /// How.
        status: ExitStatus,
    },
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The hosts whose peers finished.
    pub finished: Vec<String>,
    /// The others, and the last that they said; who failed first is first.
    pub failed: Vec<(String, String)>,
    /// The host whose newest checkpoint is now here.
    pub collected: Option<String>,
    /// Which peer was at which host, as far as they told.
    pub peers: Vec<(PeerId, String)>,
}
