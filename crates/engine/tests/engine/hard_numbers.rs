//! Numbers that are far from 0, or no numbers at all.

use crate::stand::{Stand, n_params};
use nettorrent_engine::data::Batch;
use nettorrent_engine::model::layers::BatchNorm;
use nettorrent_engine::model::{LayerSpec, ModelSpec, Network, Workspace};
use nettorrent_engine::rng::Rng;
use serde_json::json;

/// A batch whose mean is a thousand times its deviation is normalised as well as its own digits allow.
#[test]
fn batch_norm_far_from_zero() {
    let (channels, n_rows, n) = (3, 1000, 8);
    let layer = BatchNorm { channels, n_rows, axes: vec![(channels, 1)] };
    let mut rng = Rng::new(1);
    let near: Vec<f32> = (0..channels * n_rows * n).map(|_| rng.normal()).collect();
    let far: Vec<f32> = near.iter().map(|x| x + 1000.0).collect();
    // What is left of the numbers after they were rounded far from 0.
    let near: Vec<f32> = far.iter().map(|x| x - 1000.0).collect();
    let mut params = vec![0.0; n_params(&layer)];
    params[..channels].fill(1.0);
    let stand = Stand::new(&layer, &params, channels * n_rows, n);
    let (expected, found) = (stand.up(&near), stand.up(&far));
    assert!(distance(&expected, &found) < 1e-3);
    let (expected, found) = (stand.down(&near, &near), stand.down(&far, &near));
    assert!(distance(&expected.weights, &found.weights) < 1e-3 * (n * n_rows) as f32);
    assert!(distance(&expected.input, &found.input) < 1e-3);
}

fn distance(left: &[f32], right: &[f32]) -> f32 {
    left.iter().zip(right).fold(0.0, |distance: f32, (l, r)| distance.max((l - r).abs()))
}

/// A NaN reaches the loss through every layer, so that a run ends with a clear word and not with a network that is dead.
#[test]
fn nan_is_not_swallowed() {
    let layers = json!(["gelu", "gelu-tanh", "relu", "sigmoid", "silu", "tanh", {"rms-norm": {}}, {"upsample": {"factor": 2}},
        {"transposed-conv": {"out": 2, "kernel": 2, "stride": 2}}, {"max-pool": {"size": 2}}, {"average-pool": {"size": 2}},
        {"batch-norm": {}}, {"layer-norm": {}}, {"conv": {"out": 2, "kernel": 3, "padding": 1}},
        {"depthwise-conv": {"kernel": 3, "padding": 1}}, {"residual": {"body": ["relu"]}}]);
    let layers: Vec<LayerSpec> = serde_json::from_value(layers).unwrap();
    let head: Vec<LayerSpec> = serde_json::from_value(json!(["global-pool", {"dense": {"out": 3}}])).unwrap();
    for layer in layers {
        let name = format!("{layer:?}");
        let layers = std::iter::once(layer).chain(head.clone()).collect();
        let network = Network::new(&ModelSpec { input: vec![4, 4, 2], layers }).unwrap();
        let values = network.init(&mut Rng::new(1));
        let mut inputs = vec![0.5; 2 * 32];
        inputs[5] = f32::NAN;
        let batch = Batch::labelled(inputs, vec![0, 1]);
        let loss = network.gradient(&values, &batch, 0, &mut values.clone(), &mut Workspace::new(1).unwrap()).loss();
        assert!(loss.is_nan(), "{name}: the loss is {loss}");
    }
}
