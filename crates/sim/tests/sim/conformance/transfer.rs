//! A newcomer gets the state from all who have it, and what it has got is not sent twice.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_sim::{Fault, Join, Outcome, Rehearsal, Scenario, Simulation, Toy, ToySize, What, When};
use nettorrent_swarm::record::{Event, Record};
use nettorrent_swarm::wire::{Frame, Kind};
use nettorrent_swarm::{PeerId, Setup};

use super::case;

/// Parameters of seven chunks, and a momentum as long.
fn setup(strategy: &str) -> Arc<Setup> {
    let size = ToySize { n_features: 40_000, n_classes: 10, n_train: 48, n_test: 8 };
    let case = case::defaults().into_iter().find(|case| case.name().trim() == strategy).unwrap();
    let optimizer = OptimizerSpec { lr: 0.01, momentum: 0.9, ..OptimizerSpec::default() };
    case.setup_for(Toy::with_size(size, 1), Job { epochs: 2, batch: 4, optimizer, ..case::job() })
}

const STATE_BYTES: u64 = 4 * (400_010 + 40_000 + 400_010);

/// When the first peer has come to the end of an epoch whose only local phase somebody joins, or nobody; and how long its state takes.
fn one_phase(joins: Vec<Join>) -> (f64, Option<f64>) {
    let size = ToySize { n_features: 40_000, n_classes: 10, n_train: 48, n_test: 8 };
    let case = case::Case::new("local-sgd", [("local_steps".to_owned(), "epoch".into())].into_iter().collect());
    let setup = case.setup_for(Toy::with_size(size, 1), Job { epochs: 2, batch: 4, ..case::job() });
    let (link, sample_time) = ("10mbit/2ms".parse().unwrap(), Duration::from_millis(300));
    let scenario = Scenario { link, joins, sample_time, limit: Duration::from_secs(600), ..Scenario::lan() };
    let outcome = Simulation::new(setup, 2, scenario).unwrap().run().unwrap();
    let is_epoch = |record: &&Record| matches!(record.event, Event::Epoch { .. });
    let epoch_s = outcome.records.iter().find(is_epoch).unwrap().at_s;
    let transfer_s = |record: &Record| match record.event {
        Event::StateReceived { seconds, .. } => Some(seconds),
        _ => None,
    };
    (epoch_s, outcome.records.iter().find_map(transfer_s))
}

fn run(strategy: &str, n_peers: usize, faults: Vec<Fault>) -> Outcome {
    let joins = vec![Join { at: Duration::from_millis(300) }];
    let link = "100mbit/2ms".parse().unwrap();
    let scenario = Scenario { link, faults, joins, limit: Duration::from_secs(600), ..Scenario::lan() };
    Simulation::new(setup(strategy), n_peers, scenario).unwrap().run().unwrap()
}

/// What the newcomer received, and from whom.
fn received(outcome: &Outcome) -> Vec<(u64, Vec<PeerId>)> {
    let newest = outcome.live().map(|peer| peer.id).max().unwrap();
    let of = |event: &Event| match event {
        Event::StateReceived { n_bytes, donors, .. } => Some((*n_bytes, donors.clone())),
        _ => None,
    };
    outcome.records.iter().filter(|record| record.peer == newest).filter_map(|record| of(&record.event)).collect()
}

#[test]
fn a_newcomer_fetches_the_state_from_all_who_have_it() {
    for (strategy, n_peers, n_donors) in
        [("ring-all-reduce", 2, 2), ("ring-all-reduce", 3, 3), ("ring-all-reduce", 6, 4)]
    {
        let outcome = run(strategy, n_peers, Vec::new());
        let received = received(&outcome);
        let [(n_bytes, donors)] = &received[..] else { panic!("{received:?}") };
        assert_eq!(donors.len(), n_donors, "{strategy} with {n_peers} peers");
        // At the end what comes slowly is asked for twice.
        assert!((STATE_BYTES..STATE_BYTES * 3 / 2).contains(n_bytes), "{n_bytes} of {STATE_BYTES} bytes");
        let first = outcome.live().next().unwrap();
        assert!(outcome.live().all(|peer| peer.is_finished && peer.values == first.values));
    }
}

