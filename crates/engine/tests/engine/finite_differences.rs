//! Every layer's two gradients, and whole networks', against finite differences.
//!
//! A layer is probed by a random linear functional of its output, one number at a time, with the five-point formula, whose
//! error shrinks with the fourth power of the step. With steps of 0.02 on numbers around 1, what remains is rounding: some
//! 1e-5 of a gradient. The tolerance is 1e-3 of the largest gradient in the tensor, so an error of one percent is noticed.

use crate::differences::{compare, random};
use crate::stand::{Stand, n_params};
use nettorrent_engine::data::{Batch, Targets};
use nettorrent_engine::model::layers::{
    Activation, ActivationKind, BatchNorm, Conv, Dense, Depthwise, Dropout, Embedding, GlobalPool, Pool, PoolKind,
    RowNorm, RowNormKind, Window,
};
use nettorrent_engine::model::{Layer, ModelSpec, Network, Workspace};
use nettorrent_engine::rng::Rng;
use serde_json::{Value, json};

/// Numbers that keep more than two steps away from 0.
fn away_from_zero(n: usize, rng: &mut Rng) -> Vec<f32> {
    random(n, rng).iter().map(|x| x + 0.1_f32.copysign(*x)).collect()
}

/// Numbers that keep more than four steps away from each other, so that no step changes which is the largest.
fn apart(n: usize, rng: &mut Rng) -> Vec<f32> {
    let mut numbers: Vec<f32> = (0..n).map(|i| 0.1 * i as f32 - 0.05 * n as f32).collect();
    rng.shuffle(&mut numbers);
    numbers
}

/// Probes a layer at random parameters and `x`, which holds `n` samples.
fn probe_at(name: &str, layer: &dyn Layer, n_outputs: usize, n: usize, x: &[f32]) {
    let mut rng = Rng::stream(1, name, 0);
    let params = random(n_params(layer), &mut rng);
    let functional = random(n * n_outputs, &mut rng);
    let gradients = Stand::new(layer, &params, n_outputs, n).down(x, &functional);
    let up = |params: &[f32], x: &[f32]| Stand::new(layer, params, n_outputs, n).up(x);
    let by_input = |x: &[f32]| up(&params, x);
    compare(&format!("{name}, by its input"), &gradients.input, x, &functional, by_input, &mut rng);
    let by_weights = |params: &[f32]| up(params, x);
    compare(&format!("{name}, by its weights"), &gradients.weights, &params, &functional, by_weights, &mut rng);
}

/// Probes a layer at random inputs.
fn probe(name: &str, layer: &dyn Layer, n_inputs: usize, n_outputs: usize, n: usize) {
    let x = random(n * n_inputs, &mut Rng::stream(2, name, 0));
    probe_at(name, layer, n_outputs, n, &x);
}

fn window(size: [usize; 3], kernel: usize, stride: usize, padding: usize) -> Window {
    Window::new(&size, kernel, stride, padding)
}

fn windows(window: &Window) -> usize {
    window.output().expect("the window fits").iter().product()
}

#[test]
fn dense() {
    // Up to 512 rows go through one kernel and more through another.
    for (n, n_rows) in [(1, 1), (4, 1), (3, 5), (2, 256), (1, 513), (600, 1)] {
        for (n_inputs, n_outputs) in [(1, 1), (5, 3), (17, 33)] {
            for bias in [true, false] {
                let layer = Dense { n_rows, n_inputs, n_outputs, bias, input_axes: vec![(n_inputs, 1)] };
                let name = format!("dense of {n} x {n_rows} rows, {n_inputs} to {n_outputs}, bias {bias}");
                probe(&name, &layer, n_rows * n_inputs, n_rows * n_outputs, n);
            }
        }
    }
}

#[test]
fn conv() {
    let channels = [(1, 1), (1, 17), (3, 16), (3, 33), (16, 3), (17, 17), (33, 1)];
    let slides = [(1, 1, 0), (1, 2, 0), (3, 1, 0), (3, 1, 1), (3, 1, 2), (3, 2, 1), (4, 3, 1), (5, 1, 2), (7, 2, 3)];
    for (kernel, stride, padding) in slides {
        for (in_channels, out_channels) in channels {
            for (height, width) in [(7, 6), (5, 16)] {
                let bias = (in_channels + kernel) % 2 == 0;
                let window = window([height, width, in_channels], kernel, stride, padding);
                if window.output().is_none() {
                    continue;
                }
                let layer = Conv { window, out_channels, bias };
                let name = format!("conv of {window:?} to {out_channels}, bias {bias}");
                probe(&name, &layer, window.image_len(), windows(&window) * out_channels, 3);
            }
        }
    }
}

