//! What a strategy says that a round costs is what goes over the links, to the byte.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Observer, Scenario, Simulation, Toy, ToySize};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::collective::SEGMENT_LEN;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategy::CostQuestion;
use nettorrent_swarm::wire::{Frame, Kind};

use super::case::{self, Case};

/// Counts bytes by round, as a host sees them go by.
#[derive(Default)]
struct Meter {
    sent: BTreeMap<u32, BTreeMap<PeerId, u64>>,
    received: BTreeMap<u32, BTreeMap<PeerId, u64>>,
    /// Rounds in which was trained; in others, replicas are brought together.
    rounds: BTreeSet<u32>,
    /// What the peers themselves count.
    counted: u64,
}

impl Observer for Meter {
    fn record(&mut self, record: Record) {
        match record.event {
            Event::Round { round, sent_bytes, .. } => {
                self.rounds.insert(round - 1);
                self.counted += sent_bytes;
            }
            Event::Synced { sent_bytes, .. } => self.counted += sent_bytes,
            _ => {}
        }
    }

    fn frame(&mut self, _: Duration, from: PeerId, to: PeerId, frame: &Frame) {
        if frame.head.kind == Kind::Strategy {
            let n_bytes = frame.body.len() as u64;
            *self.sent.entry(frame.head.round).or_default().entry(from).or_default() += n_bytes;
            *self.received.entry(frame.head.round).or_default().entry(to).or_default() += n_bytes;
        }
    }
}

/// Two epochs of two rounds in which everybody has a batch.
fn check(case: &Case, n_peers: usize, size: ToySize, lens: Option<&[usize]>) {
    let batch = 2;
    let n_batches = 2 * case.options.get("local_steps").and_then(toml::Value::as_integer).unwrap_or(1).max(1) as usize;
    let toy = Toy::with_size(ToySize { n_train: n_peers * batch * n_batches, n_test: 3, ..size }, 1);
    let toy = if let Some(lens) = lens { toy.with_buckets(lens) } else { toy };
    let n_params = toy.n_params();
    // Small steps: what long vectors learn with larger ones is nothing.
    let optimizer = OptimizerSpec { lr: 1e-6, momentum: 0.5, ..OptimizerSpec::default() };
    let buckets =
        case.strategy().round_plan().optimizer_state.exchanged(toy.buckets(), (toy.n_values(), n_params), &optimizer);
    let setup = case.setup_for(toy, Job { epochs: 2, batch, optimizer, ..case::equal_job() });
    let mut meter = Meter::default();
    let outcome = Simulation::new(setup, n_peers, Scenario::lan()).unwrap().run_with(&mut meter).unwrap();
    assert!(outcome.failures.is_empty(), "{}: {:?}", case.name(), outcome.failures);
    assert!(!meter.rounds.is_empty());
    let mut paid = 0;
    for &round in &meter.rounds {
        let what = format!("{}with {n_peers} peers and buckets {buckets:?} in round {round}", case.name());
        let cost = case.strategy().cost(&CostQuestion { n_peers, buckets: &buckets, n_params, round, site_sizes: &[] });
        let of = |count: &BTreeMap<u32, BTreeMap<PeerId, u64>>| -> Vec<u64> {
            count.get(&round).into_iter().flat_map(|peers| peers.values().copied()).collect()
        };
        let (sent, received) = (of(&meter.sent), of(&meter.received));
        if case.strategy().cost_is_upper_bound() {
            assert!(sent.iter().sum::<u64>() <= cost.total, "{what}: more than was said");
            continue;
        }
        let most = |bytes: &[u64]| bytes.iter().copied().max().unwrap_or(0);
        assert_eq!(cost.total, sent.iter().sum::<u64>(), "{what}: the sum");
        assert_eq!(cost.most_sent, most(&sent), "{what}: the busiest sender");
        assert_eq!(cost.most_received, most(&received), "{what}: the busiest receiver");
        assert_eq!(cost.n_steps == 0, n_peers == 1, "{what}: the steps");
        paid += cost.total;
    }
    let all: u64 = outcome.peers.iter().map(|peer| peer.traffic.payload_sent).sum();
    assert_eq!(all, outcome.peers.iter().map(|peer| peer.traffic.payload_received).sum::<u64>());
    assert!(paid <= all, "{}", case.name());
    assert_eq!(meter.counted, all, "{}: what peers tell of is all that they sent", case.name());
}

#[test]
fn costs_are_what_is_sent() {
    let tiny = ToySize { n_features: 1, n_classes: 2, ..ToySize::default() };
    for case in case::all().iter().filter(|case| !case.depends_on_time()) {
        for n_peers in [1, 2, 3, 4, 7, 16] {
            check(case, n_peers, ToySize::default(), None);
            check(case, n_peers, ToySize::default(), Some(&[44]));
            // Fewer numbers than peers.
            check(case, n_peers, tiny, Some(&[1, 4]));
        }
    }
}

#[test]
fn costs_are_what_is_sent_of_long_vectors() {
    let long = ToySize { n_features: 20_000, n_classes: 10, ..ToySize::default() };
    let n_values = 11 * long.n_features + long.n_classes;
    assert!(n_values > 3 * SEGMENT_LEN);
    for case in case::all().iter().filter(|case| !case.depends_on_time()) {
        for n_peers in [2, 3] {
            check(case, n_peers, long, Some(&[1, n_values - 1 - SEGMENT_LEN, SEGMENT_LEN]));
        }
    }
}
