//! Peers that average gradients take the same steps as one peer with all their batches together.

use nettorrent_engine::data::ledger::{Ledger, Segment};
use nettorrent_engine::model::Workspace;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_sim::{Scenario, Simulation};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::{PeerId, Setup};

use crate::case;

/// What one peer learns that trains all peers' batches of a round as one, at the rates that they had.
fn one_peer(setup: &Setup, n_peers: usize, rates: &[f32]) -> Vec<f32> {
    let task = &setup.task;
    let members: Vec<u64> = (0..n_peers).map(|peer| PeerId::new(peer as u32, 0).0).collect();
    let mut room = Workspace::new(1).unwrap();
    let mut optimizer = Optimizer::new(setup.optimizer.clone(), task.n_params());
    let (mut values, mut gradient) = (task.init(setup.seed), vec![0.0; task.n_values()]);
    let mut rates = rates.iter();
    for epoch in 0..setup.epochs {
        let ledger = Ledger { epoch, segments: vec![Segment::new(members.clone())] };
        let plan = setup.curriculum.plan(&ledger);
        for round in 0..plan.n_rounds(1) {
            let batches: Vec<&[usize]> = (0..n_peers).map(|seat| plan.batch(seat, round)).collect();
            task.gradient(&values, &batches.concat(), 0, &mut gradient, &mut room, &mut |_, _| {}).unwrap();
            optimizer.step(*rates.next().unwrap(), &mut values, &gradient, &room);
        }
    }
    assert!(rates.next().is_none(), "as many rounds");
    values
}

#[test]
fn averaged_gradients_are_the_gradient_of_all_samples_together() {
    let cases: Vec<_> = case::all().into_iter().filter(case::Case::averages_gradients_exactly).collect();
    assert!(!cases.is_empty());
    for case in cases {
        for n_peers in [1, 2, 3, 5, 7] {
            let setup = case.setup(3);
            let outcome = Simulation::new(setup.clone(), n_peers, Scenario::lan()).unwrap().run().unwrap();
            let rate = |record: &Record| match record.event {
                Event::Round { lr, .. } if record.peer.seat() == 0 => Some(lr),
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
