//! Single grids, layers of every kind that follow a split one, and what cannot be split.

use nettorrent_engine::model::{Columns, Mode, ModelSpec, Network, Part, PartSpec, Pass, Rows};
use nettorrent_engine::rng::Rng;
use serde_json::json;

use super::grid::{Group, assert_as_whole, block, distance, model, parts, workspace};

fn group(layers: std::ops::Range<usize>, rows: usize, columns: usize) -> Group {
    Group { layers, rows, columns }
}

/// Two convolutions with all that may follow a split one, and a head.
fn images() -> ModelSpec {
    let layers = json!([
        {"conv": {"out": 7, "kernel": 3, "padding": 1, "bias": false}},
        {"batch-norm": {}},
        "relu",
        {"max-pool": {"size": 2}},
        {"dropout": 0.3},
        {"depthwise-conv": {"kernel": 3, "padding": 1}},
        "gelu",
        {"average-pool": {"size": 2}},
        {"conv": {"out": 11, "kernel": 2, "stride": 1}},
        "sigmoid",
        "flatten",
        {"dropout": 0.4},
        {"batch-norm": {}},
        "tanh",
        {"dense": {"out": 13}},
        {"layer-norm": {}},
        {"dropout": 0.2},
        {"dense": {"out": 5, "bias": false}}
    ]);
    model(&[16, 16, 3], layers)
}

#[test]
fn everything_that_may_follow_a_split_layer() {
    let spec = images();
    for columns in [1, 2, 3, 7] {
        let groups = [
            group(0..8, 1, columns),
            group(8..14, 1, columns),
            group(14..15, 3, columns),
            group(15..17, 2, 1),
            group(17..18, 2, columns.min(5)),
        ];
        assert_as_whole("images", &spec, &groups, 7, 2e-5);
    }
}

#[test]
fn a_cut_between_relu_and_max_pool() {
    // The whole network lets these two change places; a cut between them keeps them where they are.
    let spec = images();
    for cut in 1..8 {
        let groups = [group(0..cut, 1, 3), group(cut..8, 1, 1), group(8..18, 1, 1)];
        assert_as_whole("images", &spec, &groups, 5, 2e-5);
    }
}

#[test]
fn symbols_and_sequences() {
    let layers = json!([
        {"embedding": {"symbols": 9, "out": 8}},
        {"dropout": 0.2},
        {"dense": {"out": 6}},
        "tanh",
        {"recurrent": {"out": 9, "steps": "all"}},
        {"dense": {"out": 7}},
        {"dropout": 0.5},
        "flatten",
        {"residual": {"body": [{"dropout": 0.3}, {"dense": {"out": 35}}, "gelu"]}},
        {"dense": {"out": 4}}
    ]);
    let spec = model(&[5], layers);
    let groups = [group(0..2, 2, 3), group(2..4, 3, 4), group(4..5, 2, 1), group(5..8, 1, 3), group(8..10, 2, 1)];
    assert_as_whole("sequences", &spec, &groups, 8, 1e-5);
    let groups = [group(0..2, 1, 8), group(2..5, 2, 1), group(5..8, 4, 2), group(8..9, 3, 1), group(9..10, 3, 4)];
    assert_as_whole("sequences", &spec, &groups, 8, 1e-5);
}

#[test]
fn attention_by_heads() {
    // Heads of 4 numbers: as many that ask as are asked, two that ask each one, and all that ask the same.
    for (heads, kv_heads) in [(6, 6), (6, 3), (5, 1)] {
        let layers = json!([
            {"dense": {"out": 4 * (heads + 2 * kv_heads)}},
            {"attention": {"heads": heads, "kv_heads": kv_heads, "causal": heads == 6, "rotary": 10000.0, "dropout": 0.3}},
            {"dropout": 0.2},
            "gelu",
            {"dense": {"out": 6}},
            "flatten",
            {"dense": {"out": 5}}
        ]);
        let spec = model(&[7, 10], layers);
        for columns in 1..=kv_heads {
            let groups = [group(0..4, 2, columns), group(4..6, 1, 3), group(6..7, 1, 1)];
            assert_as_whole("attention", &spec, &groups, 5, 1e-5);
            let groups = [group(0..2, 1, columns), group(2..7, 1, 1)];
            assert_as_whole("attention", &spec, &groups, 5, 1e-5);
        }
        let part = PartSpec { layers: 0..2, column: 0, columns: kv_heads + 1 };
        let error = Part::new(&spec, &part).expect_err("there are not so many heads");
        assert_eq!(error.place, "layers[1] (attention)");
        assert!(error.problem.contains("heads of keys and values"), "{error}");
    }
}

