//! The same seed gives the same bytes, however many threads compute, and however fast the links are.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_sim::{Outcome, PeerLinks, Scenario, Simulation, Stragglers};
use nettorrent_swarm::Setup;

use super::case;

fn run(setup: &Arc<Setup>, n_peers: usize, scenario: Scenario, n_threads: usize) -> Outcome {
    Simulation::new(setup.clone(), n_peers, scenario).unwrap().with_threads(n_threads).run().unwrap()
}

fn bytes(outcome: &Outcome) -> (String, Vec<Vec<u32>>) {
    (serde_json::to_string(&outcome.records).unwrap(), bits(outcome))
}

fn bits(outcome: &Outcome) -> Vec<Vec<u32>> {
    outcome.peers.iter().map(|peer| peer.values.iter().map(|value| value.to_bits()).collect()).collect()
}

/// Nothing is alike: links, peers, chances.
fn uneven() -> Scenario {
    let slow = "2mbit/15ms".parse().unwrap();
    Scenario {
        links: vec![PeerLinks { peer: 1, up: slow, down: "3mbit".parse().unwrap() }],
        jitter: Duration::from_millis(7),
        loss: 0.05,
        stragglers: Stragglers { share: 0.4, factor: 5.0 },
        ..Scenario::wan()
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for case in case::all() {
        let setup = case.setup(2);
        for n_peers in [2, 5] {
            let first = run(&setup, n_peers, uneven(), 1);
            for n_threads in [1, 2] {
                let again = run(&setup, n_peers, uneven(), n_threads);
                assert!(bytes(&first) == bytes(&again), "{}: {n_peers} peers, {n_threads} threads", case.name());
                assert_eq!(first.time, again.time);
            }
            let elsewhere = run(&setup, n_peers, Scenario { seed: 2, ..uneven() }, 1);
            assert!(first.records != elsewhere.records, "{}: chances are chances", case.name());
        }
    }
}

#[test]
fn links_and_stragglers_do_not_change_what_is_learnt() {
    let instant = Scenario { link: "0s".parse().unwrap(), ..Scenario::lan() };
    for case in case::all().into_iter().filter(|case| !case.depends_on_time()) {
        let setup = case.equal_setup(2);
        for n_peers in [2, 4, 5] {
            let expected = run(&setup, n_peers, Scenario::lan(), 1);
            for (k, scenario) in [uneven(), Scenario { seed: 9, ..uneven() }, instant.clone()].into_iter().enumerate() {
                let outcome = run(&setup, n_peers, scenario, 1);
                assert!(bits(&expected) == bits(&outcome), "{}: {n_peers} peers, scenario {k}", case.name());
                assert_eq!(expected.peers[0].place, outcome.peers[0].place);
            }
        }
    }
}
