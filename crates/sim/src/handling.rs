//! What a message costs whoever sends it, and as much whoever receives it.

use std::time::Duration;

use nettorrent_swarm::link_spec::as_text;
use serde::{Deserialize, Serialize};

use crate::queue::nanos;

/// What a message costs whoever sends it, and as much whoever receives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Handling {
    /// However short it is.
    #[serde(with = "as_text")]
    pub frame_time: Duration,
    /// How many bytes of messages a peer handles in a second; without it, they cost nothing.
    pub bytes_per_second: Option<u64>,
    /// Whether it is done by cores that also compute.
    pub shares_cores: bool,
}

impl Handling {
    pub(crate) fn nanos_for(&self, n_bytes: usize) -> f64 {
        let per_byte = self.bytes_per_second.map_or(0.0, |rate| 1e9 / rate.max(1) as f64);
        nanos(self.frame_time) as f64 + n_bytes as f64 * per_byte
    }
}
