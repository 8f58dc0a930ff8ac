//! What this process lets others cost it.

use std::time::Duration;

/// Bounds on time and memory. The defaults suit ordinary machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long a connection may take from its first byte to its acceptance.
    pub handshake: Duration,
    /// How many handshakes of incoming connections may be under way; one more pushes the oldest out.
    pub max_handshakes: usize,
    /// How many links there may be; further connections are refused.
    pub max_links: usize,
    /// How much may wait to be sent on one link; one that falls further behind is closed.
    pub max_queued_bytes: usize,
    /// How long the other side may stop in the middle of a frame, or take nothing of what is to be sent.
    pub stall: Duration,
    /// How long a link that is being closed may take to send what is queued.
    pub shutdown_timeout: Duration,
}

impl Limits {
    /// The usual, for peers that exchange vectors of so many bytes: a joiner's whole state must have room.
    pub fn for_vectors(n_bytes: usize) -> Self {
        let usual = Self::default();
        Self { max_queued_bytes: usual.max_queued_bytes.max(16 * n_bytes), ..usual }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            max_handshakes: 256,
            max_links: 4096,
            max_queued_bytes: 256 << 20,
            stall: Duration::from_secs(60),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}
