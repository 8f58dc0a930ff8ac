//! The simulated host keeps its promises: time, threads, faults, and an answer when nothing goes on.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::{Job, SwarmSpec, Work};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_sim::{
    Churn, Fate, Fault, Join, Outcome, Partition, Scenario, Simulation, SimulationError, Slow, Stragglers, Toy,
    ToySize, What, When,
};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{Phase, Setup};

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Every peer has batches of its own, as many as any other.
fn setup_of(toy: Toy, epochs: u64, batch: usize) -> Arc<Setup> {
    let swarm = SwarmSpec { scale: Scale::None, work: Work::Equal, ..SwarmSpec::default() };
    Arc::new(Setup::new(&Job { epochs, batch, swarm, ..Job::default() }, Arc::new(toy)).unwrap())
}

/// 120 samples in batches of 10, and 60 to test.
fn setup() -> Arc<Setup> {
    setup_of(Toy::with_size(ToySize { n_test: 60, ..ToySize::default() }, 1), 2, 10)
}

fn run(n_peers: usize, scenario: Scenario) -> Outcome {
    Simulation::new(setup(), n_peers, scenario).unwrap().run().unwrap()
}

fn views(outcome: &Outcome) -> Vec<(u32, Vec<u32>, f64)> {
    let view = |record: &Record| match &record.event {
        Event::View { view, members, .. } => {
            Some((*view, members.iter().map(|member| member.join_index()).collect(), record.at_s))
        }
        _ => None,
    };
    outcome.records.iter().filter_map(view).collect()
}

#[test]
fn computing_takes_its_time() {
    let instant = Scenario { link: "0s".parse().unwrap(), ..Scenario::lan() };
    // Two epochs of 120 samples at a millisecond, and 60 tests at a third of one.
    assert_eq!(run(1, instant.clone()).time, millis(2 * (120 + 20)));
    // Two peers share both.
    assert_eq!(run(2, instant.clone()).time, millis(2 * (60 + 10)));
    let stragglers = Stragglers { share: 0.5, factor: 3.0 };
    assert_eq!(run(2, Scenario { stragglers, ..instant }).time, millis(3 * 2 * (60 + 10)));
}

#[test]
fn who_is_slow_gets_less_to_do_and_holds_nobody_up() {
    let toy = Toy::with_size(ToySize { n_train: 2000, n_test: 60, ..ToySize::default() }, 1);
    let setup = Arc::new(Setup::new(&Job { epochs: 2, batch: 40, ..Job::default() }, Arc::new(toy)).unwrap());
    let instant = Scenario { link: "0s".parse().unwrap(), ..Scenario::lan() };
    let slow = |factor: f64| vec![Slow { peer: 1, factor, from: millis(0), until: Duration::MAX }];
    for factor in [1.0, 3.0, 10.0] {
        let scenario = Scenario { slow: slow(factor), ..instant.clone() };
        let time = Simulation::new(setup.clone(), 4, scenario).unwrap().run().unwrap().time.as_secs_f64();
        let ideal = 2.0 * (2.0 + 0.02) / (3.0 + 1.0 / factor);
        assert!(time < 1.1 * ideal, "{factor} times slower: {time} s, where {ideal} s are ideal");
    }
}

#[test]
fn exchanges_overlap_with_computing() {
    let size = ToySize { n_features: 1000, n_classes: 4, n_train: 40, n_test: 0 };
    let run = |lens: &[usize]| {
        let setup = setup_of(Toy::with_size(size, 1).with_buckets(lens), 1, 10);
        // A round trains for 10 ms; the vector of 20 kB goes both ways, in halves, in as much.
        let scenario = Scenario { link: "16mbit/10us".parse().unwrap(), ..Scenario::lan() };
        Simulation::new(setup, 2, scenario).unwrap().run().unwrap().time
    };
    let (whole, parts) = (run(&[5004]), run(&[1251; 4]));
    assert!(whole > millis(2 * 20), "{whole:?}: nothing overlaps if all comes at the end");
    assert!(parts < millis(2 * 17), "{parts:?}: three quarters are under way before the end");
}

