//! Peers that come and go: the rest goes on from the last mark, with all blocks.

use std::time::Duration;

use nettorrent_sim::{Fate, Fault, Join, Observer, Outcome, Partition, Scenario, Simulation, What, When};
use nettorrent_swarm::SavedBlock;
use nettorrent_swarm::record::{Event, Record};

use super::pipeline::Pipeline;

const GRIDS: [&str; 2] = [
    "pipeline.stages=[{layers=3,tensor_shards=2},{layers=2},{layers=1}]",
    "pipeline.stages=[{layers=5},{layers=1,batch_shards=3}]",
];

fn pipeline(grid: &str, settings: &[&str]) -> Pipeline {
    let usual = ["model=mlp:12,9", grid, "pipeline.snapshot_every=4", "epochs=4", "batch=4"];
    Pipeline::new(&[&usual, settings].concat(), (&[6], 3), 240)
}

fn fault(peer: usize, round: u32, what: What) -> Fault {
    Fault { peer, when: When::Round(round), what }
}

/// All who are there at the end have finished, nobody was refused, and the network was learnt.
fn check(pipeline: &Pipeline, outcome: &Outcome, what: &str) {
    assert!(
        outcome.failures.is_empty() && outcome.refusals.is_empty(),
        "{what}: {:?} {:?}",
        outcome.failures,
        outcome.refusals
    );
    assert!(outcome.live().all(|peer| peer.is_finished), "{what}");
    assert!(outcome.whole(0, pipeline.n_values()).is_some(), "{what}: blocks are missing");
    let last = outcome.records.iter().rev().find_map(|record| match record.event {
        Event::Epoch { epoch, test_accuracy, .. } => Some((epoch, test_accuracy)),
        _ => None,
    });
    let (epoch, accuracy) = last.expect("it was tested");
    assert!(epoch == 4 && accuracy > 0.8, "{what}: {accuracy} after epoch {epoch}");
}

/// The rounds in which views began.
fn beginnings(outcome: &Outcome) -> Vec<(u32, u32)> {
    let view = |event: &Event| match event {
        Event::View { view, round, .. } => Some((*view, *round)),
        _ => None,
    };
    let mut views: Vec<(u32, u32)> = outcome.records.iter().filter_map(|record| view(&record.event)).collect();
    views.sort_unstable();
    views.dedup();
    views
}

