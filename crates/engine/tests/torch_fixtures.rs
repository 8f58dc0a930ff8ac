//! What PyTorch computes, matched: whole models of the zoo and single layers.
//!
//! The numbers come from `fixtures/make_fixtures.py`, whose head says by which formula inputs and parameters are made.
//! Expected values are those of 64-bit floats, and each gradient tells how far PyTorch's own 32-bit result is from them;
//! ours may be a few times as far.

mod stand;

use std::path::Path;

use nettorrent_engine::data::Batch;
use nettorrent_engine::model::layers::{
    Activation, ActivationKind, BatchNorm, Conv, Depthwise, Embedding, LayerNorm, Pool, PoolKind, Window,
};
use nettorrent_engine::model::{Layer, LayerSpec, NamedTensor, Network, Role, Tensor, Workspace, zoo};
use nettorrent_engine::rng::mix;
use serde_json::Value;
use stand::{Stand, n_params};

const INPUT: u64 = 1;
const UPSTREAM: u64 = 2;
const PARAMETER: u64 = 1000;
const BUFFER: u64 = 5000;
const OUTPUT_PROBE: u64 = 8000;
const INPUT_GRADIENT_PROBE: u64 = 8001;
const PROBE: u64 = 9000;

/// How many times PyTorch's own error ours may be, and an error that nobody is blamed for.
const FACTOR: f64 = 4.0;
const LEAST_ERROR: f64 = 1e-6;

/// Added to every bias in turn, until gradients agree. A relu whose input is 0 but for rounding may open here and stay shut
/// there, and a single one moves the gradients below it by more than a thousandth (in cifar-cnn there is one). Which relus
/// these are depends on the order of additions and so on the processor; a nudge of a few roundings decides them all anew.
const NUDGES: [f32; 4] = [0.0, -3e-7, 3e-7, -6e-7];

