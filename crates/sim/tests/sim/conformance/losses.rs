//! It survives: whoever is lost, at whatever step, the others go on, and every sample is counted once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::data::split::SplitRule;
use nettorrent_engine::job::Warmup;
use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_engine::rng::Rng;
use nettorrent_sim::{
    Fate, Fault, Join, Observer, Outcome, Partition, Scenario, Simulation, Stragglers, Toy, ToySize, What, When,
};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{Peer, PeerId, Setup, State};

use super::case::{self, Case};

const EPOCHS: u64 = 3;

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A round takes some ten milliseconds here; whoever is silent for sixty is given up.
fn scenario() -> Scenario {
    Scenario {
        link: "100mbit/2ms".parse().unwrap(),
        spread: 0.5,
        deadline: millis(60),
        limit: Duration::from_secs(600),
        ..Scenario::lan()
    }
}

/// Runs a case through a scenario and checks what must hold whatever happened.
fn survive(case: &Case, n_peers: usize, scenario: &Scenario) -> Outcome {
    survive_with(case, case.setup(EPOCHS), n_peers, scenario)
}

fn survive_with(case: &Case, setup: Arc<Setup>, n_peers: usize, scenario: &Scenario) -> Outcome {
    let what = || format!("{}with {n_peers} peers in {scenario:?}", case.name());
    let n_samples = EPOCHS * (setup.training().task.labels().len() - setup.training().sampler.held_out().len()) as u64;
    let outcome = match Simulation::new(setup, n_peers, scenario.clone()).unwrap().run() {
        Ok(outcome) => outcome,
        Err(error) => panic!("{}: {error}", what()),
    };
    assert!(outcome.refusals.is_empty(), "{}: {:?}", what(), outcome.refusals);
    assert!(outcome.failures.is_empty(), "{}: {:?}", what(), outcome.failures);
    for record in &outcome.records {
        if let Event::Epoch { epoch, n_test, .. } = record.event {
            assert!(n_test > 0, "{}: {} tells of epoch {epoch}, which nobody tested", what(), record.peer);
        }
    }
    let first = outcome.live().next().unwrap_or_else(|| panic!("{}: nobody is left", what()));
    assert!(first.values.iter().all(|value| value.is_finite()), "{}", what());
    for peer in outcome.live() {
        assert!(peer.is_finished, "{}: {} is not finished", what(), peer.id);
        assert_eq!(peer.place.version, first.place.version, "{}: {}", what(), peer.id);
        assert_eq!(peer.place.step, first.place.step, "{}: {}", what(), peer.id);
        assert_eq!(peer.place.ledger.epoch, EPOCHS, "{}: {}", what(), peer.id);
        assert_eq!(peer.place.version.n_samples, n_samples, "{}: {} counts every sample once", what(), peer.id);
        assert!(peer.values == first.values, "{}: {} and {} differ", what(), peer.id, first.id);
    }
    outcome
}

fn fault(peer: usize, when: When, what: What) -> Fault {
    Fault { peer, when, what }
}

#[test]
fn any_peer_may_be_lost_in_any_round() {
    for case in case::all() {
        for n_peers in [3, 5] {
            for peer in 0..n_peers {
                for round in [0, 1, 3, 4] {
                    for what in [What::Kill, What::Leave, What::Hang(millis(30)), What::Hang(millis(150))] {
                        let faults = vec![fault(peer, When::Round(round), what)];
                        let outcome = survive(&case, n_peers, &Scenario { faults, ..scenario() });
                        let is_back = matches!(what, What::Hang(_));
                        assert_eq!(outcome.live().count(), n_peers - usize::from(!is_back));
                    }
                }
            }
        }
    }
}

#[test]
fn any_peer_may_be_lost_at_any_time() {
    for case in case::defaults() {
        for n_peers in [2, 3] {
            for peer in 0..n_peers {
                for step in 0..60 {
                    let when = When::At(Duration::from_micros(700 * step));
                    let faults = vec![fault(peer, when, What::Kill)];
                    survive(&case, n_peers, &Scenario { faults, ..scenario() });
                }
            }
        }
    }
}

