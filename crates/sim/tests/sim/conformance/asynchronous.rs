//! Who trains asynchronously loses nothing and applies nothing twice, whoever comes and goes, and is never further ahead than allowed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::rng::{Rng, mix};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_sim::{Fault, Join, Observer, Scenario, Simulation, Stragglers, Toy, ToySize, What, When};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::sampling::ledger::{Ledger, Segment};
use nettorrent_swarm::{Peer, PeerId, Setup};
use toml::Value;

use super::case::{self, Case};

/// A task whose gradients depend on the samples alone, so that the sum of all changes does not depend on their order.
struct Fixed(Toy);

fn gradient_of(sample: usize, k: usize) -> f32 {
    (mix((sample as u64) << 32 | k as u64) % 2001) as f32 / 1000.0 - 1.0
}

impl Task for Fixed {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        self.0.init(seed)
    }

    fn labels(&self) -> &[u32] {
        self.0.labels()
    }

    fn n_test(&self) -> usize {
        self.0.n_test()
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Fixed {
    fn gradient(&self, _: &[f32], indices: &[usize], _: u64, sink: &mut GradientSink<'_>) -> Result<Score, TrainError> {
        let mut gradient = vec![0.0; self.n_values()];
        for (k, value) in gradient[..self.n_params()].iter_mut().enumerate() {
            *value = mean_gradient(indices, k);
        }
        self.buckets().iter().enumerate().for_each(|(k, bucket)| sink(k, &gradient[bucket.clone()]));
        Ok(Score { loss_sum: indices.len() as f64, n_correct: 0, n: indices.len(), ..Score::default() })
    }

    fn score(&self, values: &[f32], indices: &[usize]) -> Result<Score, TrainError> {
        self.0.score(values, indices)
    }

    fn test(&self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.0.test(values, samples)
    }
}

fn mean_gradient(indices: &[usize], k: usize) -> f32 {
    indices.iter().map(|&sample| gradient_of(sample, k)).sum::<f32>() / indices.len() as f32
}

/// A time in which the same members shared the samples that were left.
type Where = (u64, u32, Vec<Segment>, Vec<u64>);

/// Adds up what every batch should change, and remembers which of them count.
struct Accounts {
    setup: Arc<Setup>,
    /// How far everybody was before the last input.
    ledgers: BTreeMap<PeerId, Ledger>,
    /// The changes of every batch, by segment, slot and number.
    changes: BTreeMap<String, BTreeMap<(usize, u32), Vec<f64>>>,
    /// Of which segments which rounds count, by slot, as the witness saw it; none for all.
    witness: PeerId,
    counted: BTreeMap<String, Option<Vec<u32>>>,
}

fn key(place: &Where) -> String {
    format!("{place:?}")
}

fn place_of(ledger: &Ledger, segment: usize) -> Where {
    (ledger.epoch, ledger.start, ledger.segments[..segment].to_vec(), ledger.segments[segment].members.to_vec())
}

impl Accounts {
    fn new(setup: Arc<Setup>, witness: usize) -> Self {
        let witness = PeerId::new(witness as u32, 0);
        Self { setup, ledgers: BTreeMap::new(), changes: BTreeMap::new(), witness, counted: BTreeMap::new() }
    }

    /// What the parameters should be after all.
    fn expected(&self) -> Vec<f64> {
        let init = self.setup.training().task.init(self.setup.training().seed);
        let mut values: Vec<f64> = init.iter().map(|&value| f64::from(value)).collect();
        for (place, counted) in &self.counted {
            for (&(slot, clock), change) in self.changes.get(place).into_iter().flatten() {
                if counted.as_ref().is_none_or(|done| clock < done[slot]) {
                    values.iter_mut().zip(change).for_each(|(value, change)| *value += change);
                }
            }
        }
        values
    }
}

impl Observer for Accounts {
    fn record(&mut self, record: Record) {
        let Event::Round { lr, n_samples: 1.., .. } = record.event else { return };
        let ledger = &self.ledgers[&record.peer];
        let segment = ledger.segments.last().unwrap();
        let slot = segment.members.binary_search(&record.peer.0).unwrap();
        let (plan, clock) = (self.setup.training().sampler.plan(ledger), segment.done[slot]);
        let batch: Vec<usize> =
            plan.batches_in(slot, clock as usize).flat_map(|k| plan.batch(slot, k)).copied().collect();
        let share = batch.len() as f64 / plan.samples_in(clock as usize) as f64;
        let change = |k| -f64::from(lr) * share * f64::from(mean_gradient(&batch, k));
        let change = (0..self.setup.training().task.n_params()).map(change).collect();
        let key = key(&place_of(ledger, ledger.segments.len() - 1));
        assert!(self.changes.entry(key).or_default().insert((slot, clock), change).is_none(), "trained twice");
    }

    fn handled(&mut self, _: Duration, peer: PeerId, state: &dyn Peer) {
        let ledger = &state.place().ledger;
        let before = self.ledgers.insert(peer, ledger.clone());
        if peer != self.witness {
            return;
        }
        // What is forgotten when the next begins was trained to its end.
        if let Some(before) = before.filter(|before| (before.epoch, before.start) < (ledger.epoch, ledger.start))
            && let Some(last) = before.segments.len().checked_sub(1)
        {
            self.counted.insert(key(&place_of(&before, last)), None);
        }
        for (k, segment) in ledger.segments.iter().enumerate().rev().skip(1) {
            self.counted.insert(key(&place_of(ledger, k)), Some(segment.done.to_vec()));
        }
    }
}

/// Cases in which all that was learnt is in the parameters at the end.
fn cases() -> Vec<Case> {
    let keeps_nothing = |case: &Case| {
        let every = case.options.get("flush_every").and_then(Value::as_integer);
        !case.has_option("flush_every") || every == Some(1)
    };
    let cases: Vec<Case> = case::all()
        .into_iter()
        // What is clipped does not count in full.
        .filter(|case| case.is_asynchronous() && case.steps_are_its_own() && !case.is_robust())
        .filter(keeps_nothing)
        .collect();
    assert!(cases.len() > 3);
    cases
}

fn check(case: &Case, n_peers: usize, witness: usize, scenario: Scenario) {
    let what = format!("{}with {n_peers} peers in {scenario:?}", case.name());
    let toy = Toy::with_size(ToySize { n_train: 90, ..ToySize::default() }, 7);
    let optimizer = OptimizerSpec { lr: 0.1, ..OptimizerSpec::default() };
    let setup = case.setup_for(Fixed(toy), Job { epochs: 2, batch: 3, optimizer, ..case::job() });
    let mut accounts = Accounts::new(setup.clone(), witness);
    let outcome = Simulation::new(setup.clone(), n_peers, scenario).unwrap().run_with(&mut accounts).unwrap();
    assert!(outcome.refusals.is_empty(), "{what}: {:?}", outcome.refusals);
    let expected = accounts.expected();
    for peer in outcome.live() {
        for k in 0..setup.training().task.n_params() {
            let (value, expected) = (f64::from(peer.values[k]), expected[k]);
            // What rounding kept back for later is lost with what a peer had not told.
            let most =
                if case.option("codec").is_some_and(|codec| codec.as_str() != Some("f32")) { 1e-3 } else { 2e-4 };
            assert!((value - expected).abs() < most, "{what}: {} has {value} and not {expected} at {k}", peer.id);
        }
    }
}

fn uneven(seed: u64) -> Scenario {
    Scenario {
        seed,
        link: "100mbit/2ms".parse().unwrap(),
        spread: 0.5,
        jitter: Duration::from_millis(2),
        stragglers: Stragglers { share: 0.4, factor: 4.0 },
        deadline: Duration::from_millis(40),
        limit: Duration::from_secs(600),
        ..Scenario::lan()
    }
}

#[test]
fn every_change_is_in_all_parameters_exactly_once() {
    for case in cases() {
        for n_peers in [1, 2, 5] {
            check(&case, n_peers, 0, uneven(n_peers as u64));
        }
    }
}

#[test]
fn every_change_is_in_all_parameters_exactly_once_whoever_comes() {
    for case in cases() {
        for seed in 0..12 {
            let mut rng = Rng::new(seed);
            let joins = (0..2).map(|_| Join { at: Duration::from_micros(rng.below(60_000) as u64) }).collect();
            check(&case, 3, 0, Scenario { joins, ..uneven(seed) });
        }
    }
}

#[test]
fn every_change_that_counts_is_in_all_parameters_exactly_once_whoever_is_lost() {
    // What a peer that is killed had not told is lost; so here all is told at once.
    let tells_all = |case: &Case| {
        let number = |name: &str| case.options.get(name).and_then(Value::as_integer).unwrap_or(0);
        number("partitions") <= 1 && !case.options.contains_key("codec") && !case.has_keepers()
    };
    for case in cases().iter().filter(|case| tells_all(case)) {
        for seed in 0..25 {
            let mut rng = Rng::new(seed);
            let what = [What::Kill, What::Leave][rng.below(2)];
            let at = Duration::from_micros(rng.below(80_000) as u64);
            let faults = vec![Fault { peer: 1 + rng.below(3), when: When::At(at), what }];
            check(case, 4, 0, Scenario { faults, ..uneven(seed) });
        }
    }
}

#[test]
fn nobody_is_further_ahead_than_allowed() {
    // Who pushes to some and fetches from others is bound by what it gets back, not by who is where.
    let streams = |case: &Case| case.is_asynchronous() && !case.has_keepers();
    for case in case::all().iter().filter(|case| streams(case)) {
        let bound = case.option("staleness").and_then(|value| value.as_integer()).unwrap() as u32;
        let mut most = 0;
        let mut see = |record: Record| {
            if let Event::Round { staleness, .. } = record.event {
                most = most.max(staleness);
            }
        };
        let toy = Toy::with_size(ToySize { n_train: 200, ..ToySize::default() }, 7);
        let setup = case.setup_for(toy, Job { epochs: 1, batch: 4, ..case::job() });
        Simulation::new(setup, 4, uneven(5)).unwrap().run_with(&mut see).unwrap();
        assert!(most <= bound, "{}: {most} batches ahead", case.name());
        assert!(most >= bound.min(2), "{}: nobody is ever ahead", case.name());
    }
}
