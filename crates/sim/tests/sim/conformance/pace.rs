//! A slow peer: nobody runs away from it, for what comes before its time has to be kept, and there is no end to it otherwise; and it
//! does not slow the rest, for it is given less to do.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_sim::{Observer, Scenario, Simulation, Slow, Stragglers, Toy, ToySize};
use nettorrent_swarm::record::Event;
use nettorrent_swarm::{Peer, PeerId};

use super::case;

/// How many rounds the most advanced was ahead of the last, at most.
#[derive(Default)]
struct Lead {
    rounds: BTreeMap<PeerId, u32>,
    most: u32,
}

impl Observer for Lead {
    fn handled(&mut self, _: Duration, id: PeerId, peer: &dyn Peer) {
        self.rounds.insert(id, peer.place().version.round);
        let (first, last) = (self.rounds.values().max(), self.rounds.values().min());
        self.most = self.most.max(first.zip(last).map_or(0, |(first, last)| first - last));
    }
}

#[test]
fn nobody_is_many_rounds_ahead() {
    // Who follows owners has nothing to keep: others' changes are in the shards.
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

#[test]
fn a_slow_peer_does_not_slow_the_rest() {
    let size = ToySize { n_train: 4000, ..ToySize::default() };
    for case in case::defaults() {
        let time = |slow: Vec<Slow>| {
            let setup = case.setup_for(Toy::with_size(size, 1), Job { epochs: 1, batch: 32, ..case::job() });
            Simulation::new(setup, 4, Scenario { slow, ..Scenario::lan() }).unwrap().run().unwrap().time
        };
        let (from, until) = (Duration::ZERO, Duration::MAX);
        let (even, uneven) = (time(Vec::new()), time(vec![Slow { peer: 1, factor: 10.0, from, until }]));
        // Of four times the work of one, 3.1 times is done in the same time.
        let ratio = uneven.as_secs_f64() / even.as_secs_f64() * 3.1 / 4.0;
        assert!(ratio < 1.25, "{}: {ratio:.2} times as long as it need take", case.name());
    }
}

#[test]
fn every_sample_counts_as_much_where_weights_count_alike() {
    let size = ToySize { n_train: 4000, ..ToySize::default() };
    for case in case::defaults().iter().filter(|case| ["gossip", "moshpit", "step-wise"].contains(&case.name().trim()))
    {
        let setup = case.setup_for(Toy::with_size(size, 1), Job { epochs: 2, batch: 64, ..case::job() });
        let slow = vec![Slow { peer: 1, factor: 4.0, from: Duration::ZERO, until: Duration::MAX }];
        let outcome = Simulation::new(setup, 4, Scenario { slow, ..Scenario::lan() }).unwrap().run().unwrap();
        let mut rounds: BTreeMap<u32, Vec<(u64, f32)>> = BTreeMap::new();
        for record in outcome.records {
            if let Event::Round { epoch: 1, round, n_samples, lr, .. } = record.event {
                rounds.entry(round).or_default().push((n_samples, lr));
            }
        }
        let mut n_uneven = 0;
        for peers in rounds.values() {
            let steps = |&(n_samples, lr): &(u64, f32)| f64::from(lr) / n_samples as f64;
            let [least, most] = [f64::min, f64::max].map(|better| peers.iter().map(steps).reduce(better).unwrap());
            assert!(most < 1.01 * least, "{}: {peers:?}", case.name());
            n_uneven += usize::from(peers.iter().any(|peer| 2 * peer.0 < peers[0].0));
        }
        assert!(n_uneven > rounds.len() / 2, "{}: {n_uneven} of {} rounds", case.name(), rounds.len());
    }
}