#[test]
fn two_may_be_lost_at_once_and_all_but_one() {
    for case in case::all() {
        for round in [0, 2, 3] {
            for (one, other) in [(0, 1), (0, 4), (2, 3)] {
                let faults = [one, other].map(|peer| fault(peer, When::Round(round), What::Kill)).to_vec();
                let outcome = survive(&case, 5, &Scenario { faults, ..scenario() });
                assert_eq!(outcome.live().count(), 3);
            }
            for last in 0..4 {
                let lost = (0..4).filter(|&peer| peer != last);
                let faults = lost.map(|peer| fault(peer, When::Round(round), What::Kill)).collect();
                let outcome = survive(&case, 4, &Scenario { faults, ..scenario() });
                let live: Vec<usize> = outcome.live().map(|peer| peer.id.join_index() as usize).collect();
                assert_eq!(live, [last]);
            }
        }
    }
}

#[test]
fn a_late_comer_gets_the_state_and_takes_part() {
    for case in case::all() {
        for (n_peers, at) in [(1, 5), (2, 1), (2, 17), (3, 26)] {
            let joins = vec![Join { at: millis(at) }];
            let outcome = survive(&case, n_peers, &Scenario { joins, ..scenario() });
            let late = &outcome.peers[n_peers];
            let events = || outcome.records.iter().filter(|record| record.peer == late.id).map(|record| &record.event);
            assert!(events().any(|event| matches!(event, Event::View { .. })), "{}", case.name());
            let trained: u64 = events()
                .map(|event| match event {
                    Event::Round { n_samples, .. } => *n_samples,
                    _ => 0,
                })
                .sum();
            assert!(trained > 0, "{}with {n_peers} peers: who came at {at} ms trained nothing", case.name());
        }
    }
}

#[test]
fn a_partition_heals() {
    for case in case::all() {
        for peers in [vec![0], vec![3], vec![0, 1], vec![1, 2, 3]] {
            for (from, lasts) in [(5, 20), (20, 100), (0, 150)] {
                let partition = Partition { peers: peers.clone(), from: millis(from), until: millis(from + lasts) };
                let outcome = survive(&case, 4, &Scenario { partitions: vec![partition], ..scenario() });
                assert_eq!(outcome.live().count(), 4);
            }
        }
    }
}

/// Sees that what a peer goes on from changes only when a round is done.
#[derive(Default)]
struct Steady {
    states: BTreeMap<PeerId, State>,
    n_views: usize,
}

impl Observer for Steady {
    fn record(&mut self, record: Record) {
        self.n_views += usize::from(matches!(record.event, Event::View { .. }));
    }

    fn handled(&mut self, _: Duration, id: PeerId, peer: &dyn Peer) {
        let state = peer.state().expect("it holds the whole");
        if let Some(before) = self.states.get(&id).filter(|before| before.place.version == state.place.version) {
            assert!(before.values == state.values, "{id}: other parameters in {:?}", state.place.version);
            assert!(before.optimizer == state.optimizer, "{id}: another memory in {:?}", state.place.version);
            assert!(
                before.strategy_state == state.strategy_state,
                "{id}: the strategy's state in {:?}",
                state.place.version
            );
        }
        self.states.insert(id, state);
    }
}

#[test]
fn a_round_that_is_void_leaves_no_trace() {
    // A copy of what owners have is fetched at any time.
    for case in case::all().into_iter().filter(|case| !case.has_keepers()) {
        for at in [6, 9, 14, 22, 30] {
            let faults = vec![fault(1, When::At(millis(at)), What::Leave)];
            let joins = vec![Join { at: millis(at + 11) }];
            let mut steady = Steady::default();
            let simulation = Simulation::new(case.setup(2), 3, Scenario { faults, joins, ..scenario() }).unwrap();
            println!("{}at {at} ms", case.name());
            simulation.run_with(&mut steady).unwrap();
            assert_eq!(steady.n_views, 3 + 2 + 3);
        }
    }
}

