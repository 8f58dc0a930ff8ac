//! With one batch in flight a pipeline computes what one machine would, to rounding, whatever the grid.

use nettorrent_engine::job::Job;
use nettorrent_engine::model::zoo::{self, ZOO};
use nettorrent_engine::model::{DenseSpec, LayerSpec, ModelSpec};
use nettorrent_sim::Scenario;

use super::pipeline::{Pipeline, difference};

/// Trains by layers and whole, and compares.
fn assert_equal(pipeline: &Pipeline, n_pipelines: usize) {
    let tolerance = 1e-4;
    let n_slots = pipeline.pipelines.n_slots();
    let outcome = pipeline.run(n_slots * n_pipelines, Scenario::default());
    assert!(
        outcome.failures.is_empty() && outcome.refusals.is_empty(),
        "{:?} {:?}",
        outcome.failures,
        outcome.refusals
    );
    let expected = pipeline.learnt_whole(n_pipelines);
    for k in 0..n_pipelines {
        let learnt = outcome.whole(k, pipeline.n_values()).expect("all blocks are there");
        let apart = difference(&expected, &learnt, &pipeline.init());
        assert!(apart < tolerance, "{:?} in pipeline {k}: {apart}", pipeline.job.pipeline);
    }
}

fn check(model: &str, (shape, n_classes): (&[usize], usize), grids: &[&str]) {
    for grid in grids {
        let (model, grid) = (format!("model={model}"), format!("pipeline.stages={grid}"));
        // Fifty batch norms over a handful of numbers each would make rounding grow beyond all measure.
        let (batch, n_steps) = if model.ends_with("resnet50") { (24, 1) } else { (6, 2) };
        let size = format!("batch={batch}");
        let settings = [model.as_str(), &grid, "epochs=1", &size];
        assert_equal(&Pipeline::new(&settings, (shape, n_classes), batch * n_steps), 1);
    }
}

/// For each network of the zoo: samples, and grids; the first of these is the whole as one block.
const ZOO_GRIDS: &[(&str, &[usize], &[&str])] = &[
    (
        "cifar-cnn",
        &[16, 16, 3],
        &[
            "[{layers=17}]",
            "[{layers=2,tensor_shards=2},{layers=4,batch_shards=2},{layers=2,tensor_shards=3},{layers=5,tensor_shards=2},{layers=3,tensor_shards=4},\
              {layers=1,tensor_shards=2}]",
        ],
    ),
    (
        "digits-cnn",
        &[8, 8, 1],
        &[
            "[{layers=10}]",
            "[{layers=4},{layers=6}]",
            "[{layers=2,tensor_shards=3},{layers=4,tensor_shards=2,batch_shards=2},{layers=3,tensor_shards=4},{layers=1,tensor_shards=2,batch_shards=3}]",
        ],
    ),
    (
        "mlp:20,15",
        &[4, 4, 1],
        &[
            "[{layers=6}]",
            "[{layers=3,tensor_shards=5},{layers=2,batch_shards=4,tensor_shards=2},{layers=1,tensor_shards=5}]",
        ],
    ),
    (
        "mnist-cnn",
        &[12, 12, 1],
        &[
            "[{layers=11}]",
            "[{layers=2,tensor_shards=2,batch_shards=2},{layers=5,tensor_shards=4},{layers=3,tensor_shards=3},{layers=1}]",
            "[{layers=7,batch_shards=3},{layers=4,batch_shards=2}]",
        ],
    ),
    (
        "resnet20",
        &[8, 8, 3],
        &[
            "[{layers=23}]",
            "[{layers=3,tensor_shards=2},{layers=8},{layers=11},{layers=1,tensor_shards=2,batch_shards=2}]",
        ],
    ),
    ("resnet50", &[64, 64, 3], &["[{layers=4,tensor_shards=4},{layers=16},{layers=17},{layers=1,tensor_shards=3}]"]),
    ("speech-attention:12", &[8, 5], &["[{layers=9}]", "[{layers=3},{layers=3,batch_shards=2},{layers=3}]"]),
    (
        "speech-dense:40",
        &[8, 5],
        &[
            "[{layers=12}]",
            "[{layers=3,tensor_shards=2},{layers=2,batch_shards=3},{layers=4},{layers=2,tensor_shards=2},{layers=1}]",
        ],
    ),
    ("speech-rnn:16", &[8, 5], &["[{layers=2}]", "[{layers=1,batch_shards=2},{layers=1,tensor_shards=2}]"]),
    ("vit-tiny", &[8, 8, 3], &["[{layers=3,batch_shards=2},{layers=12},{layers=15}]"]),
];

