//! What is predicted, held against the simulator, which runs the real strategies over such links.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_advise::{Situation, StepTime, predict};
use nettorrent_engine::job::{Job, SwarmSpec, Work};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_engine::task::Task;
use nettorrent_sim::{Outcome, Scenario, Simulation, Toy, ToySize, Traffic};
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::record::Event;
use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategy::{Cost, Payload, Spec};
use nettorrent_swarm::{PeerId, Setup};

const BATCH: usize = 2;
const N_BATCHES: usize = 20;
const SAMPLE_TIME: Duration = Duration::from_millis(10);

/// By how much exchanges in rounds may take longer or shorter than was predicted, with many peers and with two.
const FACTOR: f64 = 1.25;
const FACTOR_OF_TWO: f64 = 2.0;
/// The same of asynchronous strategies, once it is known what they say.
const FACTOR_OF_FREE: f64 = 1.6;

/// What was predicted of an epoch, and how long it took, in seconds.
struct Pair {
    name: &'static str,
    is_asynchronous: bool,
    predicted_s: f64,
    simulated_s: f64,
}

fn toy(n_peers: usize) -> Toy {
    let n_train = n_peers * BATCH * N_BATCHES;
    Toy::with_size(ToySize { n_features: 10_000, n_classes: 2, n_train, n_test: 1 }, 1)
}

fn simulate(spec: &Spec, n_peers: usize, link: LinkSpec) -> Outcome {
    let swarm =
        SwarmSpec { strategy: spec.name.to_owned(), scale: Scale::None, work: Work::Equal, ..SwarmSpec::default() };
    let job = Job { swarm, epochs: 1, batch: BATCH, ..Job::default() };
    let setup = Arc::new(Setup::new(&job, Arc::new(toy(n_peers))).expect("a job for swarms"));
    let scenario = Scenario { link, sample_time: SAMPLE_TIME, deadline: Duration::MAX, ..Scenario::lan() };
    let simulation = Simulation::new(setup, n_peers, scenario).expect("a scenario that makes sense");
    simulation.run().expect("it comes to an end")
}

/// How long the slowest peer was in its rounds: without tests, and without what comes before and after.
fn seconds_in_rounds(outcome: &Outcome) -> f64 {
    let mut peers: BTreeMap<PeerId, f64> = BTreeMap::new();
    for record in &outcome.records {
        if let Event::Round { compute_s, wait_s, .. } = record.event {
            *peers.entry(record.peer).or_default() += compute_s + wait_s;
        }
    }
    peers.into_values().fold(0.0, f64::max)
}

/// What a batch cost in the mean.
fn observed(outcome: &Outcome) -> Cost {
    let of = |of: fn(&Traffic) -> u64| outcome.peers.iter().map(move |peer| of(&peer.traffic) / N_BATCHES as u64);
    let most = |bytes: &mut dyn Iterator<Item = u64>| bytes.max().unwrap_or(0);
    Cost {
        total: of(|traffic| traffic.payload_sent).sum(),
        most_sent: most(&mut of(|traffic| traffic.payload_sent)),
        most_received: most(&mut of(|traffic| traffic.payload_received)),
        n_steps: 1,
    }
}

fn compare(spec: &'static Spec, n_peers: usize, link: LinkSpec) -> Pair {
    let (toy, outcome) = (toy(n_peers), simulate(spec, n_peers, link));
    let strategy = (spec.build)(&(spec.defaults)()).expect("defaults are right");
    let situation = Situation {
        n_peers,
        buckets: toy.buckets(),
        n_params: toy.n_params(),
        optimizer: &OptimizerSpec::default(),
        n_train: toy.labels().len(),
        epochs: 1,
        batch: BATCH,
        scale: Scale::None,
        step: StepTime { sample_s: SAMPLE_TIME.as_secs_f64(), ..StepTime::default() },
        link,
        messages: None,
        slowdown: 1.0,
    };
    let is_asynchronous = strategy.round_plan().payload == Payload::Updates;
    let told = predict(&*strategy, &situation, None);
    assert_eq!(told.is_bound, strategy.cost_is_upper_bound(), "{}", spec.name);
    let predicted = predict(&*strategy, &situation, told.is_bound.then(|| observed(&outcome)));
    assert!((0.0..=1.0).contains(&predicted.wait_share), "{}: {predicted:?}", spec.name);
    // Who trains asynchronously waits for all at the end only, when no round is left.
    let simulated_s = if is_asynchronous { outcome.time.as_secs_f64() } else { seconds_in_rounds(&outcome) };
    Pair { name: spec.name, is_asynchronous, predicted_s: predicted.epoch_s, simulated_s }
}

#[test]
fn strategies_take_as_long_as_was_predicted() {
    for n_peers in [2, 4, 8] {
        for link in ["1gbit/200us", "100mbit/10ms", "5mbit/1ms"] {
            let shape: LinkSpec = link.parse().expect("a link");
            let pairs: Vec<Pair> = STRATEGIES.iter().map(|spec| compare(spec, n_peers, shape)).collect();
            let mut largest: f64 = 1.0;
            for Pair { name, is_asynchronous, predicted_s, simulated_s } in &pairs {
                let factor = match (is_asynchronous, n_peers) {
                    (true, _) => FACTOR_OF_FREE,
                    (false, 2) => FACTOR_OF_TWO,
                    (false, _) => FACTOR,
                };
                largest = largest.max(factor);
                let what =
                    format!("{name}, {n_peers} peers, {link}: predicted {predicted_s} s, simulated {simulated_s} s");
                assert!(*predicted_s < factor * simulated_s && *simulated_s < factor * predicted_s, "{what}");
            }
            let best = |of: fn(&Pair) -> f64| {
                pairs.iter().min_by(|a, b| of(a).total_cmp(&of(b))).expect("there are strategies")
            };
            let (chosen, truly) = (best(|pair| pair.predicted_s), best(|pair| pair.simulated_s));
            assert!(
                chosen.simulated_s < largest * truly.simulated_s,
                "{n_peers} peers, {link}: {} was predicted to be the best, and {} was",
                chosen.name,
                truly.name
            );
        }
    }
}
