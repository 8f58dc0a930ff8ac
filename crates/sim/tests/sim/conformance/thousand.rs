//! A thousand peers, twice the same.

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Scenario, Simulation, Toy, ToySize};

use super::case;

#[test]
fn a_thousand_peers_do_the_same_twice() {
    let size = ToySize { n_features: 2, n_classes: 2, n_train: 2000, n_test: 20 };
    for case in case::defaults() {
        // In one bucket, or rings would send three times as many frames; several are tried with fewer peers.
        let toy = Toy::with_size(size, 1);
        let n_values = toy.n_values();
        let setup = case.setup_for(toy.with_buckets(&[n_values]), Job { epochs: 1, batch: 1, ..case::job() });
        let run = || {
            let scenario = Scenario { jitter: std::time::Duration::from_millis(1), ..Scenario::lan() };
            let mut hash = 0_u64;
            let simulation = Simulation::new(setup.clone(), 1000, scenario).unwrap().with_threads(2);
            let mut note = |record| {
                let text = serde_json::to_string(&record).unwrap();
                hash = text.bytes().fold(hash, |hash, byte| nettorrent_engine::rng::mix(hash ^ u64::from(byte)));
            };
            let outcome = simulation.run_with(&mut note).unwrap();
            assert!(outcome.peers.iter().all(|peer| peer.is_finished), "{}", case.name());
            let values: Vec<u32> =
                outcome.peers.iter().flat_map(|peer| peer.values.iter().map(|x| x.to_bits())).collect();
            (hash, values, outcome.time)
        };
        assert!(run() == run(), "{}", case.name());
    }
}