#[test]
fn all_networks_of_the_zoo() {
    // Those that begin with an embedding are for text, and those that end with a convolution for pictures with a class at each pixel. There
    // are none of these here; the engine's own tests cut them.
    let is_for_others = |name: &str| {
        let spec = zoo::describe(name, None, None).expect("it is of the zoo");
        matches!(spec.layers[0], LayerSpec::Embedding(_)) || matches!(spec.layers.last(), Some(LayerSpec::Conv(_)))
    };
    for entry in ZOO.iter().filter(|entry| !is_for_others(entry.name)) {
        let named = |(name, ..): &&(&str, _, _)| name.split(':').next() == Some(entry.name);
        let (model, shape, grids) = ZOO_GRIDS.iter().find(named).expect("each of the zoo is here");
        check(model, (shape, 5), grids);
    }
}

#[test]
fn a_batch_smaller_than_the_rows() {
    check("mlp:20,15", (&[4, 4, 1], 5), &["[{layers=3,batch_shards=9},{layers=3,batch_shards=2}]"]);
}

#[test]
fn the_example_of_a_ten_by_ten_grid() {
    // A batch of 100 samples of 50 numbers meets a layer of 200 neurons: each of 100 peers multiplies 10x50 by 50x20.
    let dense = |out| LayerSpec::Dense(DenseSpec::new(out));
    let spec = ModelSpec { input: vec![50], layers: vec![dense(200)] };
    let settings =
        ["pipeline.stages=[{layers=1,batch_shards=10,tensor_shards=10}]", "epochs=1", "batch=100"].map(str::to_owned);
    let job = Job::parse("the test's job", "optimizer.lr = 0.05\n", &settings).unwrap();
    let pipeline = Pipeline::of_model(job, &spec, 400);
    let pipelines = &pipeline.pipelines;
    assert_eq!((pipelines.n_slots(), pipelines.part(0).n_params()), (100, 50 * 20 + 20));
    assert_equal(&pipeline, 1);
}

#[test]
fn several_pipelines_are_several_machines() {
    let grid = "pipeline.stages=[{layers=3,batch_shards=2},{layers=2,tensor_shards=2},{layers=1}]";
    for strategy in ["ring-all-reduce", "ring-reduce", "parameter-server"] {
        let strategy = format!("swarm.strategy={strategy}");
        let settings = ["model=mlp:12,9", grid, &strategy, "epochs=2", "batch=4"];
        assert_equal(&Pipeline::new(&settings, (&[4, 4, 1], 3), 36), 3);
    }
}

#[test]
fn fewer_peers_than_slots_hold_several_blocks() {
    let grid = "pipeline.stages=[{layers=3,batch_shards=2},{layers=2,tensor_shards=2},{layers=1}]";
    let pipeline = Pipeline::new(&["model=mlp:12,9", grid, "epochs=2", "batch=4"], (&[4, 4, 1], 3), 36);
    let expected = pipeline.run(5, Scenario::default()).whole(0, pipeline.n_values()).unwrap();
    for n_peers in 1..5 {
        let learnt = pipeline.run(n_peers, Scenario::default()).whole(0, pipeline.n_values()).unwrap();
        assert_eq!(learnt, expected, "with {n_peers} peers");
    }
}
