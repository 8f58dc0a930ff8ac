//! Those who live and are not to be in the next view: each is told of once.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_swarm::view::PeerId;

/// Since when each was left out, and whether that was told.
#[derive(Default)]
pub(super) struct LeftOut {
    since: BTreeMap<PeerId, (Duration, bool)>,
}

impl LeftOut {
    /// Forgets those who are left out no longer.
    pub(super) fn retain(&mut self, is_left_out: impl Fn(PeerId) -> bool) {
        self.since.retain(|peer, _| is_left_out(*peer));
    }

    /// Whether it is time to tell of one, who has been left out for this long.
    pub(super) fn is_due(&mut self, peer: PeerId, now: Duration, after: Duration) -> bool {
        let (since, is_told) = self.since.entry(peer).or_insert((now, false));
        now - *since >= after && !std::mem::replace(is_told, true)
    }
}
