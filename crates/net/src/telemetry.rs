//! How much others may tell this peer about themselves: what they say is written down, and a disk must not be full of it.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_swarm::PeerId;

use crate::rate::{Allowance, Rate};

/// The longest message.
const MOST_BYTES: usize = 128 << 10;
const ALLOWANCE: Allowance = Allowance { at_once: 4, interval: Duration::from_millis(900) };

/// Who has told how much of late.
#[derive(Default)]
pub(crate) struct Telemetry {
    rates: BTreeMap<PeerId, Rate>,
}

impl Telemetry {
    /// Whether a message of this length from a peer is let through.
    pub(crate) fn admits(&mut self, now: Duration, from: PeerId, n_bytes: usize) -> bool {
        n_bytes <= MOST_BYTES && self.rates.entry(from).or_default().admits(now, ALLOWANCE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nettorrent_swarm::PeerId;

    use super::{MOST_BYTES, Telemetry};

    #[test]
    fn a_peer_is_heard_once_a_second_and_a_flood_is_not() {
        let mut telemetry = Telemetry::default();
        let second = |at: u64| Duration::from_secs(at);
        assert!((0..100).all(|at| telemetry.admits(second(at), PeerId(1), 1000)));
        let heard = |telemetry: &mut Telemetry, peer, at| {
            (0..1000).filter(|_| telemetry.admits(second(at), PeerId(peer), 1000)).count()
        };
        assert_eq!(heard(&mut telemetry, 2, 100), 4);
        assert_eq!(heard(&mut telemetry, 2, 102), 2);
        assert_eq!(heard(&mut telemetry, 3, 102), 4, "others are heard all the same");
        assert!(!telemetry.admits(second(200), PeerId(1), MOST_BYTES + 1));
    }
}