#[test]
fn depthwise() {
    for channels in [1, 3, 17] {
        for (kernel, stride, padding) in [(1, 1, 0), (3, 1, 1), (3, 2, 1), (4, 3, 2), (5, 1, 0)] {
            for bias in [true, false] {
                let window = window([7, 6, channels], kernel, stride, padding);
                let layer = Depthwise { window, bias };
                let name = format!("depthwise of {window:?}, bias {bias}");
                probe(&name, &layer, window.image_len(), windows(&window) * channels, 3);
            }
        }
    }
}

#[test]
fn pools() {
    for channels in [1, 3, 17] {
        // Apart, overlapping, with a border, and with gaps between.
        for (size, stride, padding) in [(2, 2, 0), (3, 1, 0), (3, 2, 1), (2, 1, 1), (2, 3, 0)] {
            let window = window([7, 6, channels], size, stride, padding);
            let n_outputs = windows(&window) * channels;
            let x = apart(3 * window.image_len(), &mut Rng::new(3));
            probe_at(&format!("max of {window:?}"), &Pool { kind: PoolKind::Max, window }, n_outputs, 3, &x);
            let average = Pool { kind: PoolKind::Average, window };
            probe(&format!("average of {window:?}"), &average, window.image_len(), n_outputs, 3);
        }
        probe("global pool", &GlobalPool { n_pixels: 42, channels }, 42 * channels, channels, 3);
    }
}

#[test]
fn activations() {
    use ActivationKind::{Gelu, GeluTanh, Relu, Sigmoid, Silu, Tanh};
    for kind in [Gelu, GeluTanh, Relu, Sigmoid, Silu, Tanh] {
        // Wider than -1 to 1, to see the flat ends too.
        let x: Vec<f32> = away_from_zero(3 * 40, &mut Rng::new(4)).iter().map(|x| 3.0 * x).collect();
        probe_at(&format!("{kind:?}"), &Activation(kind), 40, 3, &x);
    }
}

#[test]
fn dropout() {
    // What is dropped depends on the seed and the place alone, so dropout is linear.
    for rate in [0.0, 0.25, 0.9] {
        let layer = Dropout { rate, len: 50, index: 2, columns: None };
        probe(&format!("dropout of {rate}"), &layer, 50, 50, 4);
    }
}

#[test]
fn norms() {
    for channels in [1, 3, 17] {
        let axes = vec![(channels, 1)];
        for (n_rows, n) in [(1, 4), (1, 7), (6, 3)] {
            let layer = BatchNorm { channels, n_rows, axes: axes.clone() };
            let name = format!("batch norm of {n} x {n_rows} x {channels}");
            probe(&name, &layer, n_rows * channels, n_rows * channels, n);
        }
    }
    for features in [3, 17, 40, 70] {
        for (kind, n_rows) in [(RowNormKind::Layer, 1), (RowNormKind::Layer, 5), (RowNormKind::Rms, 5)] {
            let layer = RowNorm { kind, features, epsilon: 1e-5, axes: vec![(features, 1)] };
            // Wider than -1 to 1: three numbers that happen to be near each other are too curved a place for the steps.
            let x: Vec<f32> = random(3 * n_rows * features, &mut Rng::new(6)).iter().map(|x| 4.0 * x).collect();
            probe_at(&format!("{kind:?} norm of {n_rows} x {features}"), &layer, n_rows * features, 3, &x);
        }
    }
}

#[test]
fn embedding() {
    let layer = Embedding { n_symbols: 11, features: 4, deviation: 1.0 };
    // In the middle between whole numbers, so that a step does not change the symbol; some beyond either end of the table.
    let mut rng = Rng::new(5);
    let x: Vec<f32> = (0..4 * 6).map(|_| rng.below(13) as f32 - 0.5).collect();
    probe_at("embedding", &layer, 6 * 4, 4, &x);
}