#[test]
fn who_keeps_an_optimizer_of_its_own_gives_only_parameters() {
    // The newcomer gets one peer's optimizer with everybody's parameters, and nobody is said to differ.
    for strategy in ["diloco", "local-sgd"] {
        let outcome = run(strategy, 3, Vec::new());
        assert_eq!(received(&outcome).len(), 1, "{strategy}");
        assert!(!outcome.records.iter().any(|record| matches!(record.event, Event::Differs { .. })), "{strategy}");
    }
}

#[test]
fn a_newcomer_gets_the_state_while_the_others_train_their_local_phase() {
    let (undisturbed_s, nothing) = one_phase(Vec::new());
    assert!(nothing.is_none());
    // Whether it has just begun or would have to be trained once more.
    for at in [300, 4000].map(Duration::from_millis) {
        let (epoch_s, transfer_s) = one_phase(vec![Join { at }]);
        assert!(
            epoch_s < undisturbed_s + transfer_s.unwrap() / 2.0,
            "{epoch_s} s in place of {undisturbed_s} s, {transfer_s:?} s for the state that was wanted after {at:?}"
        );
    }
}

#[test]
fn what_has_come_is_not_sent_again_when_a_donor_is_lost() {
    let mut n_resumed = 0;
    for at in [400, 500, 600, 700, 800, 900, 1000] {
        let lost = Fault { peer: 0, when: When::At(Duration::from_millis(at)), what: What::Leave };
        let outcome = run("ring-all-reduce", 2, vec![lost]);
        let received = received(&outcome);
        let n_bytes = received.last().unwrap().0;
        n_resumed += usize::from(received.len() == 1 && n_bytes < STATE_BYTES);
        assert!(outcome.live().all(|peer| peer.is_finished));
    }
    assert!(n_resumed > 0);
}

/// Peers of whom the last one comes when the others have made some rounds, and to whom these frames get lost.
fn join_while_lost(strategy: &str, n_peers: usize, loses: fn(usize, usize, &Frame) -> bool) -> Rehearsal {
    let newest = n_peers - 1;
    let mut host = Rehearsal::new(setup(strategy), n_peers).unwrap();
    host.loses = loses;
    host.inputs.clear();
    host.give_up(newest);
    let mut has_joined = false;
    loop {
        host.run(|host, _, _| {
            if !has_joined && host.peers[0].place().version.round >= 1 {
                has_joined = true;
                host.gone[newest] = false;
                host.tell_view();
            }
        });
        // Whoever was refused is left out of the next view, as a node does it.
        let Some((from, _)) = host.refused.pop() else { return host };
        host.give_up(from.join_index() as usize);
    }
}

fn is_state(frame: &Frame) -> bool {
    frame.head.kind == Kind::Snapshot
}

#[test]
fn another_donor_is_asked_when_the_main_one_sends_nothing() {
    for n_peers in [3, 5] {
        let host = join_while_lost("ring-all-reduce", n_peers, |from, _, frame| from == 0 && is_state(frame));
        assert!(host.is_over() && host.gone.iter().all(|gone| !gone), "{n_peers} peers");
        let first = host.peers[0].values();
        assert!(host.peers.iter().all(|peer| peer.values() == first), "{n_peers} peers");
    }
}

#[test]
fn another_donor_is_asked_when_the_main_one_stops_in_the_middle() {
    // The title and the first digests come, and no chunk. Each keeps an optimizer of its own, so its chunks come from the main donor only.
    let host = join_while_lost("local-sgd", 3, |from, _, frame| from == 0 && is_state(frame) && frame.head.part != 0);
    assert!(host.is_over() && host.gone.iter().all(|gone| !gone));
}

#[test]
fn a_donor_that_nobody_can_replace_and_that_sends_nothing_is_given_up() {
    // Of three, the first two trained; then nothing of the state of either comes.
    let host = join_while_lost("ring-all-reduce", 3, |_, to, frame| to == 2 && is_state(frame));
    assert!(host.gone[0] || host.gone[1]);
}
