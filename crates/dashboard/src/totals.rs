//! What each peer has told, added up as it comes: nobody who asks has the whole history summed again.

use std::collections::BTreeMap;

use nettorrent_history::{History, PeerHistory, Resources, Times};
use nettorrent_swarm::PeerId;

/// The sums of all peers.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    peers: BTreeMap<PeerId, PeerTotals>,
}

/// The sums of one peer.
#[derive(Clone, Debug)]
pub(crate) struct PeerTotals {
    n_times: usize,
    n_resources: usize,
    pub(crate) times: Times,
    pub(crate) cpu_s: f64,
    /// Bytes since the beginning, and the memory of the last time it told.
    pub(crate) used: Option<Resources>,
}

impl Totals {
    /// Adds what is new in the history.
    pub(crate) fn add(&mut self, history: &History) {
        // Of a run that went on, peers have new names.
        self.peers.retain(|id, _| history.peers.contains_key(id));
        for (id, peer) in &history.peers {
            self.peers.entry(*id).or_insert_with(|| PeerTotals::of(*id)).add(peer);
        }
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = (PeerId, &PeerTotals)> {
        self.peers.iter().map(|(id, totals)| (*id, totals))
    }

    /// What all peers have sent.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.peers.values().map(|peer| peer.times.sent_bytes).sum()
    }
}

impl PeerTotals {
    fn of(id: PeerId) -> Self {
        Self { n_times: 0, n_resources: 0, times: Times::of(id), cpu_s: 0.0, used: None }
    }

    fn add(&mut self, peer: &PeerHistory) {
        for (_, times) in &peer.times[self.n_times..] {
            self.times += times;
        }
        for (_, used) in &peer.resources[self.n_resources..] {
            self.cpu_s += used.cpu_percent / 100.0 * used.elapsed_s;
            self.used = Some(self.used.map_or(*used, |sum| added(sum, used)));
        }
        (self.n_times, self.n_resources) = (peer.times.len(), peer.resources.len());
    }
}

fn added(sum: Resources, next: &Resources) -> Resources {
    Resources {
        net_received_bytes: sum.net_received_bytes + next.net_received_bytes,
        net_sent_bytes: sum.net_sent_bytes + next.net_sent_bytes,
        payload_received_bytes: sum.payload_received_bytes + next.payload_received_bytes,
        payload_sent_bytes: sum.payload_sent_bytes + next.payload_sent_bytes,
        disk_read_bytes: sum.disk_read_bytes + next.disk_read_bytes,
        disk_written_bytes: sum.disk_written_bytes + next.disk_written_bytes,
        ..*next
    }
}

#[cfg(test)]
mod tests {
    use super::Totals;
    use nettorrent_history::{Event, History, Line, Resources, Times};
    use nettorrent_swarm::PeerId;

    #[test]
    fn what_is_new_is_added_once() {
        let peer = PeerId(3);
        let (mut history, mut totals) = (History::default(), Totals::default());
        for rss_bytes in [70, 80] {
            let times = Times { compute_s: 0.25, sent_bytes: 5, elapsed_s: 1.0, ..Times::of(peer) };
            history.add(Line { at_s: 1.0, event: Event::Times(times) });
            let used = Resources {
                peer,
                elapsed_s: 2.0,
                cpu_percent: 50.0,
                rss_bytes,
                net_received_bytes: 1,
                net_sent_bytes: 2,
                payload_received_bytes: 3,
                payload_sent_bytes: 4,
                disk_read_bytes: 5,
                disk_written_bytes: 6,
            };
            history.add(Line { at_s: 1.0, event: Event::Resources(used) });
            totals.add(&history);
            totals.add(&history);
        }
        assert_eq!(totals.sent_bytes(), 10);
        let (id, sums) = totals.peers().next().expect("one peer");
        assert_eq!((id, sums.times.compute_s, sums.cpu_s), (peer, 0.5, 2.0));
        let used = sums.used.expect("it has told");
        assert_eq!((used.rss_bytes, used.net_sent_bytes, used.disk_written_bytes), (80, 4, 12));
    }
}
