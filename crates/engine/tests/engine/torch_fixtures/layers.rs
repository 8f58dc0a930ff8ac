//! Single layers: outputs and both gradients.

use nettorrent_engine::model::layers::{
    Activation, ActivationKind, BatchNorm, Conv, Depthwise, Embedding, Pool, PoolKind, RowNorm, RowNormKind, Window,
};
use nettorrent_engine::model::{Layer, Role, Tensor};
use serde_json::Value;

use super::fixture::{
    INPUT, INPUT_GRADIENT_PROBE, LEAST_ERROR, OUTPUT_PROBE, PARAMETER, PROBE, UPSTREAM, compare, list, load, number,
    parameter, sizes, text, uniform, uniforms,
};
use crate::stand::{Stand, n_params};

/// A layer of ours for a fixture, its kind, and the numbers per sample of its output.
fn layer(fixture: &Value) -> Option<(Box<dyn Layer>, &'static str, usize)> {
    let name = text(&fixture["name"]);
    // What we do not offer: convolutions whose channels fall into groups (other than one group for each channel), and
    // averages that do not count the border.
    if ["conv-groups", "avg-pool-inside"].contains(&name) {
        return None;
    }
    let (input, options) = (sizes(&fixture["input"]), &fixture["options"]);
    let last = input[input.len() - 1];
    let axes = vec![(last, 1)];
    let option = |key: &str| number(&options[key]) as usize;
    Some(match name {
        "gelu" => (Box::new(Activation(ActivationKind::Gelu)), "gelu", last),
        "layer-norm" => {
            let layer = RowNorm { kind: RowNormKind::Layer, features: last, epsilon: 1e-5, axes };
            (Box::new(layer), "layer-norm", last)
        }
        "batch-norm" => {
            let n_rows = input[1] * input[2];
            (Box::new(BatchNorm { channels: last, n_rows, axes }), "batch-norm", n_rows * last)
        }
        "embedding" => {
            let features = option("size");
            (Box::new(Embedding { n_symbols: option("rows"), features, deviation: 1.0 }), "embedding", last * features)
        }
        _ => {
            let (kernel, stride, padding) = (option("kernel_size"), option("stride"), option("padding"));
            let window = Window::new(&input[1..], kernel, stride, padding);
            let n_windows: usize = window.output().expect("PyTorch could do it").iter().product();
            match name {
                _ if name.starts_with("conv-depthwise") => {
                    (Box::new(Depthwise { window, bias: true }), "depthwise-conv", n_windows * last)
                }
                _ if name.starts_with("conv") => {
                    let out_channels = option("out");
                    (Box::new(Conv { window, out_channels, bias: true }), "conv", n_windows * out_channels)
                }
                "avg-pool" => (Box::new(Pool { kind: PoolKind::Average, window }), "average-pool", n_windows * last),
                _ => (Box::new(Pool { kind: PoolKind::Max, window }), "max-pool", n_windows * last),
            }
        }
    })
}

/// The layer's trained tensors and where each begins.
fn trained(layer: &dyn Layer) -> Vec<(Tensor, usize)> {
    let mut start = 0;
    let tensors = layer.tensors().into_iter().filter(|tensor| tensor.role == Role::Parameter);
    tensors
        .map(|tensor| {
            start += tensor.len();
            (tensor.clone(), start - tensor.len())
        })
        .collect()
}

#[test]
fn layers() {
    let fixtures = load("layers.json");
    let mut n_checked = 0;
    for fixture in list(&fixtures["layers"]) {
        let Some((layer, kind, n_outputs)) = layer(fixture) else { continue };
        n_checked += 1;
        let name = text(&fixture["name"]);
        let shape = sizes(&fixture["input"]);
        let n_inputs = shape.iter().product();
        let x: Vec<f32> = match kind {
            "embedding" => (0..n_inputs).map(|i| ((7 * i + 3) % 11) as f32).collect(),
            _ => (0..n_inputs).map(|k| (number(&fixture["input_scale"]) * uniform(INPUT, k)) as f32).collect(),
        };
        let mut params = vec![0.0; n_params(layer.as_ref())];
        let tensors = trained(layer.as_ref());
        for (i, (tensor, start)) in tensors.iter().enumerate() {
            assert_eq!(tensor.name, text(&fixture["parameters"][i]["name"]), "{name}");
            for (k, place) in tensor.places().into_iter().enumerate() {
                params[start + place] = parameter(uniform(PARAMETER + i as u64, k), &tensor.name, kind, &tensor.shape);
            }
        }
        let stand = Stand::new(layer.as_ref(), &params, n_outputs, shape[0]);
        let y = stand.up(&x);
        compare(name, &y, &fixture["output"], Some(OUTPUT_PROBE), LEAST_ERROR).unwrap();
        let gradients = stand.down(&x, &uniforms(UPSTREAM, y.len()));
        // Symbols have no gradient.
        if !fixture["input_gradient"].is_null() {
            compare(name, &gradients.input, &fixture["input_gradient"], Some(INPUT_GRADIENT_PROBE), LEAST_ERROR)
                .unwrap();
        }
        assert_eq!(list(&fixture["gradients"]).len(), tensors.len(), "{name}");
        for (i, (tensor, start)) in tensors.iter().enumerate() {
            let found: Vec<f32> = tensor.places().iter().map(|place| gradients.weights[start + place]).collect();
            compare(name, &found, &fixture["gradients"][i], Some(PROBE + i as u64), LEAST_ERROR).unwrap();
        }
    }
    assert_eq!(n_checked, list(&fixtures["layers"]).len() - 2, "only two are left out");
}