#[test]
fn what_goes_over_the_links_is_counted_at_both_ends() {
    let outcome = run(3, Scenario::wan());
    let sum =
        |of: fn(&nettorrent_sim::Traffic) -> u64| -> u64 { outcome.peers.iter().map(|peer| of(&peer.traffic)).sum() };
    assert!(sum(|traffic| traffic.payload_sent) > 0);
    assert_eq!(sum(|traffic| traffic.payload_sent), sum(|traffic| traffic.payload_received));
    assert_eq!(sum(|traffic| traffic.bytes_sent), sum(|traffic| traffic.bytes_received));
    assert_eq!(sum(|traffic| traffic.frames_sent), sum(|traffic| traffic.frames_received));
    assert!(sum(|traffic| traffic.bytes_sent) > sum(|traffic| traffic.payload_sent));
    assert!(outcome.n_events >= 2 * sum(|traffic| traffic.frames_sent));
}

#[test]
fn records_are_kept_or_handed_on() {
    let kept = run(2, Scenario::lan());
    let mut seen = Vec::new();
    let simulation = Simulation::new(setup(), 2, Scenario::lan()).unwrap();
    let outcome = simulation.run_with(&mut |record| seen.push(record)).unwrap();
    assert!(outcome.records.is_empty());
    assert!(!seen.is_empty() && seen == kept.records);
    assert!(seen.is_sorted_by_key(|record| record.at_s));
}

#[test]
fn views_come_when_the_scenario_says() {
    let scenario = Scenario { link: "1gbit/4ms".parse().unwrap(), deadline: millis(30), ..Scenario::lan() };
    let one = |what| vec![Fault { peer: 1, when: When::At(millis(20)), what }];
    let told = |scenario: Scenario| views(&run(3, scenario));
    let expect = |views: Vec<(u32, Vec<u32>, f64)>, number: u32, members: &[u32], after_s: f64| {
        let of_number: Vec<_> = views.iter().filter(|view| view.0 == number).collect();
        assert_eq!(of_number.len(), members.len(), "{views:?}");
        for (_, members_told, at_s) in of_number {
            assert_eq!(members_told, members);
            // Agreeing takes a few delays more.
            assert!((after_s..after_s + 0.020).contains(at_s), "after {at_s} s");
        }
    };
    expect(told(scenario.clone()), 1, &[0, 1, 2], 0.0);
    expect(told(Scenario { faults: one(What::Kill), ..scenario.clone() }), 2, &[0, 2], 0.050);
    expect(told(Scenario { faults: one(What::Leave), ..scenario.clone() }), 2, &[0, 2], 0.024);
    let hung = told(Scenario { faults: one(What::Hang(millis(40))), ..scenario.clone() });
    expect(hung.clone(), 2, &[0, 2], 0.050);
    expect(hung, 3, &[0, 1, 2], 0.060);
    assert_eq!(told(Scenario { faults: one(What::Hang(millis(29))), ..scenario.clone() }).len(), 3);
    expect(told(Scenario { joins: vec![Join { at: millis(7) }], ..scenario.clone() }), 2, &[0, 1, 2, 3], 0.007);
    let cut = |until| vec![Partition { peers: vec![0], from: millis(10), until: millis(until) }];
    let healed = told(Scenario { partitions: cut(80), ..scenario.clone() });
    expect(healed.clone(), 2, &[1, 2], 0.040);
    expect(healed.clone(), 3, &[0], 0.040);
    expect(healed, 4, &[0, 1, 2], 0.080);
    assert_eq!(told(Scenario { partitions: cut(40), ..scenario }).len(), 3, "nobody noticed");
}

#[test]
fn a_view_lasts_as_long_as_it_has_to_and_the_next_one_has_all_news() {
    let joins = [7, 9, 30].map(|at| Join { at: millis(at) }).to_vec();
    let scenario = Scenario { joins, view_lasts: millis(50), ..Scenario::lan() };
    let told = views(&run(3, scenario));
    let numbers: std::collections::BTreeSet<u32> = told.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [1, 2]);
    for (_, members, at_s) in told.iter().filter(|(number, ..)| *number == 2) {
        assert_eq!((members.len(), (0.05..0.07).contains(at_s)), (6, true), "{at_s}");
    }
}