#[test]
fn any_peer_may_be_lost_at_any_time() {
    for grid in GRIDS {
        for in_flight in ["pipeline.in_flight=1", "pipeline.in_flight=3"] {
            let pipeline = pipeline(grid, &[in_flight]);
            for peer in 0..4 {
                for round in [0, 1, 5, 60, 61, 238] {
                    for what in [What::Kill, What::Leave] {
                        let faults = vec![fault(peer, round, what)];
                        let outcome = pipeline.run(4, Scenario { faults, ..Scenario::default() });
                        let told = format!("{grid} {in_flight} {what:?} of {peer} after round {round}");
                        check(&pipeline, &outcome, &told);
                        let (_, began) = *beginnings(&outcome).last().unwrap();
                        assert!(began + 9 > round, "{told}: went on from round {began}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_lost_block_is_its_replica_s() {
    let pipeline = pipeline(GRIDS[0], &["pipeline.copies=false"]);
    for peer in 0..8 {
        let faults = vec![fault(peer, 10, What::Kill)];
        let outcome = pipeline.run(8, Scenario { faults, ..Scenario::default() });
        check(&pipeline, &outcome, &format!("peer {peer}"));
        assert!(beginnings(&outcome).last().unwrap().1 >= 4, "it was there in the other pipeline");
    }
}

#[test]
fn without_copies_all_begins_anew() {
    let pipeline = pipeline(GRIDS[0], &["pipeline.copies=false"]);
    let outcome = pipeline.run(4, Scenario { faults: vec![fault(2, 50, What::Kill)], ..Scenario::default() });
    check(&pipeline, &outcome, "without copies");
    assert_eq!(beginnings(&outcome).last().unwrap().1, 0);
}

#[test]
fn one_after_the_other_may_be_lost_to_the_last() {
    let pipeline = pipeline(GRIDS[0], &["pipeline.in_flight=2"]);
    let faults = vec![fault(3, 10, What::Kill), fault(0, 40, What::Kill), fault(1, 70, What::Leave)];
    let outcome = pipeline.run(4, Scenario { faults, ..Scenario::default() });
    check(&pipeline, &outcome, "one after the other");
    assert_eq!(outcome.live().count(), 1);
    assert_eq!(outcome.live().next().unwrap().blocks.len(), 4);
}

#[test]
fn who_stood_by_and_is_left_alone_takes_all_layers_over() {
    for n_peers in [5, 6] {
        let pipeline = pipeline(GRIDS[0], &[]);
        for round in [0, 5, 61, 238] {
            let faults = (0..4).map(|peer| fault(peer, round, What::Kill)).collect();
            let outcome = pipeline.run(n_peers, Scenario { faults, ..Scenario::default() });
            check(&pipeline, &outcome, &format!("{n_peers} peers after round {round}"));
            assert!(outcome.live().all(|peer| peer.place.ledger.epoch == 4), "{n_peers} peers after round {round}");
            assert_eq!(outcome.live().map(|peer| peer.blocks.len()).sum::<usize>(), 4);
        }
    }
}

#[test]
fn who_stands_by_finishes_with_the_others() {
    let pipeline = pipeline(GRIDS[0], &[]);
    let deadline = Duration::from_millis(50);
    let (from, until) = (Duration::from_millis(100), Duration::from_millis(400));
    let partitions = vec![Partition { peers: vec![4], from, until }];
    for scenario in [Scenario::default(), Scenario { partitions, deadline, ..Scenario::default() }] {
        let outcome = pipeline.run(5, scenario);
        check(&pipeline, &outcome, "with one that stands by");
        assert!(outcome.live().all(|peer| peer.place.ledger.epoch == 4), "who stands by knows how far all are");
    }
}

/// A disk that takes long for a block.
#[derive(Default)]
struct SlowDisk {
    lasts: Duration,
    n_blocks: u32,
    /// The epochs of the snapshots whose last block came.
    epochs: Vec<u64>,
    /// The rounds that ended between the first block and the last.
    n_rounds_meanwhile: usize,
}

impl Observer for SlowDisk {
    fn saved(&mut self, block: SavedBlock) -> Duration {
        self.n_blocks += 1;
        if block.is_last {
            self.epochs.push(block.state.place.ledger.epoch);
        }
        self.lasts
    }

    fn record(&mut self, record: Record) {
        let is_writing = self.n_blocks > 0 && self.epochs.is_empty();
        self.n_rounds_meanwhile += usize::from(is_writing && matches!(record.event, Event::Round { .. }));
    }
}

#[test]
fn training_does_not_wait_for_a_slow_disk() {
    let pipeline = pipeline(GRIDS[0], &["epochs=8"]);
    for lasts in [Duration::ZERO, Duration::from_secs(60)] {
        let mut disk = SlowDisk { lasts, ..SlowDisk::default() };
        let simulation = Simulation::new(pipeline.setup.clone(), 4, Scenario::default()).unwrap();
        let outcome = simulation.run_with(&mut disk).unwrap();
        assert!(outcome.refusals.is_empty() && outcome.live().all(|peer| peer.is_finished), "{:?}", outcome.refusals);
        assert!(outcome.time >= disk.n_blocks * lasts, "no block comes before the last is written, and nobody goes");
        if lasts.is_zero() {
            assert_eq!(disk.epochs, [1, 2, 3, 4, 5, 6, 7, 8]);
        } else {
            assert_eq!(disk.epochs, [1, 8], "of those that wait only the newest is saved, and that is the last");
            assert!(disk.n_rounds_meanwhile > 400, "{}", disk.n_rounds_meanwhile);
        }
    }
}

#[test]
fn newcomers_take_over_blocks() {
    for strategy in ["swarm.strategy=ring-all-reduce", "swarm.strategy=threshold", "swarm.strategy=local-sgd"] {
        let pipeline = pipeline(GRIDS[0], &[strategy]);
        let joins = (1..=6).map(|k| Join { at: Duration::from_millis(40 * k) }).collect();
        let outcome = pipeline.run(2, Scenario { joins, ..Scenario::default() });
        check(&pipeline, &outcome, strategy);
        assert!(outcome.peers.iter().all(|peer| peer.fate == Fate::Live && peer.blocks.len() == 1), "two pipelines");
        assert!(outcome.whole(1, pipeline.n_values()).is_some());
    }
}

#[test]
fn peers_that_hang_or_are_cut_off_come_back() {
    let pipeline = pipeline(GRIDS[0], &["pipeline.in_flight=2"]);
    let deadline = Duration::from_millis(50);
    for peer in 0..4 {
        let faults = vec![fault(peer, 20, What::Hang(Duration::from_millis(200)))];
        let outcome = pipeline.run(4, Scenario { faults, deadline, ..Scenario::default() });
        check(&pipeline, &outcome, &format!("peer {peer} hangs"));
        let (from, until) = (Duration::from_millis(100), Duration::from_millis(400));
        let partitions = vec![Partition { peers: vec![peer], from, until }];
        let outcome = pipeline.run(4, Scenario { partitions, deadline, ..Scenario::default() });
        check(&pipeline, &outcome, &format!("peer {peer} is cut off"));
    }
}
