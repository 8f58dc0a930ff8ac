//! Peers in several networks, each with a best of its own: they differ within an epoch, and are one at its end.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::data::split::SplitRule;
use nettorrent_engine::job::{EvaluateSpec, Job, SwarmSpec};
use nettorrent_engine::scale::Scale;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Fault, Join, Observer, Outcome, Scenario, Simulation, Toy, What, When};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::strategy::CostQuestion;
use nettorrent_swarm::wire::{Frame, Kind};
use toml::{Table, Value};

use super::case::{self, Case};

/// Peers in so many networks, who exchange after every `samples` samples.
fn networks(n_networks: i64, samples: i64) -> Case {
    let options = [("networks", n_networks), ("samples", samples), ("validation", 10)];
    Case::new("best-peer", options.map(|(name, value)| (name.to_owned(), Value::from(value))).into_iter().collect())
}

/// Two networks of six with three sets each: an epoch has two or more exchanges.
fn job(epochs: u64) -> Job {
    let split = SplitRule::Groups { networks: 2, sets: 3 };
    let swarm = SwarmSpec { split, scale: Scale::None, ..SwarmSpec::default() };
    Job { epochs, batch: 3, swarm, ..case::job() }
}

fn run(case: &Case, job: Job, n_peers: usize, scenario: Scenario) -> Outcome {
    let outcome = Simulation::new(case.setup_for(Toy::new(7), job), n_peers, scenario).unwrap().run().unwrap();
    assert!(outcome.failures.is_empty() && outcome.refusals.is_empty(), "{:?}", outcome.refusals);
    outcome
}

#[test]
fn networks_learn_and_end_as_one() {
    let outcome = run(&networks(2, 6), job(8), 12, Scenario::lan());
    let first = &outcome.peers[0];
    assert!(outcome.peers.iter().all(|peer| peer.is_finished && peer.values == first.values));
    let accuracy = |record: &Record| {
        if let Event::Epoch { test_accuracy, .. } = record.event { Some(test_accuracy) } else { None }
    };
    let last = outcome.records.iter().rev().find_map(accuracy).unwrap();
    assert!(last > 0.8, "{last}");
    // Before they are brought together, the members of a network are equal, and networks are not.
    let mut sketches: BTreeMap<PeerId, Vec<u32>> = BTreeMap::new();
    for record in &outcome.records {
        if let Event::Replica { epoch: 1, sketch } = &record.event {
            sketches.insert(record.peer, sketch.iter().map(|x| x.to_bits()).collect());
        }
    }
    let sketches: Vec<Vec<u32>> = sketches.into_values().collect();
    assert!(sketches[..6].iter().all(|sketch| *sketch == sketches[0]));
    assert!(sketches[6..].iter().all(|sketch| *sketch == sketches[6]) && sketches[0] != sketches[6]);
}

#[test]
fn one_network_is_what_it_was() {
    let plain = Case::new(
        "best-peer",
        Table::from_iter([("validation".to_owned(), Value::from(10)), ("samples".to_owned(), Value::from(6))]),
    );
    let values = |case: &Case| run(case, job(2), 12, Scenario::lan()).peers[0].values.clone();
    assert_eq!(values(&networks(1, 6)), values(&plain));
    assert_ne!(values(&networks(2, 6)), values(&plain));
}

/// Counts bytes by round, and who hears from whom.
#[derive(Default)]
struct Meter {
    sent: BTreeMap<u32, BTreeMap<PeerId, u64>>,
    rounds: Vec<u32>,
}

impl Observer for Meter {
    fn record(&mut self, record: Record) {
        if let Event::Round { round, .. } = record.event {
            self.rounds.push(round - 1);
        }
    }

    fn frame(&mut self, _: Duration, from: PeerId, _: PeerId, frame: &Frame) {
        if frame.head.kind == Kind::Strategy {
            *self.sent.entry(frame.head.round).or_default().entry(from).or_default() += frame.body.len() as u64;
        }
    }
}

#[test]
fn a_round_costs_what_it_is_said_to() {
    for (n_networks, n_peers) in [(2, 12), (5, 12), (12, 12), (3, 7)] {
        let case = networks(n_networks, 6);
        let toy = Toy::new(7);
        let (buckets, n_params) = (toy.buckets().to_vec(), toy.n_params());
        let setup = case.setup_for(toy, Job { epochs: 1, batch: 12, ..case::equal_job() });
        let mut meter = Meter::default();
        Simulation::new(setup, n_peers, Scenario::lan()).unwrap().run_with(&mut meter).unwrap();
        let cost =
            case.strategy().cost(&CostQuestion { n_peers, buckets: &buckets, n_params, round: 0, site_sizes: &[] });
        assert!(!meter.rounds.is_empty());
        for round in meter.rounds {
            let sent = meter.sent.get(&round).cloned().unwrap_or_default();
            let (total, most) = (sent.values().sum::<u64>(), sent.values().copied().max().unwrap_or(0));
            assert_eq!(
                (total, most),
                (cost.total, cost.most_sent),
                "{n_networks} networks of {n_peers} in round {round}"
            );
        }
    }
}

#[test]
fn networks_survive_and_are_the_same_twice() {
    let evaluate = EvaluateSpec { every_batches: 10, ..EvaluateSpec::default() };
    for seed in 0..6 {
        let scenario = Scenario {
            seed,
            link: "100mbit/2ms".parse().unwrap(),
            spread: 0.5,
            deadline: Duration::from_millis(60),
            faults: vec![Fault { peer: 2 * seed as usize, when: When::Round(1 + seed as u32 % 3), what: What::Kill }],
            joins: vec![Join { at: Duration::from_millis(70) }],
            ..Scenario::lan()
        };
        let again = || run(&networks(2, 6), Job { evaluate: evaluate.clone(), ..job(3) }, 12, scenario.clone());
        let (first, second) = (again(), again());
        assert!(first.records == second.records, "seed {seed}");
        let values = &first.live().next().unwrap().values;
        assert!(first.live().all(|peer| peer.is_finished && peer.values == *values), "seed {seed}");
    }
}

#[test]
fn the_run_ends_when_the_mean_is_good_enough() {
    let mut case = networks(2, 6);
    case.options.insert("stop_at".to_owned(), Value::from(0.5));
    let outcome = run(&case, job(20), 12, Scenario::lan());
    let ended = outcome.records.iter().filter(|record| matches!(record.event, Event::Ended { .. })).count();
    assert_eq!(ended, 12, "all say so");
    assert!(outcome.peers.iter().all(|peer| peer.is_finished && peer.place.ledger.epoch < 20));
    assert!(outcome.peers.iter().all(|peer| peer.values == outcome.peers[0].values));
}
