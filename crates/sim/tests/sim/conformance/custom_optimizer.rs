//! Workers with an optimizer of their own: every strategy trains with it as with one of ours.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::{EvaluateSpec, Job};
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_sim::{Join, Observer, Scenario, Simulation, Toy};
use nettorrent_swarm::record::{Event, Record};

use super::case;

const N_PEERS: usize = 3;

fn momentum() -> OptimizerSpec {
    OptimizerSpec { lr: 0.1, momentum: 0.9, weight_decay: 0.01, ..OptimizerSpec::default() }
}

/// The toy, with workers that take steps with their own optimizer.
struct WithOptimizer(Arc<Toy>);

impl Task for WithOptimizer {
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

    fn worker(self: Arc<Self>, n_threads: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(Stepping(self.0.clone().worker(n_threads)?)))
    }
}

/// Takes the vectors of a custom optimizer's state for those of momentum.
struct Stepping(Box<dyn Worker>);

impl Stepping {
    fn with_own<R>(&self, custom: &mut Optimizer, step: impl FnOnce(&mut Optimizer) -> R) -> R {
        assert!(custom.is_custom());
        let (n_steps, mut vectors) = custom.state_mut();
        let mut own = Optimizer::new(momentum(), self.layout().n_params());
        assert!(own.restore(*n_steps, |_| Some(vectors[0].to_vec())));
        let result = step(&mut own);
        let (n_after, mut after) = own.state();
        vectors[0].copy_from_slice(after.next().unwrap().1);
        *n_steps = n_after;
        result
    }
}

impl Worker for Stepping {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        self.0.gradient(values, samples, seed, sink)
    }

    fn apply(
        &mut self,
        lr: f32,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        gradient: &[Vec<f32>],
    ) -> Result<(), TrainError> {
        self.with_own(optimizer, |own| own.apply(lr, self.layout().buckets(), values, gradient));
        Ok(())
    }

    fn change(
        &mut self,
        lr: f32,
        values: &[f32],
        optimizer: &mut Optimizer,
        gradient: &mut [Vec<f32>],
    ) -> Result<(), TrainError> {
        self.with_own(optimizer, |own| own.change(lr, self.layout().buckets(), values, gradient));
        Ok(())
    }

    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        self.0.score(values, samples)
    }

    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.0.test(values, samples)
    }
}

#[test]
fn every_strategy_comes_to_the_same_with_an_optimizer_of_the_workers() {
    for case in case::defaults() {
        let job = |optimizer| Job { epochs: 3, batch: 8, optimizer, ..case::job() };
        let run = |setup| {
            let outcome = Simulation::new(setup, N_PEERS, Scenario::lan()).unwrap().run().unwrap();
            assert!(outcome.failures.is_empty(), "{}: {:?}", case.name(), outcome.failures);
            outcome.peers[0].values.clone()
        };
        let ours = run(case.setup_for(Toy::new(7), job(momentum())));
        let custom = OptimizerSpec { custom: Some(1), ..momentum() };
        let theirs = run(case.setup_for(WithOptimizer(Arc::new(Toy::new(7))), job(custom)));
        if case.is_asynchronous() {
            // Who does not wait for rounds hears of others a moment earlier or later.
            let off = ours.iter().zip(theirs.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(off < 0.2, "{}: {off}", case.name());
        } else {
            assert_eq!(ours, theirs, "{}", case.name());
        }
    }
}

#[test]
fn a_worker_that_has_the_parameters_for_many_batches_gives_them_back_for_tests_and_newcomers() {
    let case = case::Case::new("ring-all-reduce", toml::Table::new());
    let evaluate = EvaluateSpec { every_batches: 5, ..EvaluateSpec::default() };
    let job = |optimizer| Job { epochs: 3, batch: 8, optimizer, evaluate: evaluate.clone(), ..case::job() };
    let custom = OptimizerSpec { custom: Some(1), ..momentum() };
    let alone = |setup| {
        let mut seen = Evaluations::default();
        let outcome = Simulation::new(setup, 1, Scenario::lan()).unwrap().run_with(&mut seen).unwrap();
        (seen.0, outcome.peers[0].values.clone())
    };
    let ours = alone(case.setup_for(Toy::new(7), job(momentum())));
    let theirs = alone(case.setup_for(WithOptimizer(Arc::new(Toy::new(7))), job(custom.clone())));
    assert!(!ours.0.is_empty());
    assert_eq!(ours, theirs, "one peer comes to the same, tests and all");
    // Whenever somebody comes, it is let in after the batch that is being trained, and both end alike.
    for at_ms in [1, 3, 7, 20, 45] {
        let scenario = Scenario { joins: vec![Join { at: Duration::from_millis(at_ms) }], ..Scenario::lan() };
        let setup = case.setup_for(WithOptimizer(Arc::new(Toy::new(7))), job(custom.clone()));
        let outcome = Simulation::new(setup, 1, scenario).unwrap().run().unwrap();
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        let [first, second] = outcome.peers.as_slice() else { panic!("both are there") };
        assert_eq!(first.values, second.values, "joined at {at_ms} ms");
    }
}

/// The losses of all tests within epochs.
#[derive(Default)]
struct Evaluations(Vec<f64>);

impl Observer for Evaluations {
    fn record(&mut self, record: Record) {
        if let Event::Evaluation { test_loss, .. } = record.event {
            self.0.push(test_loss);
        }
    }
}