#[test]
fn a_view_of_many_is_agreed_on_before_one_uplink_could_tell_all_of_them() {
    const N_PEERS: usize = 400;
    // The first member's word is some 1,250 bytes, which take its uplink 4 s if it tells them to all.
    let scenario =
        Scenario { link: "1mbit/20ms".parse().unwrap(), deadline: millis(300), limit: millis(2000), ..Scenario::lan() };
    let n_agreed = |scenario: Scenario, number: u32| {
        let toy = Toy::with_size(ToySize { n_train: 10 * N_PEERS, ..ToySize::default() }, 1);
        let (mut n_agreed, simulation) = (0, Simulation::new(setup_of(toy, 1, 10), N_PEERS, scenario).unwrap());
        let outcome = simulation.run_with(&mut |record: Record| {
            n_agreed += usize::from(matches!(record.event, Event::View { view, .. } if view == number));
        });
        assert!(matches!(outcome, Err(SimulationError::TimeLimit { .. })), "a round takes longer");
        n_agreed
    };
    assert_eq!(n_agreed(scenario.clone(), 1), N_PEERS);
    // Who should have passed it on is gone before it comes.
    let faults = vec![Fault { peer: 1, when: When::At(millis(30)), what: What::Kill }];
    assert_eq!(n_agreed(Scenario { faults, ..scenario }, 2), N_PEERS - 1);
}

#[test]
fn peers_come_and_go_and_their_number_stays() {
    let churn = Churn { median_stay: Duration::from_secs(1), killed: 0.5 };
    let scenario = Scenario { churn: Some(churn), deadline: millis(100), ..Scenario::lan() };
    let size = ToySize { n_train: 4000, ..ToySize::default() };
    let outcome = Simulation::new(setup_of(Toy::with_size(size, 1), 2, 10), 8, scenario).unwrap().run().unwrap();
    let n = |fate: Fate| outcome.peers.iter().filter(|peer| peer.fate == fate).count();
    assert_eq!(n(Fate::Live), 8);
    assert!(n(Fate::Left) > 0 && n(Fate::Killed) > 0, "{} left and {} were killed", n(Fate::Left), n(Fate::Killed));
    let live: Vec<_> = outcome.live().filter(|peer| peer.is_finished).collect();
    assert!(live.iter().all(|peer| peer.values == live[0].values));
}

#[test]
fn who_waits_for_whom_is_said_when_nothing_goes_on() {
    let faults = vec![Fault { peer: 1, when: When::Round(2), what: What::Kill }];
    let for_ever = Scenario { faults: faults.clone(), deadline: Duration::MAX, ..Scenario::lan() };
    let error = Simulation::new(setup(), 3, for_ever).unwrap().run().unwrap_err();
    let SimulationError::Deadlock { peers, .. } = &error else { panic!("{error}") };
    assert_eq!(peers.len(), 2, "the dead are not waited for");
    assert!(peers.iter().all(|peer| peer.status.phase == Phase::Exchanging && peer.status.round == 2));
    let text = error.to_string();
    assert!(text.contains("peer 2: Exchanging, epoch 0, round 2, waits for peer 1"), "{text}");

    let too_long = Scenario { faults, deadline: Duration::from_secs(100), limit: millis(500), ..Scenario::lan() };
    let error = Simulation::new(setup(), 3, too_long).unwrap().run().unwrap_err();
    assert!(matches!(&error, SimulationError::TimeLimit { peers, .. } if peers.len() == 2), "{error}");
}

#[test]
fn who_cannot_go_on_says_why_and_goes() {
    let optimizer = OptimizerSpec { lr: 1e38, ..OptimizerSpec::default() };
    let job = Job { epochs: 2, batch: 10, optimizer, ..Job::default() };
    let setup = Arc::new(Setup::new(&job, Arc::new(Toy::new(1))).unwrap());
    let outcome = Simulation::new(setup, 3, Scenario::lan()).unwrap().run().unwrap();
    assert!(outcome.peers.iter().all(|peer| peer.fate == Fate::Failed && !peer.is_finished));
    assert_eq!(outcome.failures.len(), 3);
    assert!(outcome.failures[0].problem.contains("Lower optimizer.lr"), "{}", outcome.failures[0].problem);
}

#[test]
fn a_run_can_go_on_from_a_state() {
    let task = setup().training().task.clone();
    let outcome = run(2, Scenario::lan());
    let longer = Arc::new(Setup::new(&Job { epochs: 4, batch: 10, ..Job::default() }, task.clone()).unwrap());
    let mut state = nettorrent_swarm::State::from_values(longer.training(), outcome.peers[0].values.to_vec());
    state.place = outcome.peers[0].place.clone();
    let more = Simulation::from_state(longer, state, 3, Scenario::lan()).unwrap().run().unwrap();
    assert!(more.peers.iter().all(|peer| peer.is_finished && peer.place.ledger.epoch == 4));
    assert_eq!(more.peers[0].place.version.n_samples, 4 * task.labels().len() as u64);
}
