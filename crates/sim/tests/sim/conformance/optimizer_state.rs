//! What becomes of the peers' optimizers when weights are averaged is what the job says.

use std::collections::BTreeMap;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::{Optimizer, OptimizerKind, OptimizerSpec};
use nettorrent_sim::{Observer, Scenario, Simulation, Toy};
use nettorrent_swarm::{Peer, PeerId};
use toml::{Table, Value};

use super::case::{self, Case};

const N_PEERS: usize = 4;

/// Strategies after whose rounds all hold the same weights, with options that have them average weights after each batch.
const ALL_ALIKE: [&str; 6] =
    ["diloco", "local-sgd", "manager-worker", "parameter-server", "ring-all-reduce", "ring-reduce"];

fn case(name: &str, optimizer_state: &str) -> Case {
    let mut options = Table::from_iter([("optimizer_state".to_owned(), Value::from(optimizer_state))]);
    options.insert("local_steps".to_owned(), Value::from(1));
    let plain = Case::new(name, Table::new());
    if plain.has_option("payload") {
        options.insert("payload".to_owned(), Value::from("weights"));
    }
    if plain.has_option("outer_momentum") {
        options.extend([("outer_momentum".to_owned(), Value::from(0.0)), ("outer_lr".to_owned(), Value::from(1.0))]);
    }
    Case::new(name, options)
}

fn adam() -> OptimizerSpec {
    OptimizerSpec { kind: OptimizerKind::Adam, lr: 0.01, ..OptimizerSpec::default() }
}

fn momentum() -> OptimizerSpec {
    OptimizerSpec { lr: 0.1, momentum: 0.9, ..OptimizerSpec::default() }
}

/// Remembers every peer's optimizer after each round.
#[derive(Default)]
struct Optimizers(BTreeMap<u32, BTreeMap<PeerId, Optimizer>>);

impl Observer for Optimizers {
    fn handled(&mut self, _: Duration, id: PeerId, peer: &dyn Peer) {
        let state = peer.state().expect("it holds the whole");
        self.0.entry(state.place.version.round).or_default().insert(id, state.optimizer);
    }
}

/// The optimizers after each round but the first, which nobody has trained before.
fn optimizers(case: &Case, optimizer: &OptimizerSpec) -> Vec<Vec<Optimizer>> {
    let job = Job { epochs: 2, batch: 8, optimizer: optimizer.clone(), ..case::job() };
    let mut seen = Optimizers::default();
    let outcome = Simulation::new(case.setup_for(Toy::new(7), job), N_PEERS, Scenario::lan());
    assert!(outcome.unwrap().run_with(&mut seen).unwrap().failures.is_empty(), "{}", case.name());
    let rounds = seen.0.into_values().skip(1).filter(|peers| peers.len() == N_PEERS);
    rounds.map(|peers| peers.into_values().collect()).collect()
}

#[test]
fn momentum_that_is_averaged_with_weights_is_that_of_averaged_gradients() {
    let job = Job { epochs: 3, batch: 8, optimizer: momentum(), ..case::job() };
    let values = |case: &Case| {
        let setup = case.setup_for(Toy::new(7), job.clone());
        Simulation::new(setup, N_PEERS, Scenario::lan()).unwrap().run().unwrap().peers[0].values.clone()
    };
    let expected = values(&Case::new("ring-all-reduce", Table::new()));
    for name in ALL_ALIKE {
        let error = |optimizer_state| {
            let values = values(&case(name, optimizer_state));
            values.iter().zip(expected.iter()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        let (average, reset) = (error("average"), error("reset"));
        assert!(average < 1e-4, "{name}: {average} away from what averaged gradients come to");
        assert!(reset > 0.01, "{name}: without momentum it would be something else: {reset}");
    }
}

#[test]
fn averaged_states_are_equal_and_new_ones_are_new() {
    for optimizer in [adam(), momentum()] {
        let fresh = Optimizer::new(optimizer.clone(), optimizers(&case("diloco", "keep"), &optimizer)[0][0].n_params());
        for name in ALL_ALIKE {
            for (optimizer_state, is_equal, is_fresh) in
                [("average", true, false), ("keep", false, false), ("reset", true, true)]
            {
                let what = format!("{name} with {optimizer_state} and {:?}", optimizer.kind);
                let rounds = optimizers(&case(name, optimizer_state), &optimizer);
                assert!(rounds.len() > 5, "{what}");
                for peers in &rounds {
                    assert_eq!(peers.iter().all(|peer| *peer == peers[0]), is_equal, "{what}");
                    assert_eq!(peers[0] == fresh, is_fresh, "{what}");
                }
            }
        }
    }
}
