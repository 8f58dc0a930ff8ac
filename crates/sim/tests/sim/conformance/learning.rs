//! It learns, with one peer and with several, and all hold the same after each epoch.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nettorrent_sim::{Observer, Scenario, Simulation};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{Peer, PeerId};

use super::case;

#[test]
fn the_loss_falls_and_the_accuracy_rises() {
    for case in case::all() {
        // With eight, a peer's share of a batch is one sample; the one that is nearest to most others then is the one least was
        // learnt from.
        let n_most = if case.aggregation().as_deref() == Some("krum") { 5 } else { 8 };
        for n_peers in [1, 2, 3, 5, 8].into_iter().filter(|&n| n <= n_most) {
            let what = format!("{}with {n_peers} peers", case.name());
            let setup = case.setup(10);
            let (task, n_held_out) = (setup.training().task.clone(), setup.training().sampler.held_out().len());
            let before = task.clone().worker(1).unwrap().test(&task.init(3), 0..task.n_test()).unwrap();
            let outcome = Simulation::new(setup, n_peers, Scenario::lan()).unwrap().run().unwrap();
            let epochs: Vec<(f64, f64, f64, u64, u64)> = outcome.records.iter().filter_map(epoch).collect();
            // Everybody tells of every epoch.
            assert_eq!(epochs.len(), 10 * n_peers, "{what}");
            let of_first = outcome.records.iter().filter(|record| record.peer == outcome.peers[0].id);
            let epochs: Vec<(f64, f64, f64, u64, u64)> = of_first.filter_map(epoch).collect();
            let (first, last) = (epochs[0], epochs[9]);
            assert!(last.0 < 0.8 * first.0, "{what}: the training loss went from {} to {}", first.0, last.0);
            assert!(last.1 < 0.6 * before.loss(), "{what}: the loss went from {} to {}", before.loss(), last.1);
            assert!(last.2 > before.accuracy() + 0.3, "{what}: from {} to {}", before.accuracy(), last.2);
            let n_train = (task.labels().len() - n_held_out) as u64;
            for (_, _, _, trained, tested) in epochs {
                assert_eq!(tested, task.n_test() as u64, "{what}: every test sample counts once");
                // Who does not wait for all has some samples trained twice.
                assert!(trained == n_train || case.depends_on_time(), "{what}: {trained} samples in an epoch");
            }
        }
    }
}

fn epoch(record: &Record) -> Option<(f64, f64, f64, u64, u64)> {
    match record.event {
        Event::Epoch { train_loss, test_loss, test_accuracy, n_train, n_test, .. } => {
            Some((train_loss, test_loss, test_accuracy, n_train, n_test))
        }
        _ => None,
    }
}

/// Remembers everybody's parameters at the end of each epoch, as far as all should hold them alike.
#[derive(Default)]
struct Replicas {
    epochs: BTreeMap<PeerId, u64>,
    values: BTreeMap<u64, BTreeMap<PeerId, Vec<u32>>>,
    /// Round and step at the end of each epoch: as they were, and as they were told.
    places: BTreeMap<u64, BTreeSet<(u32, u64)>>,
    told: BTreeMap<u64, BTreeSet<(u32, u64)>>,
}

impl Observer for Replicas {
    fn record(&mut self, record: Record) {
        if let Event::Epoch { epoch, round, step, .. } = record.event {
            self.told.entry(epoch).or_default().insert((round, step));
        }
    }

    fn handled(&mut self, _: Duration, peer: PeerId, state: &dyn Peer) {
        let epoch = state.place().ledger.epoch;
        if self.epochs.insert(peer, epoch).unwrap_or(0) < epoch {
            let bits = state.state().expect("it holds the whole").values.iter().map(|value| value.to_bits()).collect();
            self.values.entry(epoch).or_default().insert(peer, bits);
            let place = state.place();
            self.places.entry(epoch).or_default().insert((place.version.round, place.step));
        }
    }
}

#[test]
fn replicas_are_equal_after_each_epoch() {
    for case in case::all() {
        for n_peers in [2, 5] {
            let mut replicas = Replicas::default();
            let setup = case.setup(3);
            let n_params = setup.training().task.n_params();
            Simulation::new(setup, n_peers, Scenario::lan()).unwrap().run_with(&mut replicas).unwrap();
            assert_eq!(replicas.values.len(), 3, "{}", case.name());
            assert!(replicas.places.values().all(|places| places.len() == 1), "{}", case.name());
            assert_eq!(replicas.told, replicas.places, "{}: where epochs ended", case.name());
            for (epoch, peers) in replicas.values {
                assert_eq!(peers.len(), n_peers, "{}", case.name());
                let first = &peers[peers.keys().next().unwrap()];
                if case.is_asynchronous() && epoch < 3 {
                    // But for what they have not told yet they are together, to rounding; in the end, exactly.
                    for values in peers.values() {
                        // Running statistics are each peer's own until then.
                        let distance = distance(&values[..n_params], &first[..n_params]);
                        assert!(distance < 1e-4, "{}: {distance} apart after epoch {epoch}", case.name());
                    }
                    continue;
                }
                assert!(peers.values().all(|values| values == first), "{}: after epoch {epoch}", case.name());
            }
        }
    }
}

/// The largest difference of two vectors' numbers.
fn distance(a: &[u32], b: &[u32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (f32::from_bits(*a) - f32::from_bits(*b)).abs()).fold(0.0, f32::max)
}
