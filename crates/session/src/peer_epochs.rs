//! What each peer did in each epoch, as far as it has told.

use std::collections::BTreeMap;

use nettorrent_history::{PeerEpoch, Times};
use nettorrent_swarm::PeerId;

/// What each peer did in the epochs that are not written yet.
#[derive(Default)]
pub(crate) struct PeerEpochs {
    /// By epoch, counted from 1. Losses are added up.
    epochs: BTreeMap<u64, BTreeMap<PeerId, PeerEpoch>>,
}

impl PeerEpochs {
    /// Adds what a peer did in an epoch: samples, their losses added up, and where its time went.
    pub(crate) fn add(&mut self, epoch: u64, n_samples: u64, loss_sum: f64, times: &Times) {
        let peers = self.epochs.entry(epoch).or_default();
        let nothing = || PeerEpoch { n_samples: 0, loss: 0.0, times: Times::of(times.peer) };
        let sums = peers.entry(times.peer).or_insert_with(nothing);
        sums.n_samples += n_samples;
        sums.loss += loss_sum;
        sums.times += times;
    }

    /// What all did in an epoch, with their mean losses. What comes too late for it is forgotten with the next.
    pub(crate) fn take(&mut self, epoch: u64) -> Vec<PeerEpoch> {
        let later = self.epochs.split_off(&(epoch + 1));
        let peers = std::mem::replace(&mut self.epochs, later).remove(&epoch).unwrap_or_default();
        let mean = |sums: PeerEpoch| PeerEpoch { loss: sums.loss / sums.n_samples.max(1) as f64, ..sums };
        peers.into_values().map(mean).collect()
    }

    /// Training has gone back: what was done since is void.
    pub(crate) fn forget(&mut self) {
        self.epochs.clear();
    }
}

#[cfg(test)]
mod tests {
    use nettorrent_history::Times;
    use nettorrent_swarm::PeerId;

    use super::PeerEpochs;

    #[test]
    fn each_peer_s_part_in_an_epoch_is_added_up() {
        let mut epochs = PeerEpochs::default();
        let times = |peer| Times { compute_s: 0.5, wait_s: 0.25, sent_bytes: 10, ..Times::of(PeerId(peer)) };
        for (epoch, peer) in [(1, 5), (1, 3), (1, 5), (2, 3)] {
            epochs.add(epoch, 10, 20.0, &times(peer));
        }
        epochs.add(1, 30, 0.0, &times(5));
        let first = epochs.take(1);
        assert_eq!(
            first.iter().map(|peer| (peer.times.peer.0, peer.n_samples)).collect::<Vec<_>>(),
            [(3, 10), (5, 50)]
        );
        assert_eq!((first[0].loss, first[1].loss), (2.0, 0.8));
        assert_eq!((first[1].times.compute_s, first[1].times.wait_s, first[1].times.sent_bytes), (1.5, 0.75, 30));
        epochs.add(1, 10, 20.0, &times(5));
        assert_eq!(epochs.take(2).len(), 1);
        assert_eq!(epochs.take(3), []);
    }
}
