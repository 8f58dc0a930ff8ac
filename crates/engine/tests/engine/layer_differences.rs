//! Layers as a description names them, alone or a few together, against finite differences of what comes out of them.

use crate::differences::{compare, random};
use nettorrent_engine::model::{Mode, ModelSpec, Part, PartSpec, Rows, Workspace};
use nettorrent_engine::rng::Rng;
use serde_json::{Value, json};

/// How many samples.
const N: usize = 3;

/// Probes some layers, by a random linear functional of their output, at random parameters and inputs between -2 and 2.
fn probe(input: &[usize], layers: &Value) {
    let name = format!("{input:?} {layers}");
    let mut described = layers.as_array().expect("a list of layers").clone();
    let n_layers = described.len();
    described.push(json!("flatten"));
    let layers = serde_json::from_value(Value::Array(described)).expect("the layers are well described");
    let spec = ModelSpec { input: input.to_vec(), layers };
    let part = Part::new(&spec, &PartSpec { layers: 0..n_layers, column: 0, columns: 1 }).expect("the shapes fit");
    let mut rng = Rng::stream(1, &name, 0);
    let params = random(part.n_params(), &mut rng);
    let x: Vec<f32> = random(N * part.input_len(), &mut rng).iter().map(|x| 2.0 * x).collect();
    let functional = random(N * part.outputs().len(), &mut rng);
    let rows = Rows { first: 0, n: N, batch_len: N };
    let up = |params: &[f32], x: &[f32], workspace: &mut Workspace| {
        part.forward(params, x.to_vec(), rows, Mode::Train { seed: 1 }, workspace)
    };
    let workspace = || Workspace::new(1).expect("a thread can be had");
    let mut space = workspace();
    let mut pass = up(&params, &x, &mut space);
    let by_input = part.input_gradient(&params, &mut pass, &functional, true, &mut space);
    let mut by_weights = vec![f32::NAN; params.len()];
    part.weight_gradient(&params, pass, &mut by_weights, &mut space);
    let value = |params: &[f32], x: &[f32]| up(params, x, &mut workspace()).output().to_vec();
    let of_x = |x: &[f32]| value(&params, x);
    compare(&format!("{name}, by its input"), &by_input, &x, &functional, of_x, &mut rng);
    let of_params = |params: &[f32]| value(params, &x);
    compare(&format!("{name}, by its weights"), &by_weights, &params, &functional, of_params, &mut rng);
}

#[test]
fn gated_rows() {
    probe(&[5], &json!([{"swiglu": {"out": 7}}]));
    probe(&[4, 5], &json!([{"swiglu": {"out": 17, "bias": true}}, {"dense": {"out": 3}}]));
}

#[test]
fn recurrent_layers() {
    for kind in ["gru", "lstm", "recurrent"] {
        for (n_steps, n_inputs, out) in [(1, 3, 4), (5, 3, 4), (7, 17, 9), (3, 1, 1)] {
            for steps in ["all", "last"] {
                probe(&[n_steps, n_inputs], &json!([{kind: {"out": out, "steps": steps}}]));
            }
        }
        probe(&[4, 3], &json!([{"dense": {"out": 3}}, {kind: {"out": 5, "steps": "all"}}, {kind: {"out": 2}}]));
    }
}

#[test]
fn convolutions_along_one_axis_and_three() {
    for (kernel, stride, padding) in [(1, 1, 0), (3, 1, 1), (3, 2, 2), (4, 3, 1), (2, 2, 0)] {
        for (channels, out) in [(1, 17), (3, 5), (17, 2)] {
            let spec = json!({"out": out, "kernel": kernel, "stride": stride, "padding": padding, "bias": out != 5});
            probe(&[9, channels], &json!([{"conv1d": spec}]));
            probe(&[5, 4, 6, channels], &json!([{"conv3d": spec}]));
        }
    }
}

#[test]
fn images_that_grow() {
    for (kernel, stride, padding) in [(1, 1, 0), (3, 1, 1), (2, 2, 0), (4, 2, 1), (3, 2, 2), (2, 3, 1)] {
        for (channels, out) in [(1, 17), (3, 5), (17, 2)] {
            let spec = json!({"out": out, "kernel": kernel, "stride": stride, "padding": padding, "bias": out != 5});
            probe(&[4, 3, channels], &json!([{"transposed-conv": spec}]));
        }
    }
    probe(&[4, 3, 5], &json!([{"upsample": {"factor": 3}}]));
    probe(&[3, 4, 2], &json!([{"conv": {"out": 4, "kernel": 2}}, {"upsample": {"factor": 2}}]));
}

#[test]
fn volumes() {
    let conv = json!({"conv3d": {"out": 3, "kernel": 2}});
    probe(&[3, 3, 4, 2], &json!([conv, {"layer-norm": {}}, "tanh", "flatten", {"dense": {"out": 4}}]));
    probe(&[3, 3, 4, 2], &json!([conv, "global-pool"]));
}

#[test]
fn skip_connections() {
    let conv = |out: usize| json!({"conv": {"out": out, "kernel": 3, "padding": 1}});
    // A U-Net of two floors, with the input itself joined again at the end.
    let layers = json!([{"mark": "input"}, conv(3), "tanh", {"mark": "high"}, {"average-pool": {"size": 2}}, conv(5), "tanh",
        {"transposed-conv": {"out": 2, "kernel": 2, "stride": 2}}, {"concat": "high"}, conv(2), {"concat": "input"}]);
    probe(&[4, 6, 2], &layers);
    // The same value twice, and a mark that is used twice, once within a block.
    probe(
        &[5],
        &json!([{"dense": {"out": 4}}, {"mark": "a"}, {"concat": "a"}, {"dense": {"out": 4}}, {"concat": "a"}]),
    );
    let block = json!({"residual": {"body": [{"concat": "a"}, {"dense": {"out": 4}}]}});
    probe(&[3, 5], &json!([{"mark": "a"}, {"dense": {"out": 4}}, "tanh", block, {"concat": "a"}]));
}

#[test]
fn norms() {
    probe(&[5, 17], &json!([{"rms-norm": {}}]));
    probe(&[5, 17], &json!([{"layer-norm": {"epsilon": 0.1}}]));
}

#[test]
fn attention() {
    for (steps, heads, options) in [
        (5, 9, json!({"heads": 3})),
        (7, 9, json!({"heads": 3, "causal": true})),
        (6, 8, json!({"heads": 4, "kv_heads": 2, "causal": true, "rotary": 100.0})),
        (9, 6, json!({"heads": 4, "kv_heads": 1, "rotary": 10.0})),
        (6, 6, json!({"heads": 2, "dropout": 0.3, "causal": true})),
        (67, 3, json!({"heads": 1, "causal": true})),
    ] {
        probe(&[steps, 4 * heads], &json!([{ "attention": options }]));
    }
}

#[test]
fn positions() {
    probe(&[4, 6], &json!([{"positions": {"length": 7}}]));
}