/// Value `k` of a stream.
fn uniform(stream: u64, k: usize) -> f64 {
    let x = mix(((stream << 32) + k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (x >> 40) as f64 / 2_f64.powi(24) * 2.0 - 1.0
}

fn uniforms(stream: u64, n: usize) -> Vec<f32> {
    (0..n).map(|k| uniform(stream, k) as f32).collect()
}

fn load(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    let text = std::fs::read_to_string(&path).expect("the fixture is there");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

fn sizes(value: &Value) -> Vec<usize> {
    list(value).iter().map(|size| number(size) as usize).collect()
}

/// Value `k` of a parameter by the name of its tensor, the kind of its layer, and its shape.
fn parameter(u: f64, tensor: &str, kind: &str, shape: &[usize]) -> f32 {
    let value = match kind {
        _ if tensor.contains("bias") => 0.1 * u,
        "batch-norm" | "layer-norm" => 1.0 + 0.1 * u,
        "embedding" => u,
        _ => u * (3.0 / shape[1..].iter().product::<usize>() as f64).sqrt(),
    };
    value as f32
}

fn statistic(u: f64, tensor: &str) -> f32 {
    (if tensor == "running_mean" { 0.1 * u } else { 1.0 + 0.5 * u.abs() }) as f32
}

/// Compares numbers in the checkpoint's order with a described tensor, up to an error as a share of its norm.
fn compare(what: &str, found: &[f32], expected: &Value, probe: Option<u64>, error: f64) -> Result<(), String> {
    let name = format!("{what}, {}", text(&expected["name"]));
    assert_eq!(found.len(), sizes(&expected["shape"]).iter().product::<usize>(), "{name}");
    let norm = number(&expected["norm"]);
    let close = |part: &str, found: f64, expected: f64, scale: f64| {
        let off = (found - expected).abs() / scale;
        // Written so that NaN is not close.
        if off <= error {
            Ok(())
        } else {
            Err(format!("{name}: its {part} is {found} and not {expected}: {off:.1e} off"))
        }
    };
    close("norm", found.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt(), norm, norm)?;
    for entry in list(&expected["entries"]) {
        let place = number(&entry[0]) as usize;
        close(&format!("number {place}"), f64::from(found[place]), number(&entry[1]), norm)?;
    }
    let Some(stream) = probe else { return Ok(()) };
    // The probe's own numbers have a mean square of 1/3, so an error that has nothing to do with them moves the sum by about
    // as much as it is long; twice that is allowed.
    let sum = found.iter().enumerate().map(|(k, &x)| f64::from(x) * uniform(stream, k)).sum();
    close("probe", sum, number(&expected["probe"]), 2.0 * norm)
}

#[test]
fn the_formula_is_the_same() {
    for check in list(&load("models.json")["formula_check"]) {
        for (k, value) in list(&check["values"]).iter().enumerate() {
            // Both are exact, but the parser of JSON rounds.
            let off = uniform(number(&check["stream"]) as u64, k) - number(value);
            assert!(off.abs() < 1e-15, "value {k} of {check}");
        }
    }
}

/// Sets every dropout rate to 0, also within residual blocks.
fn without_dropout(layers: &mut [LayerSpec]) {
    for layer in layers {
        match layer {
            LayerSpec::Dropout(rate) => *rate = 0.0,
            LayerSpec::Residual(spec) => {
                without_dropout(&mut spec.body);
                without_dropout(&mut spec.projection);
            }
            _ => {}
        }
    }
}

/// One of the zoo's models with the formula's parameters.
struct Model {
    name: String,
    network: Network,
    values: Vec<f32>,
    batch: Batch,
}

impl Model {
    fn new(fixture: &Value) -> Self {
        let name = text(&fixture["name"]);
        let (input, n_classes) = (sizes(&fixture["input"]), number(&fixture["classes"]) as usize);
        let zoo_name = if name == "speech-dense" { "speech-dense:256" } else { name };
        let mut spec = zoo::describe(zoo_name, Some(&input), Some(n_classes)).expect("the zoo has it");
        without_dropout(&mut spec.layers);
        let network = Network::new(&spec).expect("the zoo's models are sound");
        assert_eq!(network.n_params(), number(&fixture["parameters"]) as usize, "{name}");
        let n = number(&fixture["batch"]) as usize;
        let inputs = uniforms(INPUT, n * input.iter().product::<usize>());
        let labels = (0..n).map(|i| ((7 * i + 3) % n_classes) as u32).collect();
        let mut model = Self {
            name: name.to_owned(),
            values: vec![0.0; network.n_values()],
            network,
            batch: Batch { inputs, labels },
        };
        model.fill(fixture);
        model
    }

    /// Gives every tensor the numbers of its stream, which its place in the fixture's lists tells.
    fn fill(&mut self, fixture: &Value) {
        let kinds = self.network.summary();
        for (field, role, stream) in [("gradients", Role::Parameter, PARAMETER), ("running", Role::Buffer, BUFFER)] {
            let expected = list(&fixture[field]);
            let n_tensors = self.network.tensors().iter().filter(|named| named.tensor.role == role).count();
            assert_eq!(expected.len(), n_tensors, "{}: the number of tensors", self.name);
            for (i, expected) in expected.iter().enumerate() {
                let NamedTensor { name, tensor, range } = self.tensor(text(&expected["name"])).clone();
                assert_eq!(tensor.shape, sizes(&expected["shape"]), "{}: {name}", self.name);
                let (layer, _) = name.rsplit_once('.').expect("a tensor's name has its layer's before it");
                let kind = kinds.iter().find(|summary| summary.name == layer).expect("it has a layer").kind;
                for (k, place) in tensor.places().into_iter().enumerate() {
                    let u = uniform(stream + i as u64, k);
                    self.values[range.start + place] = match role {
                        Role::Parameter => parameter(u, tensor.name, kind, &tensor.shape),
                        Role::Buffer => statistic(u, tensor.name),
                    };
                }
            }
        }
    }

    fn tensor(&self, name: &str) -> &NamedTensor {
        let mut tensors = self.network.tensors().iter();
        tensors.find(|tensor| tensor.name == name).unwrap_or_else(|| panic!("{} has no {name}", self.name))
    }

    /// A tensor's numbers out of a flat vector, in the checkpoint's order.
    fn numbers(&self, flat: &[f32], name: &str) -> Vec<f32> {
        let NamedTensor { tensor, range, .. } = self.tensor(name);
        tensor.places().iter().map(|place| flat[range.start + place]).collect()
    }

    /// With the running statistics, as in use.
    fn check_outputs(&self, fixture: &Value, room: &mut Workspace) {
        let (outputs, score) = self.network.predict(&self.values, &self.batch, room);
        let error = (FACTOR * number(&fixture["eval_logits_f32_error"])).max(LEAST_ERROR);
        for (row, expected) in outputs.chunks_exact(self.network.n_classes()).zip(list(&fixture["eval_logits"])) {
            for (found, expected) in row.iter().zip(list(expected)) {
                let off = (f64::from(*found) - number(expected)).abs();
                assert!(off <= error, "{}: an output is {found} and not {expected}: off by {off:.1e}", self.name);
            }
        }
        self.check_loss(score.loss(), number(&fixture["eval_loss"]), error);
    }

    /// With the batch's statistics, as in training.
    fn check_gradients(&self, fixture: &Value, room: &mut Workspace, least_error: f64) -> Result<(), String> {
        let mut gradient = vec![f32::NAN; self.values.len()];
        let loss = self.network.gradient(&self.values, &self.batch, 0, &mut gradient, room).loss();
        let error = (FACTOR * number(&fixture["logits_f32_error"])).max(LEAST_ERROR);
        self.check_loss(loss, number(&fixture["loss"]), error);
        // An optimizer takes the statistics' drift off just as it lies in the gradient.
        let after: Vec<f32> = self.values.iter().zip(&gradient).map(|(value, drift)| value - drift).collect();
        for expected in list(&fixture["running"]) {
            // As exact as the logits, which went through all of the norms.
            compare(&self.name, &self.numbers(&after, text(&expected["name"])), expected, None, error)?;
        }
        for (i, expected) in list(&fixture["gradients"]).iter().enumerate() {
            let found = self.numbers(&gradient, text(&expected["name"]));
            let error = (FACTOR * number(&expected["f32_error"])).max(least_error);
            compare(&self.name, &found, expected, Some(PROBE + i as u64), error)?;
        }
        Ok(())
    }

    fn nudge(&mut self, distance: f32) {
        for named in self.network.tensors().iter().filter(|named| named.tensor.name.contains("bias")) {
            self.values[named.range.clone()].iter_mut().for_each(|value| *value += distance);
        }
    }

    fn check_loss(&self, found: f64, expected: f64, error: f64) {
        assert!((found - expected).abs() <= error, "{}: the loss is {found} and not {expected}", self.name);
    }
}

/// Both ways, with one thread and with two. Gradients may be this far off even where PyTorch's are not.
fn check_model_to(least_error: f64, name: &str) {
    let fixtures = load("models.json");
    let mut models = list(&fixtures["models"]).iter();
    let fixture = models.find(|model| model["name"] == name).unwrap_or_else(|| panic!("{name} has no fixture"));
    let mut model = Model::new(fixture);
    for n_threads in [1, 2] {
        let mut room = Workspace::new(n_threads).expect("two threads can be had");
        model.check_outputs(fixture, &mut room);
        let mut problems = Vec::new();
        for nudge in NUDGES {
            let before = model.values.clone();
            model.nudge(nudge);
            let result = model.check_gradients(fixture, &mut room, least_error);
            model.values = before;
            match result {
                Ok(()) => break,
                Err(problem) => problems.push(problem),
            }
        }
        assert!(problems.len() < NUDGES.len(), "with {n_threads} threads, nudged again and again: {problems:#?}");
    }
}

fn check_model(name: &str) {
    // A nudge by itself moves gradients by 3e-6 of their length.
    check_model_to(5e-6, name);
}

#[test]
fn cifar_cnn() {
    check_model("cifar-cnn");
}

#[test]
fn digits_cnn() {
    check_model("digits-cnn");
}

#[test]
fn mlp() {
    check_model("mlp");
}

#[test]
fn mnist_cnn() {
    check_model("mnist-cnn");
}

#[test]
fn resnet20() {
    check_model("resnet20");
}

/// Its gradients are known to a few percent only, by PyTorch in 32 bits as by us: batch norm over few values amplifies
/// rounding until relus flip. Its outputs with the running statistics are exact, and resnet20 is made of the same layers.
#[test]
fn resnet50() {
    check_model_to(0.05, "resnet50");
}

#[test]
fn speech_dense() {
    check_model("speech-dense");
}

#[test]
fn speech_rnn() {
    check_model("speech-rnn");
}

#[test]
fn no_model_is_left_out() {
    let names: Vec<String> = list(&load("models.json")["models"]).iter().map(|m| text(&m["name"]).to_owned()).collect();
    let checked = ["cifar-cnn", "digits-cnn", "mlp", "mnist-cnn", "resnet20", "resnet50", "speech-dense", "speech-rnn"];
    assert!(names.len() == checked.len() && checked.iter().all(|name| names.iter().any(|n| n == name)), "{names:?}");
}

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
        "layer-norm" => (Box::new(LayerNorm { features: last, axes }), "layer-norm", last),
        "batch-norm" => {
            let n_rows = input[1] * input[2];
            (Box::new(BatchNorm { channels: last, n_rows, axes }), "batch-norm", n_rows * last)
        }
        "embedding" => {
            let features = option("size");
            (Box::new(Embedding { n_symbols: option("rows"), features }), "embedding", last * features)
        }
        _ => {
            let (kernel, stride, padding) = (option("kernel_size"), option("stride"), option("padding"));
            let window = Window { height: input[1], width: input[2], channels: last, kernel, stride, padding };
            let (height, width) = window.output().expect("PyTorch could do it");
            let n_windows = height * width;
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
                params[start + place] = parameter(uniform(PARAMETER + i as u64, k), tensor.name, kind, &tensor.shape);
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
