//! How a run begins: the first epochs by one peer, or on all data, and then as every strategy does.

use std::sync::Arc;

use nettorrent_engine::data::split::SplitRule;
use nettorrent_engine::job::Warmup;
use nettorrent_engine::job::{Job, SwarmSpec};
use nettorrent_engine::optimizer::{OptimizerKind, OptimizerSpec};
use nettorrent_engine::task::Task;
use nettorrent_sim::{Fault, Observer, Outcome, Scenario, Simulation, Toy, What, When};
use nettorrent_swarm::record::Event;
use nettorrent_swarm::{Peer, PeerId, Setup, State};

use super::case::{self, Case};

const N_PEERS: usize = 4;

fn setup(case: &Case, swarm: SwarmSpec, epochs: u64) -> Arc<Setup> {
    let optimizer = OptimizerSpec { kind: OptimizerKind::Adam, lr: 0.01, ..OptimizerSpec::default() };
    case.setup_for(Toy::new(7), Job { epochs, batch: 8, optimizer, swarm, ..case::job() })
}

fn run(setup: Arc<Setup>, n_peers: usize, scenario: Scenario) -> Outcome {
    let outcome = Simulation::new(setup, n_peers, scenario).unwrap().run().unwrap();
    assert!(outcome.failures.is_empty() && outcome.refusals.is_empty(), "{:?}", outcome.failures);
    outcome
}

fn by_one_peer(epochs: u64) -> SwarmSpec {
    SwarmSpec { warmup: Warmup::OnePeer, warmup_epochs: epochs, ..SwarmSpec::default() }
}

/// How many samples each peer trained in each epoch.
fn trained(outcome: &Outcome, epoch: u64) -> Vec<u64> {
    let of = |peer: PeerId| {
        let samples = outcome.records.iter().filter(|record| record.peer == peer).map(|record| match record.event {
            Event::Batch { epoch: of, n_samples, .. } if of == epoch => n_samples,
            _ => 0,
        });
        samples.sum()
    };
    outcome.peers.iter().map(|peer| of(peer.id)).collect()
}

#[test]
fn one_peer_alone_learns_what_one_machine_learns_and_all_have_it() {
    for case in case::defaults().into_iter().filter(|case| !case.sends_only_the_best()) {
        let alone =
            run(setup(&Case::new("ring-all-reduce", toml::Table::new()), SwarmSpec::default(), 2), 1, Scenario::lan());
        let together = run(setup(&case, by_one_peer(2), 2), N_PEERS, Scenario::lan());
        for peer in &together.peers {
            assert!(peer.values == alone.peers[0].values, "{}: {}", case.name(), peer.id);
        }
        let n_train = Toy::new(7).labels().len() as u64;
        assert_eq!(trained(&together, 1), [n_train, 0, 0, 0], "{}", case.name());
    }
}

#[test]
fn after_the_warm_up_all_train() {
    for case in case::defaults() {
        let outcome = run(setup(&case, by_one_peer(1), 3), N_PEERS, Scenario::lan());
        assert_eq!(trained(&outcome, 0).iter().filter(|&&n| n > 0).count(), 1, "{}", case.name());
        assert!(trained(&outcome, 1).iter().all(|&n| n > 0), "{}", case.name());
    }
}

/// Remembers the first state of the second epoch.
#[derive(Default)]
struct SecondEpoch(Option<State>);

impl Observer for SecondEpoch {
    fn handled(&mut self, _: std::time::Duration, _: PeerId, peer: &dyn Peer) {
        let state = peer.state().expect("it holds the whole");
        if self.0.is_none() && state.place.ledger.epoch == 1 {
            self.0 = Some(state);
        }
    }
}

#[test]
fn a_run_can_be_resumed_within_its_warm_up() {
    for warmup in [Warmup::AllData, Warmup::Dense, Warmup::OnePeer] {
        let case = Case::new("ring-all-reduce", toml::Table::new());
        let swarm = SwarmSpec { warmup, split: SplitRule::Class, ..by_one_peer(2) };
        let setup = setup(&case, swarm, 4);
        let mut seen = SecondEpoch::default();
        let straight = Simulation::new(setup.clone(), N_PEERS, Scenario::lan()).unwrap().run_with(&mut seen).unwrap();
        let state = seen.0.expect("there is a second epoch");
        let again = Simulation::from_state(setup, state, N_PEERS, Scenario::lan()).unwrap().run().unwrap();
        assert_eq!(again.peers[0].place.ledger.epoch, 4);
        // By speed, work is dealt out as peers turn out to be; by one peer it never is.
        let is_equal = straight.peers[0].values == again.peers[0].values;
        assert!(is_equal || warmup == Warmup::AllData, "{warmup:?}");
    }
}

#[test]
fn if_the_one_that_trains_is_lost_another_trains_the_epoch() {
    let case = Case::new("ring-all-reduce", toml::Table::new());
    let setup = setup(&case, by_one_peer(2), 2);
    let first = PeerId::new(0, 0);
    let calm = run(setup.clone(), N_PEERS, Scenario::lan());
    let ended = calm.records.iter().find(|record| matches!(record.event, Event::Epoch { epoch: 1, .. })).unwrap().at_s;
    for share in [0.3, 0.9, 1.2] {
        let when = When::At(std::time::Duration::from_secs_f64(share * ended));
        let faults = vec![Fault { peer: 0, when, what: What::Kill }];
        let outcome = run(setup.clone(), N_PEERS, Scenario { faults, ..Scenario::lan() });
        let left: Vec<_> = outcome.live().collect();
        assert_eq!(left.len(), N_PEERS - 1);
        for peer in left {
            assert!(peer.id != first && peer.is_finished);
            assert!(peer.values == calm.peers[0].values, "killed at {share}: the same is learnt, by another");
        }
    }
}
