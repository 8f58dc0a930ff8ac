//! Layers of every kind as stages of their own.

use nettorrent_engine::model::{Part, PartSpec};
use serde_json::{Value, json};

use super::grid::{Group, assert_as_whole, model};

/// Cuts a network before every layer, and in two wherever that can be.
fn check(name: &str, input: &[usize], layers: Value) {
    let spec = model(input, layers);
    let n = spec.layers.len();
    let group = |layers, rows| Group { layers, rows, columns: 1 };
    let cuts: Vec<usize> = (0..=n).filter(|&cut| spec.can_cut(cut)).collect();
    let every: Vec<Group> = cuts.windows(2).map(|pair| group(pair[0]..pair[1], 2)).collect();
    assert_as_whole(name, &spec, &every, 5, 1e-5);
    for &cut in &cuts[1..cuts.len() - 1] {
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

#[test]
fn images() {
    let layers = json!([{"conv": {"out": 5, "kernel": 3}}, {"transposed-conv": {"out": 4, "kernel": 2, "stride": 2}},
        {"upsample": {"factor": 2}}, {"conv": {"out": 3, "kernel": 3, "stride": 2}}, "flatten", {"dense": {"out": 4}}]);
    check("images", &[6, 5, 2], layers);
}

#[test]
fn convolutions_along_one_axis_and_three() {
    let layers = json!([{"conv1d": {"out": 5, "kernel": 3}}, "gelu", {"lstm": {"out": 4}}, {"dense": {"out": 4}}]);
    check("conv1d", &[8, 3], layers);
    let layers = json!([{"conv3d": {"out": 5, "kernel": 3, "padding": 1}}, "gelu", "flatten", {"dense": {"out": 4}}]);
    check("conv3d", &[3, 4, 5, 2], layers);
}

#[test]
fn skip_connections() {
    let conv = |out: usize| json!({"conv": {"out": out, "kernel": 3, "padding": 1}});
    let layers = json!([conv(3), "gelu", {"mark": "high"}, {"average-pool": {"size": 2}}, conv(5),
        {"residual": {"body": ["gelu", {"mark": "inner"}, conv(5), {"concat": "inner"}, conv(5)]}}, {"upsample": {"factor": 2}},
        {"concat": "high"}, conv(2), "flatten", {"dense": {"out": 4}}]);
    check("a small U-Net", &[4, 6, 2], layers.clone());
    let spec = model(&[4, 6, 2], layers);
    for cut in 0..=11 {
        assert_eq!(spec.can_cut(cut), !(3..8).contains(&cut), "before layer {cut}");
        let part = PartSpec { layers: cut.min(10)..11, column: 0, columns: 1 };
        if (3..8).contains(&cut) {
            let error = Part::new(&spec, &part).expect_err("the mark is in another stage");
            assert!(error.problem.contains("keep both in one stage"), "{error}");
        }
    }
}

/// Asserts that a layer's outputs can be split, with what follows it in its stage.
fn check_split(name: &str, input: &[usize], layers: Value, columns: usize) {
    check_split_in(name, input, layers, columns, 2);
}

/// The same with so many blocks of samples: one, where there is a batch norm.
fn check_split_in(name: &str, input: &[usize], layers: Value, columns: usize, rows: usize) {
    let spec = model(input, layers);
    let n = spec.layers.len();
    let part = PartSpec { layers: 0..n - 1, column: 0, columns };
    assert!(Part::new(&spec, &part).is_ok(), "{name} can be split");
    let groups = [Group { layers: 0..n - 1, rows, columns }, Group { layers: n - 1..n, rows: 1, columns: 1 }];
    assert_as_whole(name, &spec, &groups, 5, 1e-5);
}

#[test]
fn split_rows() {
    check_split("dense", &[7], json!([{"dense": {"out": 9}}, "gelu", {"dense": {"out": 4}}]), 3);
    let layers = json!([{"swiglu": {"out": 9, "bias": true}}, "silu", {"dropout": 0.3}, {"dense": {"out": 4}}]);
    check_split("swiglu", &[7], layers, 4);
}

#[test]
fn split_convolutions() {
    let conv1d = json!({"conv1d": {"out": 5, "kernel": 3}});
    check_split("conv1d", &[8, 3], json!([conv1d, "silu", "flatten", {"dense": {"out": 4}}]), 3);
    let conv3d = json!({"conv3d": {"out": 5, "kernel": 2}});
    let layers = json!([conv3d, {"dropout": 0.2}, {"batch-norm": {}}, "flatten", {"dense": {"out": 4}}]);
    check_split_in("conv3d", &[3, 4, 3, 2], layers, 2, 1);
    let layers =
        json!([{"conv": {"out": 5, "kernel": 3}}, {"upsample": {"factor": 2}}, "global-pool", {"dense": {"out": 4}}]);
    check_split("upsample", &[5, 4, 2], layers, 2);
}
