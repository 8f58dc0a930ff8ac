//! The fixtures as they lie in their files, the formula that they were made by, and how a tensor is compared.

use std::path::Path;

use nettorrent_engine::rng::mix;
use serde_json::Value;

pub(crate) const INPUT: u64 = 1;
pub(crate) const UPSTREAM: u64 = 2;
pub(crate) const PARAMETER: u64 = 1000;
pub(crate) const BUFFER: u64 = 5000;
pub(crate) const OUTPUT_PROBE: u64 = 8000;
pub(crate) const INPUT_GRADIENT_PROBE: u64 = 8001;
pub(crate) const PROBE: u64 = 9000;

/// How many times PyTorch's own error ours may be, and an error that nobody is blamed for.
pub(crate) const FACTOR: f64 = 4.0;
pub(crate) const LEAST_ERROR: f64 = 1e-6;

/// Value `k` of a stream.
pub(crate) fn uniform(stream: u64, k: usize) -> f64 {
    let x = mix(((stream << 32) + k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (x >> 40) as f64 / 2_f64.powi(24) * 2.0 - 1.0
}

pub(crate) fn uniforms(stream: u64, n: usize) -> Vec<f32> {
    (0..n).map(|k| uniform(stream, k) as f32).collect()
}

pub(crate) fn load(file: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(file);
    let text = std::fs::read_to_string(&path).expect("the fixture is there");
    serde_json::from_str(&text).expect("the fixture is JSON")
}

pub(crate) fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is no list"))
}

pub(crate) fn sizes(value: &Value) -> Vec<usize> {
    list(value).iter().map(|size| number(size) as usize).collect()
}

/// Value `k` of a parameter by the name of its tensor, the kind of its layer, and its shape.
pub(crate) fn parameter(u: f64, tensor: &str, kind: &str, shape: &[usize]) -> f32 {
    let value = match kind {
        _ if tensor.contains("bias") => 0.1 * u,
        "batch-norm" | "layer-norm" | "rms-norm" => 1.0 + 0.1 * u,
        "embedding" => u,
        _ => u * (3.0 / shape[1..].iter().product::<usize>() as f64).sqrt(),
    };
    value as f32
}

pub(crate) fn statistic(u: f64, tensor: &str) -> f32 {
    (if tensor == "running_mean" { 0.1 * u } else { 1.0 + 0.5 * u.abs() }) as f32
}

/// Compares numbers in the checkpoint's order with a described tensor, up to an error as a share of its norm.
pub(crate) fn compare(
    what: &str,
    found: &[f32],
    expected: &Value,
    probe: Option<u64>,
    error: f64,
) -> Result<(), String> {
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