#[test]
fn a_batch_of_100_by_a_layer_of_50_to_200_on_ten_by_ten() {
    let spec = model(&[50], json!([{"dense": {"out": 200}}, "gelu", {"dense": {"out": 10}}]));
    assert_as_whole("dense", &spec, &[group(0..2, 10, 10), group(2..3, 1, 1)], 100, 1e-5);
    // The layer alone, held against sums taken in double precision.
    let layer = group(0..1, 10, 10);
    let network = Network::new(&spec).expect("the network can be built");
    let values = network.init(&mut Rng::new(3));
    let mut rng = Rng::new(4);
    let inputs: Vec<f32> = (0..100 * 50).map(|_| rng.range(-1.0, 1.0)).collect();
    let (weights, bias) = values.split_at(200 * 50);
    for (column, part) in parts(&spec, &layer).iter().enumerate() {
        assert_eq!((part.n_params(), part.input_len(), part.n_multiplications()), (20 * 50 + 20, 50, 20 * 50));
        assert_eq!(*part.outputs(), Columns { n_pixels: 1, n_channels: 200, channels: 20 * column..20 * (column + 1) });
        for row in 0..10 {
            let samples = block(row, 10, 100);
            let rows = Rows { first: samples.start, n: 10, batch_len: 100 };
            let mine = inputs[samples.start * 50..samples.end * 50].to_vec();
            let pass = part.forward(&part.take(&values), mine, rows, Mode::Train { seed: 1 }, &mut workspace(1));
            let expected = samples.flat_map(|sample| {
                let x = &inputs[sample * 50..][..50];
                part.outputs().channels.clone().map(move |output| {
                    let products =
                        x.iter().zip(&weights[output * 50..][..50]).map(|(x, w)| f64::from(*x) * f64::from(*w));
                    (f64::from(bias[output]) + products.sum::<f64>()) as f32
                })
            });
            assert!(distance(pass.output(), &expected.collect::<Vec<f32>>()) < 1e-6, "row {row}, column {column}");
        }
    }
}

#[test]
fn no_rows_ask_for_no_change() {
    let spec = images();
    for part in
        [group(0..8, 1, 2), group(8..14, 1, 3), group(14..18, 1, 1)].iter().flat_map(|group| parts(&spec, group))
    {
        for n_threads in [1, 2] {
            let (values, mut workspace) = (part.init(&mut Rng::new(1)), workspace(n_threads));
            let rows = Rows { first: 3, n: 0, batch_len: 3 };
            let mut pass = part.forward(&values, Vec::new(), rows, Mode::Train { seed: 1 }, &mut workspace);
            assert!(pass.output().is_empty());
            assert!(part.input_gradient(&values, &mut pass, &[], true, &mut workspace).is_empty());
            let mut gradient = vec![f32::NAN; part.n_values()];
            part.weight_gradient(&values, pass, &mut gradient, &mut workspace);
            assert!(gradient.iter().all(|&g| g == 0.0), "{part:?}");
        }
    }
}

#[test]
fn passes_under_way_at_once_do_not_disturb_each_other() {
    let spec = images();
    let part = Part::new(&spec, &PartSpec { layers: 0..14, column: 0, columns: 1 }).expect("this can be");
    let values = part.init(&mut Rng::new(1));
    let rows = |n| Rows { first: 0, n, batch_len: n };
    let inputs = |n: usize| {
        let mut rng = Rng::new(n as u64);
        (0..n * part.input_len()).map(|_| rng.range(-1.0, 1.0)).collect::<Vec<f32>>()
    };
    let train = Mode::Train { seed: 4 };
    let finish = |mut pass: Pass, workspace: &mut nettorrent_engine::model::Workspace| {
        let gradient: Vec<f32> = pass.output().iter().map(|y| 0.1 * y).collect();
        let by_inputs = part.input_gradient(&values, &mut pass, &gradient, true, workspace);
        let mut by_weights = vec![f32::NAN; part.n_values()];
        part.weight_gradient(&values, pass, &mut by_weights, workspace);
        (by_inputs, by_weights)
    };
    for n_threads in [1, 2] {
        let alone = [4, 9, 3].map(|n| {
            let mut workspace = workspace(n_threads);
            let pass = part.forward(&values, inputs(n), rows(n), train, &mut workspace);
            finish(pass, &mut workspace)
        });
        let mut workspace = workspace(n_threads);
        for _ in 0..2 {
            let passes = [4, 9, 3].map(|n| part.forward(&values, inputs(n), rows(n), train, &mut workspace));
            part.forward(&values, inputs(5), rows(5), Mode::Test, &mut workspace);
            let together = passes.map(|pass| finish(pass, &mut workspace));
            assert!(together == alone, "with {n_threads} threads");
        }
    }
}

