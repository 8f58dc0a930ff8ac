//! Peers that average gradients take the same steps as one peer with all their batches together; and other ways to say the
//! same thing.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};
use nettorrent_sim::{Observer, Scenario, Simulation, Toy};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::sampling::ledger::{Ledger, Segment};
use nettorrent_swarm::{Peer, PeerId, Setup, State};

use super::case::{self, Case};

/// What one peer learns that trains all peers' batches of a round as one, at the rates that they had.
fn one_peer(setup: &Setup, n_peers: usize, rates: &[f32]) -> Vec<f32> {
    let task = &setup.training().task;
    let members: Vec<u64> = (0..n_peers).map(|peer| PeerId::new(peer as u32, 0).0).collect();
    let mut worker = task.clone().worker(1).unwrap();
    let mut optimizer = Optimizer::new(setup.training().optimizer.clone(), task.n_params());
    let (mut values, mut gradient) = (task.init(setup.training().seed), vec![0.0; task.n_values()]);
    let mut rates = rates.iter();
    for epoch in 0..setup.training().epochs {
        let ledger = Ledger::of_segment(epoch, Segment::new(members.clone()));
        let plan = &setup.training().sampler.plan(&ledger);
        for round in 0..plan.n_rounds() {
            let of = |slot| plan.batches_in(slot, round).flat_map(move |k| plan.batch(slot, k));
            let samples: Vec<usize> = (0..n_peers).flat_map(of).copied().collect();
            let mut put = |k: usize, bucket: &[f32]| gradient[task.buckets()[k].clone()].copy_from_slice(bucket);
            worker.gradient(&values, &samples, 0, &mut put).unwrap();
            optimizer.step_alone(*rates.next().unwrap(), &mut values, &gradient);
        }
    }
    assert!(rates.next().is_none(), "as many rounds");
    values
}

#[test]
fn averaged_gradients_are_the_gradient_of_all_samples_together() {
    let cases: Vec<_> = case::all().into_iter().filter(Case::averages_gradients_exactly).collect();
    assert!(!cases.is_empty());
    for case in cases {
        for n_peers in [1, 2, 3, 5, 7] {
            let setup = case.setup(3);
            let outcome = Simulation::new(setup.clone(), n_peers, Scenario::lan()).unwrap().run().unwrap();
            let rate = |record: &Record| match record.event {
                Event::Round { lr, .. } if record.peer.join_index() == 0 => Some(lr),
                _ => None,
            };
            let rates: Vec<f32> = outcome.records.iter().filter_map(rate).collect();
            let expected = one_peer(&setup, n_peers, &rates);
            for (k, (a, b)) in outcome.peers[0].values.iter().zip(&expected).enumerate() {
                assert!((a - b).abs() < 1e-4, "{}with {n_peers} peers: number {k} is {a}, not {b}", case.name());
            }
        }
    }
}

#[test]
fn an_outer_step_of_one_without_momentum_is_the_mean() {
    let mean = Case::new("ring-all-reduce", toml::toml! { payload = "weights" local_steps = 3 });
    let outer = Case::new("diloco", toml::toml! { outer_lr = 1.0 outer_momentum = 0.0 local_steps = 3 });
    let local = Case::new("local-sgd", toml::toml! { local_steps = 3 });
    let in_8_bits = Case::new("local-sgd", toml::toml! { local_steps = 3 bits = 8 });
    let in_4_bits = Case::new("local-sgd", toml::toml! { local_steps = 3 bits = 4 });
    let with_momentum = Case::new("diloco", toml::toml! { local_steps = 3 outer_lr = 0.7 outer_momentum = 0.9 });
    for n_peers in [1, 2, 3, 7] {
        let values = |case: &Case| {
            let outcome = Simulation::new(case.setup(3), n_peers, Scenario::lan()).unwrap().run().unwrap();
            outcome.peers[0].values.clone()
        };
        let expected = values(&mean);
        let error = |case: &Case| {
            let errors = values(case).iter().zip(expected.iter()).map(|(a, b)| (a - b).abs()).collect::<Vec<f32>>();
            errors.into_iter().fold(0.0, f32::max)
        };
        assert!(error(&outer) < 1e-5 && error(&local) < 1e-5, "{n_peers} peers");
        assert!(error(&in_8_bits) < 0.01 && error(&in_4_bits) < 0.1, "{n_peers} peers: rounding costs too much");
        assert!(error(&with_momentum) > 0.1, "{n_peers} peers: momentum does nothing");
    }
}

/// Remembers every state that a peer could go on from, by round.
#[derive(Default)]
struct States(BTreeMap<u32, BTreeMap<PeerId, State>>);

impl Observer for States {
    fn handled(&mut self, _: Duration, id: PeerId, peer: &dyn Peer) {
        let state = peer.state().expect("it holds the whole");
        self.0.entry(state.place.version.round).or_default().insert(id, state);
    }
}

#[test]
fn differences_leave_replicas_equal_after_every_round() {
    for name in ["diloco", "local-sgd"] {
        for bits in [4, 8, 32] {
            let options = [("bits".to_owned(), bits.into()), ("local_steps".to_owned(), 2.into())];
            let case = Case::new(name, toml::Table::from_iter(options));
            let mut states = States::default();
            Simulation::new(case.equal_setup(3), 5, Scenario::lan()).unwrap().run_with(&mut states).unwrap();
            assert!(states.0.len() > 6, "{}", case.name());
            for (round, peers) in states.0 {
                let first = &peers[&PeerId::new(0, 0)];
                let is_equal =
                    |state: &State| state.values == first.values && state.strategy_state == first.strategy_state;
                assert!(peers.len() == 5 && peers.values().all(is_equal), "{}: after round {round}", case.name());
            }
        }
    }
}

#[test]
fn who_goes_on_from_a_state_comes_to_the_same_end() {
    // An optimizer that remembers nothing: its memory is each peer's own, and a state has only one's.
    let optimizer = OptimizerSpec { lr: 0.1, ..OptimizerSpec::default() };
    let job = Job { epochs: 4, batch: 8, optimizer, ..case::job() };
    for case in case::defaults().into_iter().filter(|case| !case.depends_on_time()) {
        let setup = case.setup_for(Toy::new(7), Job { swarm: case::equal_job().swarm, ..job.clone() });
        let mut states = States::default();
        let straight = Simulation::new(setup.clone(), 3, Scenario::lan()).unwrap().run_with(&mut states).unwrap();
        let mut states = states.0.into_values().filter_map(|peers| peers.into_values().next());
        let state = states.find(|state| state.place.ledger.epoch == 2).unwrap();
        let again = Simulation::from_state(setup, state, 3, Scenario::lan()).unwrap().run().unwrap();
        assert!(straight.peers[0].values == again.peers[0].values, "{}", case.name());
    }
}
