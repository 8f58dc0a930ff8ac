//! Layers of every kind as stages of their own.

use nettorrent_engine::model::{Part, PartSpec};
use serde_json::{Value, json};

use crate::grid::{Group, assert_as_whole, model};

/// Cuts a network before every layer, and in two wherever that can be.
fn check(name: &str, input: &[usize], layers: Value) {
    let spec = model(input, layers);
    let n = spec.layers.len();
    let group = |layers, rows| Group { layers, rows, columns: 1 };
    let every: Vec<Group> = (0..n).map(|i| group(i..i + 1, 2)).collect();
    assert_as_whole(name, &spec, &every, 5, 1e-5);
    for cut in 1..n {
        assert_as_whole(name, &spec, &[group(0..cut, 1), group(cut..n, 2)], 5, 1e-5);
    }
}

#[test]
fn rows() {
    let layers = json!([{"dense": {"out": 9}}, {"rms-norm": {}}, {"swiglu": {"out": 6}}, "silu", {"dense": {"out": 5}},
        "gelu-tanh", {"dense": {"out": 4}}]);
    check("rows", &[7], layers);
}

#[test]
fn sequences() {
    let layers = json!([{"embedding": {"symbols": 5, "out": 6}}, {"lstm": {"out": 4, "steps": "all"}},
        {"gru": {"out": 7, "steps": "all"}}, {"recurrent": {"out": 5, "steps": "all"}}, {"lstm": {"out": 5}},
        {"dense": {"out": 4}}]);
    check("sequences", &[6], layers);
}

/// Asserts that a layer's outputs can be split, with what follows it in its stage.
fn check_split(name: &str, input: &[usize], layers: Value, columns: usize) {
    let spec = model(input, layers);
    let n = spec.layers.len();
    let part = PartSpec { layers: 0..n - 1, column: 0, columns };
    assert!(Part::new(&spec, &part).is_ok(), "{name} can be split");
    let groups = [Group { layers: 0..n - 1, rows: 2, columns }, Group { layers: n - 1..n, rows: 1, columns: 1 }];
    assert_as_whole(name, &spec, &groups, 5, 1e-5);
}

#[test]
fn split_rows() {
    check_split("dense", &[7], json!([{"dense": {"out": 9}}, "gelu", {"dense": {"out": 4}}]), 3);
    let layers = json!([{"swiglu": {"out": 9, "bias": true}}, "silu", {"dropout": 0.3}, {"dense": {"out": 4}}]);
    check_split("swiglu", &[7], layers, 4);
}
