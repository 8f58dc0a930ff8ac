//! A peer whose messages are well made and whose numbers are not: who sends none is named, who sends wrong ones is outvoted.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_sim::{Rehearsal, Scenario, Simulation, Toy, corrupted};
use nettorrent_swarm::State;
use nettorrent_swarm::record::Event;
use nettorrent_swarm::strategy::AnyStrategy;

use super::case::{self, Case};
use super::hostile::id;

/// The same strategy with other numbers.
fn lying(honest: AnyStrategy, lie: fn(f32) -> f32) -> AnyStrategy {
    corrupted(honest, move |_, numbers| numbers.into_iter().map(lie).collect())
}

fn host_with_liar(case: &Case, n_peers: usize, liar: usize, lie: fn(f32) -> f32) -> Rehearsal {
    let setup = case.setup(EPOCHS);
    let mut host = Rehearsal::new(setup.clone(), n_peers).unwrap();
    let strategy = lying(setup.strategy(), lie);
    host.peers[liar] = setup.peer_with_strategy(id(liar), strategy, State::fresh(setup.training()));
    host
}

const EPOCHS: u64 = 6;

#[test]
fn who_sends_numbers_that_are_none_is_named() {
    let lies: [fn(f32) -> f32; 2] = [|_| f32::NAN, |x| if x > 0.0 { f32::NAN } else { x }];
    for case in case::all() {
        for (n_peers, liar) in [(2, 1), (3, 0), (4, 2), (4, 3)] {
            for lie in lies {
                let what = format!("{}peer {liar} of {n_peers}", case.name());
                let mut host = host_with_liar(&case, n_peers, liar, lie);
                host.run(|_, _, _| {});
                // It may outvote itself, or keep what it makes of its lies to itself, and then it cannot go on.
                let is_harmless = host.gone[liar] || (case.is_robust() && liar == 0) || case.sends_only_the_best();
                assert!(is_harmless || !host.refused.is_empty(), "{what}: nobody has seen it");
                for (k, (from, malformed)) in host.refused.iter().enumerate() {
                    assert_eq!(*from, id(liar), "{what}: {malformed}");
                    // What it says after the first is refused for whatever reason: it would be cut off by then.
                    assert!(k > 0 || malformed.to_string().contains("none"), "{what}: {malformed}");
                }
                if !host.gone[liar] {
                    host.give_up(liar);
                    host.run(|_, _, _| {});
                }
                assert!(host.is_over(), "{what}");
                let honest = &host.peers[(liar + 1) % n_peers];
                assert!(honest.values().iter().all(|value| value.is_finite()), "{what}");
            }
        }
    }
}

/// How the loss on test samples ends, compared with what it was, at a peer that tells the truth.
fn loss_with_liar(case: &Case, liar: usize, lie: fn(f32) -> f32) -> f64 {
    let mut host = host_with_liar(case, 5, liar, lie);
    host.run(|_, _, _| {});
    let is_gone = |peer: usize| host.gone[peer] && (peer != liar || !case.is_robust());
    if (0..host.gone.len()).any(is_gone) {
        // With such numbers somebody could not go on. A liar alone may ruin itself.
        return f64::INFINITY;
    }
    assert!(host.is_over(), "{}", case.name());
    assert!(host.refused.is_empty(), "{}: {:?}", case.name(), host.refused);
    let task = &host.setup().training().task;
    let mut worker = task.clone().worker(1).unwrap();
    let mut loss = |values: &[f32]| worker.test(values, 0..task.n_test()).unwrap().loss();
    loss(&host.peers[(liar + 1) % 5].values()) / loss(&task.init(host.setup().training().seed))
}

#[test]
fn who_sends_wrong_numbers_spoils_a_mean_and_is_outvoted_where_that_is_asked_for() {
    let lies: [fn(f32) -> f32; 3] = [|x| -50.0 * x - 3.0, |_| 1e6, |x| if x > 0.0 { -1e30 } else { 1e30 }];
    let mut n_robust = 0;
    for case in case::all().iter().filter(|case| case.aggregation().is_some() && !case.depends_on_time()) {
        n_robust += usize::from(case.is_robust());
        // The manager makes the result: if it lies, nobody can tell.
        for liar in [1, 4] {
            let losses = lies.map(|lie| loss_with_liar(case, liar, lie));
            let n_good = losses.iter().filter(|&&loss| loss < 0.8).count();
            // A swarm that diverges may go back and recover from some lies, if the liar is lost meanwhile.
            let is_expected = if case.is_robust() { n_good == lies.len() } else { n_good < lies.len() };
            assert!(is_expected, "{}peer {liar} lies: {losses:?}", case.name());
        }
    }
    assert!(n_robust >= 5);
}

/// A toy with one sample at which the loss is a number and its slope is none.
struct Cliff(Toy);

const AT_THE_CLIFF: usize = 17;

impl Task for Cliff {
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

impl Stateless for Cliff {
    fn gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let mut sink_with_cliff = |bucket: usize, numbers: &[f32]| {
            let mut numbers = numbers.to_vec();
            if bucket == 1 && indices.contains(&AT_THE_CLIFF) {
                numbers[2] = f32::INFINITY;
            }
            sink(bucket, &numbers);
        };
        self.0.gradient(values, indices, seed, &mut sink_with_cliff)
    }

    fn score(&self, values: &[f32], indices: &[usize]) -> Result<Score, TrainError> {
        self.0.score(values, indices)
    }

    fn test(&self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.0.test(values, samples)
    }
}

#[test]
fn a_gradient_that_is_no_number_costs_its_sample_and_goes_to_nobody() {
    for case in case::all().into_iter().filter(|case| !case.strategy().survives_divergence()) {
        let setup = case.setup_for(Cliff(Toy::new(7)), Job { epochs: 2, batch: 8, ..case::job() });
        let outcome = Simulation::new(setup, 3, Scenario::lan()).unwrap().run().unwrap();
        assert!(outcome.refusals.is_empty() && outcome.failures.is_empty(), "{}: {:?}", case.name(), outcome.failures);
        let named =
            |event: &Event| if let Event::LeftOut { samples, .. } = event { Some(samples.clone()) } else { None };
        let left_out: Vec<Vec<usize>> = outcome.records.iter().filter_map(|record| named(&record.event)).collect();
        assert!(!left_out.is_empty() && left_out.iter().all(|samples| samples == &[AT_THE_CLIFF]), "{}", case.name());
        assert!(outcome.peers.iter().all(|peer| peer.is_finished), "{}", case.name());
    }
}
