//! Tests within epochs: where they are, that all peers tell the same of them, and that nothing is learnt from them.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::{EvaluateSpec, Job};
use nettorrent_sim::{Fault, Join, Outcome, Scenario, Simulation, Toy, What, When};
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::Event;

use super::case::{self, Case};

const N_TEST: u64 = 50;

fn by_batches(every_batches: u64) -> EvaluateSpec {
    EvaluateSpec { every_batches, ..EvaluateSpec::default() }
}

fn by_time(every_seconds: f64) -> EvaluateSpec {
    EvaluateSpec { every_seconds, ..EvaluateSpec::default() }
}

/// Two epochs of fifteen batches, as one machine counts.
fn run(case: &Case, job: Job, evaluate: EvaluateSpec, n_peers: usize, scenario: Scenario) -> Outcome {
    let setup = case.setup_for(Toy::new(7), Job { epochs: 2, batch: 8, evaluate, ..job });
    let outcome = Simulation::new(setup, n_peers, scenario).unwrap().run().unwrap();
    assert!(outcome.failures.is_empty() && outcome.refusals.is_empty(), "{}: {:?}", case.name(), outcome.refusals);
    outcome
}

fn bits(outcome: &Outcome) -> Vec<Vec<u32>> {
    outcome.peers.iter().map(|peer| peer.values.iter().map(|value| value.to_bits()).collect()).collect()
}

/// By peer, how many epochs were done at each test, and its loss.
fn told(outcome: &Outcome) -> BTreeMap<PeerId, Vec<(f64, f64)>> {
    let mut told: BTreeMap<PeerId, Vec<(f64, f64)>> = BTreeMap::new();
    for record in &outcome.records {
        if let Event::Evaluation { epoch, test_loss, n_test, .. } = record.event {
            assert_eq!(n_test, N_TEST, "a part of the test set is no result");
            told.entry(record.peer).or_default().push((epoch, test_loss));
        }
    }
    told
}

/// What all peers tell alike.
fn told_by_all(name: &str, outcome: &Outcome) -> Vec<(f64, f64)> {
    let told = told(outcome);
    assert_eq!(told.len(), outcome.peers.len(), "{name}: all tell");
    let first = told.values().next().unwrap().clone();
    assert!(told.values().all(|other| *other == first), "{name}: {told:?}");
    assert!(first.is_sorted_by(|a, b| a.0 < b.0), "{name}: {first:?}");
    first
}

#[test]
fn tests_within_epochs_change_nothing() {
    for case in case::all().into_iter().filter(|case| !case.depends_on_time()) {
        for (job, n_peers) in [(case::job(), 3), (case::equal_job(), 3), (case::job(), 1)] {
            let expected = run(&case, job.clone(), EvaluateSpec::default(), n_peers, Scenario::lan());
            assert!(told(&expected).is_empty());
            for evaluate in [by_batches(4), by_time(0.02)] {
                let hint = format!("{}: {n_peers} peers, {evaluate:?}", case.name());
                let outcome = run(&case, job.clone(), evaluate, n_peers, Scenario::lan());
                assert!(bits(&outcome) == bits(&expected), "{hint}");
                assert_eq!(outcome.peers[0].place, expected.peers[0].place, "{hint}");
                if case.option("samples").is_none() && case.option("local_steps").is_none() {
                    assert!(told_by_all(&hint, &outcome).len() >= 2, "{hint}");
                }
            }
        }
    }
}

#[test]
fn they_are_after_the_batches_that_one_machine_counts() {
    // After every fourth of all batches, but where the test at the epoch's end is.
    let expected: Vec<u64> = vec![4, 8, 12, 16, 20, 24, 28];
    let batches = |told: &[(f64, f64)]| told.iter().map(|(epoch, _)| (15.0 * epoch).round() as u64).collect::<Vec<_>>();
    for case in case::defaults() {
        if case.averages_gradients_exactly() {
            let told = told_by_all(&case.name(), &run(&case, case::job(), by_batches(4), 1, Scenario::lan()));
            assert_eq!(batches(&told), expected, "{}", case.name());
            let together = run(&case, case::job(), by_batches(4), 3, Scenario::lan());
            let together = told_by_all(&case.name(), &together);
            assert_eq!(batches(&together), expected, "{}", case.name());
            for (one, other) in told.iter().zip(&together) {
                assert!((one.1 - other.1).abs() < 1e-4, "{}: the same model: {one:?} {other:?}", case.name());
            }
        }
    }
}

#[test]
fn asynchronous_strategies_are_evaluated_too_and_the_same_bytes_come_again() {
    for case in case::defaults() {
        for evaluate in [by_batches(3), by_time(0.03)] {
            let slow = Scenario { jitter: Duration::from_millis(2), ..Scenario::wan() };
            let again = || run(&case, case::job(), evaluate.clone(), 4, slow.clone());
            let (first, second) = (again(), again());
            assert!(first.records == second.records && bits(&first) == bits(&second), "{}", case.name());
            // By default it exchanges once an epoch of so few samples, and tests are after exchanges.
            if !case.has_option("samples") {
                assert!(!told_by_all(&case.name(), &first).is_empty(), "{}: {evaluate:?}", case.name());
            }
        }
    }
}

#[test]
fn they_go_on_when_somebody_is_lost_or_comes() {
    for case in case::defaults() {
        for evaluate in [by_batches(1), by_time(0.01)] {
            for seed in 0..3 {
                let scenario = Scenario {
                    seed,
                    link: "100mbit/2ms".parse().unwrap(),
                    spread: 0.5,
                    deadline: Duration::from_millis(60),
                    faults: vec![Fault { peer: seed as usize, when: When::Round(3), what: What::Kill }],
                    joins: vec![Join { at: Duration::from_millis(90) }],
                    ..Scenario::lan()
                };
                let outcome = run(&case, case::job(), evaluate.clone(), 4, scenario);
                assert!(outcome.live().all(|peer| peer.is_finished), "{}", case.name());
                let after = |(epoch, _): &(f64, f64)| *epoch > 1.0;
                let n_after = told(&outcome).values().map(|told| told.iter().filter(|test| after(test)).count()).max();
                assert!(n_after > Some(0) || case.has_option("local_steps"), "{}: {evaluate:?}", case.name());
            }
        }
    }
}