#[test]
fn whatever_happens_those_who_are_left_finish() {
    let cases = case::all();
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let case = &cases[rng.below(cases.len())];
        let (n_peers, scenario) = chaos(seed, &mut rng);
        // Sometimes there are fewer samples than peers.
        let size = ToySize { n_train: [5, 40, 120][rng.below(3)], ..ToySize::default() };
        let job = Job { epochs: EPOCHS, batch: [1, 3, 8][rng.below(3)], ..case::job() };
        println!("seed {seed}: {size:?}, batch {}", job.batch);
        survive_with(case, case.setup_for(Toy::with_size(size, 7), job), n_peers, &scenario);
    }
}

/// A few peers, and everything that can go wrong; but peer 0 or 1 lives.
fn chaos(seed: u64, rng: &mut Rng) -> (usize, Scenario) {
    let n_peers = 2 + rng.below(5);
    let survivor = rng.below(2);
    let mut any_time = || Duration::from_micros(rng.below(250_000) as u64);
    let joins: Vec<Join> = (0..seed % 4).map(|_| Join { at: any_time() }).collect();
    let (from, until) = (any_time(), any_time());
    let n_all = n_peers + joins.len();
    let faults = (0..rng.below(7))
        .map(|_| {
            let peer = rng.below(n_all);
            let hang = What::Hang(Duration::from_micros(rng.below(200_000) as u64));
            let what = if peer == survivor { hang } else { [What::Kill, What::Leave, hang][rng.below(3)] };
            let when = match rng.below(2) {
                0 => When::At(Duration::from_micros(rng.below(250_000) as u64)),
                _ => When::Round(rng.below(20) as u32),
            };
            fault(peer, when, what)
        })
        .collect();
    let peers = (0..n_all).filter(|_| rng.below(3) == 0).collect();
    let partition = Partition { peers, from: from.min(until), until: from.max(until) + millis(1) };
    let partitions = if rng.below(3) == 0 { vec![partition] } else { Vec::new() };
    let jitter = Duration::from_micros(rng.below(4000) as u64);
    let loss = [0.0, 0.0, 0.1][rng.below(3)];
    let stragglers = Stragglers { share: 0.3, factor: [1.0, 3.0, 30.0][rng.below(3)] };
    let deadline = millis([7, 20, 60][rng.below(3)]);
    (n_peers, Scenario { seed, faults, joins, partitions, jitter, loss, stragglers, deadline, ..scenario() })
}

#[test]
fn a_warm_up_ends_for_all_at_once_whoever_is_lost() {
    for case in case::defaults() {
        for seed in 0..30 {
            let mut rng = Rng::stream(seed, "warm-up", 0);
            let (n_peers, scenario) = chaos(seed, &mut rng);
            let warmup = [Warmup::AllData, Warmup::Dense, Warmup::OnePeer][seed as usize % 3];
            let split = [SplitRule::Random, SplitRule::Class][rng.below(2)];
            let swarm = SwarmSpec { warmup, warmup_epochs: 1 + seed % 2, split, ..SwarmSpec::default() };
            let job = Job { epochs: EPOCHS, batch: 8, swarm, ..case::job() };
            println!("seed {seed}");
            survive_with(&case, case.setup_for(Toy::new(7), job), n_peers, &scenario);
        }
    }
}

#[test]
fn a_peer_that_is_lost_is_said_to_be() {
    let case = &case::defaults()[0];
    for (what, fate) in [(What::Kill, Fate::Killed), (What::Leave, Fate::Left), (What::Hang(millis(1)), Fate::Live)] {
        let faults = vec![fault(1, When::At(millis(12)), what)];
        let outcome = survive(case, 3, &Scenario { faults, ..scenario() });
        assert_eq!(outcome.peers[1].fate, fate);
    }
}
