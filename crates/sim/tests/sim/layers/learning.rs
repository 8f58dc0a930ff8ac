//! What is learnt with several batches in flight, and with every strategy between pipelines.

use nettorrent_sim::Scenario;
use nettorrent_swarm::record::Event;
use nettorrent_swarm::strategies::STRATEGIES;

use super::pipeline::Pipeline;

const GRID: &str = "pipeline.stages=[{layers=3,tensor_shards=2},{layers=2,batch_shards=2},{layers=1}]";

fn accuracy(pipeline: &Pipeline, n_peers: usize) -> f64 {
    let outcome = pipeline.run(n_peers, Scenario::default());
    let last = outcome.records.iter().rev().find_map(|record| match record.event {
        Event::Epoch { test_accuracy, .. } => Some(test_accuracy),
        _ => None,
    });
    last.expect("it was tested")
}

#[test]
fn staleness_is_below_the_number_of_batches_in_flight() {
    for in_flight in 1..=4 {
        let setting = format!("pipeline.in_flight={in_flight}");
        let pipeline = Pipeline::new(&["model=mlp:12,9", GRID, &setting, "epochs=3", "batch=4"], (&[6], 3), 60);
        let outcome = pipeline.run(5, Scenario::default());
        let staleness = outcome.records.iter().filter_map(|record| match record.event {
            Event::Round { staleness, .. } => Some(staleness),
            _ => None,
        });
        assert_eq!(staleness.max(), Some(in_flight - 1));
    }
}

#[test]
fn all_strategies_learn_between_pipelines() {
    for spec in STRATEGIES {
        for in_flight in [1, 3] {
            let (strategy, setting) =
                (format!("swarm.strategy={}", spec.name), format!("pipeline.in_flight={in_flight}"));
            let settings = ["model=mlp:12,9", GRID, &strategy, &setting, "epochs=8", "batch=4"];
            let Ok(pipeline) = Pipeline::try_new(&settings, (&[6], 3), 120) else {
                assert_eq!(spec.name, "manager-worker", "only who leaves others out is refused");
                continue;
            };
            let accuracy = accuracy(&pipeline, 10);
            assert!(accuracy > 0.8, "{} with {in_flight} in flight: {accuracy}", spec.name);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let settings = ["model=mlp:12,9", GRID, "pipeline.in_flight=3", "epochs=2", "batch=4"];
    let pipeline = Pipeline::new(&settings, (&[6], 3), 60);
    let learnt = || pipeline.run(5, Scenario::default()).whole(0, pipeline.n_values()).unwrap();
    assert_eq!(learnt(), learnt());
}
