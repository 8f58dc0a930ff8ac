//! Layers as a description names them, alone and a few together: outputs, both gradients, and the names and shapes of their tensors.

use nettorrent_engine::model::{Mode, ModelSpec, Network, Part, PartSpec, Rows, Workspace};
use serde_json::{Value, json};

use super::fixture::{
    INPUT, INPUT_GRADIENT_PROBE, LEAST_ERROR, OUTPUT_PROBE, PARAMETER, PROBE, UPSTREAM, compare, list, load, number,
    parameter, sizes, text, uniform, uniforms,
};

/// The network that the layer is a part of, with the fixture's parameters: all PyTorch's, under the same names.
fn network(fixture: &Value) -> (ModelSpec, Network, Vec<f32>) {
    let one = [fixture["layer"].clone()];
    let layers = fixture["layer"].as_array().map_or(&one[..], Vec::as_slice);
    let all = json!(layers.iter().cloned().chain([json!("flatten")]).collect::<Vec<_>>());
    let layers = serde_json::from_value(all).expect("the layers are well described");
    let spec = ModelSpec { input: sizes(&fixture["input"]), layers };
    let network = Network::new(&spec).expect("PyTorch could do it");
    let mut values = vec![f32::NAN; network.n_values()];
    let expected = list(&fixture["gradients"]);
    assert_eq!(network.tensors().len(), expected.len(), "{}", fixture["layer"]);
    for (i, (named, expected)) in network.tensors().iter().zip(expected).enumerate() {
        // A layer alone has PyTorch's names, and several are numbered.
        let name = if fixture["layer"].is_array() { &named.name } else { named.name.trim_start_matches("0.") };
        assert_eq!((name, &named.tensor.shape), (text(&expected["name"]), &sizes(&expected["shape"])));
        let kind = spec.layers[0].kind();
        for (k, place) in named.tensor.places().into_iter().enumerate() {
            let u = uniform(PARAMETER + i as u64, k);
            values[named.range.start + place] = parameter(u, name, kind, &named.tensor.shape);
        }
    }
    (spec, network, values)
}

#[test]
fn described_layers() {
    for fixture in list(&load("layers.json")["described"]) {
        let name = &fixture["layer"].to_string();
        let (spec, network, values) = network(fixture);
        let part = Part::new(&spec, &PartSpec { layers: 0..spec.layers.len() - 1, column: 0, columns: 1 })
            .expect("it is a part");
        let n = number(&fixture["batch"]) as usize;
        let x = uniforms(INPUT, n * part.input_len()).iter().map(|u| 2.0 * u).collect();
        let rows = Rows { first: 0, n, batch_len: n };
        let workspace = &mut Workspace::new(1).expect("a thread can be had");
        let mut pass = part.forward(&values, x, rows, Mode::Train { seed: 1 }, workspace);
        compare(name, pass.output(), &fixture["output"], Some(OUTPUT_PROBE), LEAST_ERROR).unwrap();
        let upstream = uniforms(UPSTREAM, pass.output().len());
        let by_input = part.input_gradient(&values, &mut pass, &upstream, true, workspace);
        compare(name, &by_input, &fixture["input_gradient"], Some(INPUT_GRADIENT_PROBE), LEAST_ERROR).unwrap();
        let mut by_weights = vec![f32::NAN; values.len()];
        part.weight_gradient(&values, pass, &mut by_weights, workspace);
        for (i, named) in network.tensors().iter().enumerate() {
            let places = named.tensor.places();
            let found: Vec<f32> = places.iter().map(|place| by_weights[named.range.start + place]).collect();
            compare(name, &found, &fixture["gradients"][i], Some(PROBE + i as u64), LEAST_ERROR).unwrap();
        }
    }
}