/// A network from a shape and a list of layers.
fn network(input: &[usize], layers: Value) -> Network {
    let layers = serde_json::from_value(layers).expect("the layers are well described");
    Network::new(&ModelSpec { input: input.to_vec(), layers }).expect("the shapes fit")
}

/// Probes a network's loss along two directions for each of its tensors: the tensor's own gradient, which sees every error
/// of its length, and a random one beside it. `step` is how far the parameters move, and `tolerance` a share of the
/// gradient's length.
fn probe_network(name: &str, network: &Network, step: f64, tolerance: f64) {
    let mut rng = Rng::stream(3, name, 0);
    let mut values = network.init(&mut rng);
    // Norms and biases start at constants, where some errors would not show.
    values[..network.n_params()].iter_mut().for_each(|value| *value += rng.range(-0.2, 0.2));
    let n = 9;
    let inputs = random(n * network.input().iter().product::<usize>(), &mut rng).iter().map(|x| 4.0 * x).collect();
    let labels = (0..n * network.output_len() / network.n_classes()).map(|_| rng.below(network.n_classes()) as u32);
    let batch = Batch { n, inputs, targets: Targets::Classes(labels.collect()) };
    let mut workspace = Workspace::new(1).expect("a thread can be had");
    let mut gradient = vec![f32::NAN; network.n_values()];
    network.gradient(&values, &batch, 7, &mut gradient, &mut workspace);
    let mut ignored = gradient.clone();
    let mut loss = |values: &[f32]| network.gradient(values, &batch, 7, &mut ignored, &mut workspace).loss();
    for tensor in network.tensors().iter().filter(|tensor| tensor.range.end <= network.n_params()) {
        let own: Vec<f64> = gradient[tensor.range.clone()].iter().map(|&g| f64::from(g)).collect();
        let length = norm(&own);
        let beside: Vec<f64> = own.iter().map(|_| f64::from(rng.normal())).collect();
        let mut check = |direction: &[f64]| {
            let scale = 1.0 / norm(direction);
            let mut moved = |steps: f64| {
                let mut moved = values.clone();
                for (value, d) in moved[tensor.range.clone()].iter_mut().zip(direction) {
                    *value = (f64::from(*value) + steps * step * scale * d) as f32;
                }
                loss(&moved)
            };
            let mut slope = |steps: f64| (moved(steps) - moved(-steps)) / (2.0 * steps * step);
            let expected = (4.0 * slope(1.0) - slope(2.0)) / 3.0;
            let found: f64 = own.iter().zip(direction).map(|(g, d)| g * d * scale).sum();
            // A bias below a batch norm has no gradient: then rounding is all there is.
            let close = (found - expected).abs() <= tolerance * length + 3e-7 / step;
            assert!(close, "{name}: {} has {found} and not {expected}; its length is {length}", tensor.name);
        };
        check(&own);
        check(&beside);
    }
}