#[test]
fn batch_norm_needs_all_rows() {
    let needs = |spec: &ModelSpec, layers| {
        let part = PartSpec { layers, column: 0, columns: 1 };
        Part::new(spec, &part).expect("this can be").needs_all_rows()
    };
    let spec = images();
    assert!(needs(&spec, 0..2) && needs(&spec, 8..14));
    assert!(!needs(&spec, 0..1) && !needs(&spec, 2..12) && !needs(&spec, 14..18));
    let inside = model(
        &[6],
        json!([{"residual": {"body": [{"dense": {"out": 6}}, {"batch-norm": {}}]}}, {"dense": {"out": 2}}]),
    );
    assert!(needs(&inside, 0..1) && !needs(&inside, 1..2));
}

#[test]
fn what_cannot_be_split_is_said_with_a_way_out() {
    let spec = model(
        &[8, 8, 3],
        json!([
            {"conv": {"out": 4, "kernel": 3}}, "relu", {"conv": {"out": 6, "kernel": 3}}, {"residual": {"body": ["relu"]}},
            "flatten", {"dense": {"out": 9}}, {"layer-norm": {}}, {"dense": {"out": 3}}
        ]),
    );
    let refused = |layers, column, columns, place: &str, words: &[&str]| {
        let part = PartSpec { layers, column, columns };
        let error = Part::new(&spec, &part).expect_err(&format!("{part:?} should be refused"));
        assert_eq!(error.place, place, "{part:?}: {error}");
        words.iter().for_each(|word| assert!(error.problem.contains(word), "{part:?}: {error}"));
    };
    refused(
        0..3,
        0,
        2,
        "layers[2] (conv)",
        &["cannot be split into tensor shards", "end the stage before it", "tensor_shards = 1"],
    );
    refused(2..4, 1, 2, "layers[3] (residual)", &["cannot be split into tensor shards"]);
    refused(5..7, 1, 3, "layers[6] (layer-norm)", &["cannot be split into tensor shards"]);
    refused(5..8, 1, 3, "layers[6] (layer-norm)", &["cannot be split into tensor shards"]);
    refused(
        1..2,
        0,
        2,
        "layers[1] (relu)",
        &["must begin with", "conv3d, dense, embedding or swiglu", "tensor_shards = 1"],
    );
    refused(3..4, 0, 2, "layers[3] (residual)", &["must begin with"]);
    refused(4..5, 0, 2, "layers[4] (flatten)", &["must begin with"]);
    refused(7..8, 3, 4, "layers[7] (dense)", &["4 tensor shards", "3 outputs", "at most 3"]);
    refused(2..2, 0, 1, "the layers 2 to 2", &["at least one"]);
    refused(7..9, 0, 1, "the layers 7 to 9", &["only 8"]);
    refused(0..1, 2, 2, "the layers 0 to 1", &["no tensor shard 2 of 2"]);
    refused(0..1, 0, 0, "the layers 0 to 1", &["no tensor shard 0 of 0"]);
    let whole = PartSpec { layers: 0..1, column: 0, columns: 1 };
    let spec = model(&[4, 4, 1], json!(["relu", {"dense": {"out": 3}}]));
    let error = Part::new(&spec, &whole).expect_err("the whole is no network");
    assert_eq!(error.place, "layers[1] (dense)");
}

#[test]
fn parts_may_be_shared_and_passes_moved_among_threads() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>() {}
    shared::<Part>();
    moved::<Pass>();
}
