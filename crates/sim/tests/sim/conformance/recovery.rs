//! A swarm that diverges goes back with half the learning rate, and stops with an error only after a few times.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nettorrent_engine::job::Job;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_sim::{Scenario, Simulation, Toy};
use nettorrent_swarm::record::Event;

use super::case;

/// A toy whose gradients are no numbers for a while, whatever the samples; or always for one sample.
struct Broken {
    toy: Toy,
    n_computed: AtomicUsize,
    when: Range<usize>,
    sample: Option<usize>,
}

impl Broken {
    fn for_a_while(when: Range<usize>) -> Self {
        Self { toy: Toy::new(7), n_computed: AtomicUsize::new(0), when, sample: None }
    }

    fn at(sample: usize) -> Self {
        Self { sample: Some(sample), ..Self::for_a_while(0..0) }
    }
}

impl Task for Broken {
    fn layout(&self) -> &Layout {
        self.toy.layout()
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        self.toy.init(seed)
    }

    fn labels(&self) -> &[u32] {
        self.toy.labels()
    }

    fn n_test(&self) -> usize {
        self.toy.n_test()
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Broken {
    fn gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let n_before = self.n_computed.fetch_add(1, Ordering::Relaxed);
        let is_bad = self.sample.is_some_and(|sample| indices.contains(&sample));
        if !self.when.contains(&n_before) && !is_bad {
            return self.toy.gradient(values, indices, seed, sink);
        }
        self.buckets().iter().enumerate().for_each(|(k, bucket)| sink(k, &vec![f32::NAN; bucket.len()]));
        Ok(Score { loss_sum: f64::NAN, n_correct: 0, n: indices.len(), ..Score::default() })
    }

    fn score(&self, values: &[f32], indices: &[usize]) -> Result<Score, TrainError> {
        self.toy.score(values, indices)
    }

    fn test(&self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.toy.test(values, samples)
    }
}

#[test]
fn a_swarm_that_diverges_goes_back_and_ends_well() {
    for case in case::all().into_iter().filter(|case| !case.strategy().survives_divergence()) {
        for n_peers in [1, 2, 4] {
            // In the second of four epochs, long enough for each sample that is tried alone to look bad too.
            let setup = case.setup_for(Broken::for_a_while(20..50), Job { epochs: 4, batch: 8, ..case::job() });
            let outcome = Simulation::new(setup, n_peers, Scenario::lan()).unwrap().run().unwrap();
            let what = format!("{}with {n_peers} peers", case.name());
            assert!(outcome.refusals.is_empty() && outcome.failures.is_empty(), "{what}: {:?}", outcome.failures);
            let back =
                |event: &Event| if let Event::RolledBack { lr_factor, .. } = event { Some(*lr_factor) } else { None };
            let factors: Vec<f32> = outcome.records.iter().filter_map(|record| back(&record.event)).collect();
            assert!((1..=4).contains(&factors.len()) && factors[0] == 0.5, "{what}: {factors:?}");
            let first = &outcome.peers[0];
            let went_back = outcome.records.iter().rposition(|record| back(&record.event).is_some()).unwrap();
            let Event::RolledBack { epoch: n_good, .. } = outcome.records[went_back].event else { unreachable!() };
            for peer in &outcome.peers {
                // Epochs that are trained again are tested again.
                let after = outcome.records[went_back..].iter().filter(|record| record.peer == peer.id);
                let tested = after.filter_map(|record| match record.event {
                    Event::Epoch { epoch, .. } => Some(epoch),
                    _ => None,
                });
                assert!(tested.eq(n_good + 1..=4), "{what}: {} after epoch {n_good}", peer.id);
                assert!(peer.is_finished && peer.values == first.values, "{what}: {}", peer.id);
                assert_eq!(peer.place.n_rollbacks as usize, factors.len(), "{what}: {}", peer.id);
            }
        }
    }
}

#[test]
fn a_broken_sample_is_left_out_and_named() {
    for case in case::defaults() {
        let setup = case.setup_for(Broken::at(17), Job { epochs: 2, batch: 8, ..case::job() });
        let is_held_out = setup.training().sampler.held_out().contains(&17);
        let outcome = Simulation::new(setup, 3, Scenario::lan()).unwrap().run().unwrap();
        assert!(outcome.failures.is_empty(), "{}: {:?}", case.name(), outcome.failures);
        let named =
            |event: &Event| if let Event::LeftOut { samples, .. } = event { Some(samples.clone()) } else { None };
        let left_out: Vec<Vec<usize>> = outcome.records.iter().filter_map(|record| named(&record.event)).collect();
        // In a batch of its own it cannot be told from parameters that are broken; so it costs that batch.
        assert!(is_held_out || left_out.iter().all(|samples| samples == &[17]), "{}: {left_out:?}", case.name());
    }
}
