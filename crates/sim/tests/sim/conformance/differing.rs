//! Silent divergence: one peer's parameters are not what its past says, and it is found and named after the epoch.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_sim::{Join, Outcome, Scenario, Simulation};
use nettorrent_swarm::record::Event;
use nettorrent_swarm::strategy::Payload;
use nettorrent_swarm::{PeerId, State};

use super::case::{self, Case};

/// A bit of one parameter of peer 0 is another from the beginning. Where gradients are exchanged, it stays so.
fn run(case: &Case, n_peers: usize, joins: Vec<Join>) -> Outcome {
    let setup = case.setup_for(nettorrent_sim::Toy::new(1), Job { epochs: 3, ..case::job() });
    let mut state = State::fresh(setup.training());
    let values = Arc::make_mut(&mut state.values);
    values[7] = f32::from_bits(values[7].to_bits() ^ 1);
    let scenario = Scenario { joins, ..Scenario::lan() };
    Simulation::from_state(setup, state, n_peers, scenario).unwrap().held_by_first().run().unwrap()
}

/// Who was said to differ from whom after which epoch, whether it was outvoted, and by whom it was said.
type Told = (PeerId, PeerId, Option<u64>, bool, PeerId);

fn told(outcome: &Outcome) -> BTreeSet<Told> {
    let of = |record: &nettorrent_swarm::record::Record| match record.event {
        Event::Differs { who, from, epoch, is_outvoted } => Some((who, from, epoch, is_outvoted, record.peer)),
        _ => None,
    };
    outcome.records.iter().filter_map(of).collect()
}

fn cases() -> impl Iterator<Item = Case> {
    case::defaults().into_iter().filter(|case| case.strategy().round_plan().payload == Payload::Gradients)
}

#[test]
fn one_whose_parameters_are_others_is_named_after_every_epoch() {
    assert!(cases().count() > 1);
    for case in cases() {
        let outcome = run(&case, 3, Vec::new());
        let ids: Vec<PeerId> = outcome.peers.iter().map(|peer| peer.id).collect();
        let expected = (1..=3).map(|epoch| (ids[0], ids[1], Some(epoch), true, ids[0])).collect();
        assert_eq!(told(&outcome), expected, "{}", case.name());
        assert!(outcome.peers.iter().all(|peer| peer.is_finished), "{}", case.name());
    }
}

#[test]
fn of_two_nobody_knows_who_is_wrong() {
    for case in cases() {
        let outcome = run(&case, 2, Vec::new());
        let ids: Vec<PeerId> = outcome.peers.iter().map(|peer| peer.id).collect();
        let expected = (1..=3).map(|epoch| (ids[1], ids[0], Some(epoch), false, ids[0])).collect();
        assert_eq!(told(&outcome), expected, "{}", case.name());
    }
}

/// When somebody joins in the second epoch, the one that was outvoted takes over the others' state, and all end with the same bits.
#[test]
fn who_was_outvoted_takes_over_the_others_state_in_the_next_view() {
    for case in cases() {
        let calm = run(&case, 3, Vec::new());
        let first_epoch = calm.records.iter().find(|record| matches!(record.event, Event::Epoch { epoch: 1, .. }));
        let at = Duration::from_secs_f64(first_epoch.expect("an epoch").at_s) + Duration::from_millis(20);
        let outcome = run(&case, 3, vec![Join { at }]);
        let first = outcome.peers[0].id;
        let received = |event: &Event| matches!(event, Event::StateReceived { .. });
        let took_over = outcome.records.iter().any(|record| record.peer == first && received(&record.event));
        assert!(took_over, "{}", case.name());
        let last = &outcome.peers[outcome.peers.len() - 1];
        assert!(outcome.peers.iter().all(|peer| peer.is_finished && peer.values == last.values), "{}", case.name());
        assert_eq!(told(&outcome).len(), 1, "{}", case.name());
    }
}

#[test]
fn nobody_is_named_where_nothing_is_wrong() {
    for case in case::all() {
        let outcome = Simulation::new(case.setup(3), 4, Scenario::lan()).unwrap().run().unwrap();
        assert_eq!(told(&outcome), BTreeSet::new(), "{}", case.name());
    }
}
