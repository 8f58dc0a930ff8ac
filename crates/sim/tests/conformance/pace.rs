//! Nobody runs away from a slow peer: what comes before its time has to be kept, and there is no end to it otherwise.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_sim::{Observer, Scenario, Simulation, Stragglers, Toy, ToySize};
use nettorrent_swarm::{Peer, PeerId};

use crate::case;

/// How many rounds the foremost was ahead of the last, at most.
#[derive(Default)]
struct Lead {
    rounds: BTreeMap<PeerId, u32>,
    most: u32,
}

impl Observer for Lead {
    fn handled(&mut self, _: Duration, id: PeerId, peer: &Peer) {
        self.rounds.insert(id, peer.place().standing.round);
        let (first, last) = (self.rounds.values().max(), self.rounds.values().min());
        self.most = self.most.max(first.zip(last).map_or(0, |(first, last)| first - last));
    }
}

#[test]
fn nobody_is_many_rounds_ahead() {
    // Who follows keepers has nothing to keep: others' changes are in the shards.
    for case in case::defaults().iter().filter(|case| !case.has_keepers()) {
        for n_peers in [3, 8, 9] {
            let toy = Toy::with_size(ToySize { n_train: 200 * n_peers, ..ToySize::default() }, 1);
            let setup = case.setup_for(toy, Job { epochs: 1, batch: 1, ..case::job() });
            let stragglers = Stragglers { share: 1.0 / n_peers as f64, factor: 300.0 };
            let mut lead = Lead::default();
            let scenario = Scenario { stragglers, ..Scenario::lan() };
            Simulation::new(setup, n_peers, scenario).unwrap().run_with(&mut lead).unwrap();
            assert!(lead.most <= 12, "{}with {n_peers} peers: {} rounds ahead", case.name(), lead.most);
        }
    }
}
