//! Small networks of each kind, and batches for them.

use nettorrent_engine::data::Batch;
use nettorrent_engine::model::{ModelSpec, Network};
use nettorrent_engine::rng::Rng;
use serde_json::{Value, json};

fn network(input: &[usize], layers: Value) -> Network {
    let layers = serde_json::from_value(layers).expect("the layers are well described");
    Network::new(&ModelSpec { input: input.to_vec(), layers }).expect("the shapes fit")
}

/// One network of each kind: smooth, so that rounding cannot open or shut a relu.
pub(crate) fn networks() -> Vec<(&'static str, Network)> {
    let images = json!([{"conv": {"out": 8, "kernel": 3, "padding": 1, "bias": false}}, {"batch-norm": {}}, "gelu",
        {"residual": {"body": [{"conv": {"out": 8, "kernel": 3, "padding": 1}}, {"batch-norm": {}}]}},
        {"max-pool": {"size": 2}}, "flatten", {"dropout": 0.5}, {"dense": {"out": 5}}]);
    let rows = json!([{"batch-norm": {}}, {"dense": {"out": 20}}, "tanh", {"dropout": 0.25}, {"dense": {"out": 5}},
        {"batch-norm": {}}]);
    let sequences = json!([{"recurrent": {"out": 9, "steps": "all"}}, {"layer-norm": {}}, {"recurrent": {"out": 6}},
        {"dropout": 0.1}, {"dense": {"out": 5}}]);
    // Its images are so large that a few at a time go through the first layers: the batch is cut into chunks.
    let chunks = json!([{"depthwise-conv": {"kernel": 3, "padding": 1}}, "gelu", {"average-pool": {"size": 4}},
        {"conv": {"out": 4, "kernel": 3, "stride": 2}}, {"batch-norm": {}}, "global-pool", {"dense": {"out": 5}}]);
    vec![
        ("images", network(&[8, 8, 3], images)),
        ("rows", network(&[12], rows)),
        ("sequences", network(&[7, 4], sequences)),
        ("chunks", network(&[64, 64, 6], chunks)),
    ]
}

/// A random batch for a network.
pub(crate) fn batch(network: &Network, n: usize) -> Batch {
    let mut rng = Rng::new(n as u64);
    let n_inputs = n * network.input().iter().product::<usize>();
    let inputs = (0..n_inputs).map(|_| rng.range(-1.0, 1.0)).collect();
    Batch::labelled(inputs, (0..n).map(|_| rng.below(network.n_classes()) as u32).collect())
}
