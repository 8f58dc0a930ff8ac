//! What peers tell of their time adds up: a peer computes, or it waits for others.

use std::collections::BTreeMap;

use nettorrent_engine::job::Job;
use nettorrent_sim::{Observer, Scenario, Simulation, Stragglers, Toy, ToySize};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{Event, Record};

use super::case;

/// What a peer has told, in seconds.
#[derive(Clone, Copy, Default)]
struct Told {
    began_s: f64,
    ended_s: f64,
    computed_s: f64,
    batches_s: f64,
    waited_s: f64,
}

#[derive(Default)]
struct Listener {
    peers: BTreeMap<PeerId, Told>,
}

impl Observer for Listener {
    fn record(&mut self, record: Record) {
        let told = self.peers.entry(record.peer).or_default();
        match record.event {
            Event::View { .. } => told.began_s = record.at_s,
            Event::Batch { compute_s, .. } => told.batches_s += compute_s,
            Event::Round { compute_s, wait_s, .. } => {
                told.computed_s += compute_s;
                told.waited_s += wait_s;
            }
            Event::Synced { wait_s, .. } => {
                told.waited_s += wait_s;
                told.ended_s = record.at_s;
            }
            Event::Epoch { .. }
            | Event::Evaluation { .. }
            | Event::Replica { .. }
            | Event::Ended { .. }
            | Event::LeftOut { .. }
            | Event::GivenUp { .. }
            | Event::StateReceived { .. }
            | Event::Differs { .. }
            | Event::LateDonor { .. }
            | Event::Joined { .. }
            | Event::Lost { .. }
            | Event::RolledBack { .. }
            | Event::Finished { .. } => {}
        }
    }
}

#[test]
fn peers_compute_or_wait() {
    // Who judges samples in its rounds does something else too.
    for case in case::defaults().iter().filter(|case| case.strategy().n_held_out(100) == 0) {
        let n_peers = 3;
        let toy = Toy::with_size(ToySize { n_train: 40 * n_peers, ..ToySize::default() }, 1);
        let setup = case.setup_for(toy, Job { epochs: 1, batch: 2, ..case::job() });
        let stragglers = Stragglers { share: 1.0 / n_peers as f64, factor: 5.0 };
        let mut listener = Listener::default();
        let scenario = Scenario { stragglers, ..Scenario::lan() };
        Simulation::new(setup, n_peers, scenario).unwrap().run_with(&mut listener).unwrap();
        assert_eq!(listener.peers.len(), n_peers);
        for (peer, told) in listener.peers {
            let Told { began_s, ended_s, computed_s, batches_s, waited_s } = told;
            let (passed_s, known_s) = (ended_s - began_s, computed_s + waited_s);
            let what =
                format!("{}{peer}: {passed_s} s passed, {computed_s} s computed, {waited_s} s waited", case.name());
            assert!((known_s - passed_s).abs() < 0.02 * passed_s, "{what}");
            assert!((computed_s - batches_s).abs() < 1e-9, "{what}, {batches_s} s in batches");
        }
    }
}