fn norm(numbers: &[f64]) -> f64 {
    numbers.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// Smooth networks are probed with steps that are long enough to drown rounding.
fn probe_smooth(name: &str, input: &[usize], layers: Value) {
    probe_network(name, &network(input, layers), 0.02, 2e-3);
}

#[test]
fn networks_of_rows() {
    let layers = json!([{"dense": {"out": 9}}, "tanh", {"dropout": 0.3}, {"batch-norm": {}}, "sigmoid",
        {"dense": {"out": 7, "bias": false}}, {"layer-norm": {}}, "gelu", {"dropout": 0.2}, {"dense": {"out": 4}}]);
    probe_smooth("rows", &[6], layers);
    // Statistics at both ends, and twice in a row.
    let layers = json!([{"batch-norm": {}}, {"dense": {"out": 8}}, {"batch-norm": {}}, {"batch-norm": {}}, "tanh",
        {"dense": {"out": 4}}, {"batch-norm": {}}]);
    probe_smooth("norms at both ends", &[6], layers);
}

#[test]
fn networks_of_images() {
    let layers = json!([{"conv": {"out": 5, "kernel": 3, "padding": 1}}, "gelu", {"average-pool": {"size": 2}},
        {"depthwise-conv": {"kernel": 3}}, {"batch-norm": {}}, "tanh", {"layer-norm": {}}, "flatten",
        {"batch-norm": {}}, {"dense": {"out": 4}}]);
    probe_smooth("flat head", &[9, 8, 3], layers);
    let layers = json!([{"conv": {"out": 17, "kernel": 3, "stride": 2, "bias": false}}, {"batch-norm": {}}, "sigmoid",
        {"conv": {"out": 6, "kernel": 1}}, "global-pool", {"dense": {"out": 4}}]);
    probe_smooth("pooled head", &[9, 8, 3], layers);
}

#[test]
fn networks_of_sequences() {
    let layers = json!([{"embedding": {"symbols": 5, "out": 6}}, {"layer-norm": {}},
        {"residual": {"body": [{"dense": {"out": 6}}, "tanh"]}}, {"recurrent": {"out": 7, "steps": "all"}},
        {"gru": {"out": 4, "steps": "all"}}, {"lstm": {"out": 6, "steps": "all"}}, {"recurrent": {"out": 5}}, {"dense": {"out": 4}}]);
    probe_smooth("sequences", &[8], layers);
    let layers = json!([{"embedding": {"symbols": 5, "out": 6, "name": "words"}}, {"positions": {"length": 9}},
        {"residual": {"body": [{"layer-norm": {}}, {"dense": {"out": 18}}, {"attention": {"heads": 2, "causal": true}},
            {"dense": {"out": 6}}]}},
        {"residual": {"body": [{"rms-norm": {}}, {"swiglu": {"out": 7}}, {"dense": {"out": 6}}]}},
        {"tied-dense": {"to": "words"}}]);
    probe_smooth("a language model", &[8], layers);
}

#[test]
fn residual_networks() {
    let layers = json!([
        // Straight from the input, whose gradient nobody needs.
        {"residual": {"body": [{"dense": {"out": 6}}, "tanh"]}},
        {"residual": {"body": [{"dense": {"out": 8}}, "tanh"], "projection": [{"dense": {"out": 8, "bias": false}}]}},
        // One within the other, and both paths through a norm.
        {"residual": {"body": [{"residual": {"body": [{"dense": {"out": 8}}, "gelu"]}}, {"batch-norm": {}}],
            "projection": [{"batch-norm": {}}]}},
        {"dense": {"out": 4}}]);
    probe_smooth("residual rows", &[6], layers);
    let conv = |out: usize, kernel: usize| json!({"conv": {"out": out, "kernel": kernel, "padding": kernel / 2}});
    let layers = json!([conv(4, 3), {"batch-norm": {}}, "tanh",
        {"residual": {"body": [conv(4, 3), {"batch-norm": {}}, "tanh", conv(4, 1), {"batch-norm": {}}]}}, "tanh",
        {"residual": {"body": [conv(6, 3), "sigmoid"], "projection": [conv(6, 1)]}},
        "global-pool", {"dense": {"out": 4}}]);
    probe_smooth("residual images", &[6, 5, 2], layers);
}

#[test]
fn a_residual_without_a_body_doubles() {
    let layers = json!([{"dense": {"out": 5}}, {"residual": {"body": []}}, "tanh", {"dense": {"out": 4}}]);
    probe_smooth("doubled", &[6], layers);
    let layers = json!([{"residual": {"body": []}}, {"residual": {"body": ["flatten"]}}, {"dense": {"out": 4}}]);
    probe_smooth("doubled input", &[6], layers);
}

#[test]
fn networks_with_kinks() {
    // A step of 0.002 moves few of the numbers across a kink of relu or max-pool, and each by so little that the slope
    // changes by a share of the step; rounding weighs more than in smooth networks. Hence the wider tolerance, which still
    // notices errors of one percent.
    let layers = json!([{"conv": {"out": 6, "kernel": 3, "padding": 1}}, "relu", {"max-pool": {"size": 3, "stride": 2}},
        {"residual": {"body": [{"conv": {"out": 6, "kernel": 3, "padding": 1}}, {"batch-norm": {}}, "relu"]}},
        "flatten", {"dropout": 0.25}, {"dense": {"out": 12}}, "relu", {"dense": {"out": 4}}]);
    probe_network("kinks", &network(&[9, 8, 3], layers), 0.002, 5e-3);
}
