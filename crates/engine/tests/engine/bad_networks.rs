//! Descriptions that describe no network: the answer names the layer and says what to do.

use nettorrent_engine::model::{ModelError, ModelSpec, Network};
use serde_json::{Value, json};

fn build(input: &[usize], layers: Value) -> Result<Network, ModelError> {
    let layers = serde_json::from_value(layers).expect("the layers are well described");
    Network::new(&ModelSpec { input: input.to_vec(), layers })
}

/// Asserts that there is no such network, because of a layer at `place`, and that the answer holds these words.
fn refuses(input: &[usize], layers: Value, place: &str, words: &[&str]) {
    let description = format!("{input:?} {layers}");
    let Err(error) = build(input, layers) else { panic!("{description} should be refused") };
    assert_eq!(error.place, place, "{description}: {error}");
    for word in words {
        assert!(error.problem.contains(word), "{description}: {error}");
    }
}

fn conv(out: usize, kernel: usize, stride: usize, padding: usize) -> Value {
    json!({"conv": {"out": out, "kernel": kernel, "stride": stride, "padding": padding}})
}

fn dense(out: usize) -> Value {
    json!({"dense": {"out": out}})
}

#[test]
fn windows_that_do_not_fit() {
    let place = "layers[0] (conv)";
    refuses(&[3, 9, 1], json!([conv(4, 5, 1, 0)]), place, &["window of 5", "3 by 9", "smaller"]);
    refuses(&[9, 3, 1], json!([conv(4, 5, 1, 0)]), place, &["window of 5", "9 by 3"]);
    refuses(&[9, 9, 1], json!([conv(4, 3, 1, 3)]), place, &["padding of 3", "window's 3", "smaller"]);
    refuses(&[9], json!([conv(4, 3, 1, 0)]), place, &["[height, width, channels]", "[9]"]);
    let window = |kind: &str, padding: usize| json!([{kind: {"out": 4, "kernel": 5, "padding": padding}}]);
    refuses(&[3, 9], window("conv1d", 0), "layers[0] (conv1d)", &["window of 5", "a sequence of 3;", "smaller"]);
    refuses(&[9, 9, 1], window("conv1d", 0), "layers[0] (conv1d)", &["[steps, features]", "[9, 9, 1]"]);
    refuses(&[9, 3, 9, 1], window("conv3d", 0), "layers[0] (conv3d)", &["window of 5", "9 by 3 by 9"]);
    refuses(&[9, 9, 1], window("conv3d", 0), "layers[0] (conv3d)", &["[depth, height, width, channels]"]);
    refuses(&[9, 9, 9, 1], json!([conv(4, 3, 1, 0)]), place, &["[height, width, channels]", "[9, 9, 9, 1]"]);
    let transposed = "layers[0] (transposed-conv)";
    refuses(&[9, 9, 1], window("transposed-conv", 5), transposed, &["padding of 5", "window's 5", "smaller"]);
    refuses(&[1, 9, 1], window("transposed-conv", 3), transposed, &["padding of 3 leaves nothing", "smaller"]);
    refuses(&[9, 9], window("transposed-conv", 0), transposed, &["[height, width, channels]", "[9, 9]"]);
    let upsample = json!([{"upsample": {"factor": 2}}]);
    refuses(&[9, 9], upsample, "layers[0] (upsample)", &["[height, width, channels]", "[9, 9]"]);
    let depthwise = json!({"depthwise-conv": {"kernel": 5}});
    refuses(&[4, 4, 2], json!(["relu", depthwise]), "layers[1] (depthwise-conv)", &["window of 5", "4 by 4"]);
    let pool = json!({"max-pool": {"size": 2}});
    refuses(&[4, 4, 2], json!([pool, pool, pool]), "layers[2] (max-pool)", &["window of 2", "1 by 1", "pool less"]);
    let pool = json!({"average-pool": {"size": 3, "padding": 2}});
    refuses(&[4, 4, 2], json!([pool]), "layers[0] (average-pool)", &["padding of 2", "half", "3"]);
    refuses(&[4], json!(["global-pool"]), "layers[0] (global-pool)", &["[height, width, channels]", "[4]"]);
}

#[test]
fn shapes_that_do_not_follow() {
    refuses(&[8, 8, 1], json!([dense(3)]), "layers[0] (dense)", &["[8, 8, 1] is an image", "flatten"]);
    let swiglu = json!({"swiglu": {"out": 3}});
    refuses(&[8, 8, 1], json!([swiglu]), "layers[0] (swiglu)", &["[8, 8, 1] is an image", "flatten"]);
    let recurrent = json!({"recurrent": {"out": 3}});
    refuses(&[8], json!([recurrent]), "layers[0] (recurrent)", &["[steps, features]", "[8]"]);
    for kind in ["gru", "lstm"] {
        let place = format!("layers[0] ({kind})");
        refuses(&[8, 8, 2], json!([{kind: {"out": 3}}]), &place, &["[steps, features]", "[8, 8, 2]"]);
        refuses(&[8, 2], json!([{kind: {"out": 0}}]), &place, &["`out` must not be 0"]);
    }
    // Only the last step went on, so there is no sequence any more.
    refuses(&[8, 2], json!([recurrent, recurrent]), "layers[1] (recurrent)", &["[steps, features]", "[3]"]);
    let embedding = json!({"embedding": {"symbols": 4, "out": 3}});
    refuses(&[8, 2], json!([embedding]), "layers[0] (embedding)", &["[steps]", "[8, 2]"]);
}

#[test]
fn residuals_whose_paths_do_not_meet() {
    let block = |body: Value, projection: Value| json!({"residual": {"body": body, "projection": projection}});
    let bad = block(json!([dense(5)]), json!([]));
    refuses(&[6], json!(["tanh", bad]), "layers[1] (residual)", &["[5]", "[6]", "projection"]);
    let bad = block(json!([conv(4, 3, 2, 1)]), json!([conv(4, 1, 1, 0)]));
    refuses(&[8, 8, 2], json!([bad]), "layers[0] (residual)", &["[4, 4, 4]", "[8, 8, 4]"]);
    // Within a block, the place says in which list of which block.
    let bad = block(json!(["relu", conv(4, 9, 1, 0)]), json!([]));
    refuses(&[8, 8, 2], json!([bad]), "0.body[1] (conv)", &["window of 9"]);
    let bad = block(json!([]), json!([dense(0)]));
    refuses(&[6], json!([bad]), "0.projection[0] (dense)", &["`out` must not be 0"]);
}

#[test]
fn marks_and_concats_that_do_not_meet() {
    let (mark, concat) = (json!({"mark": "high"}), json!({"concat": "high"}));
    let place = "layers[1] (concat)";
    refuses(&[6], json!([dense(3), concat]), place, &["no mark named `high` before it"]);
    refuses(&[6], json!([{"mark": "hihg"}, concat]), place, &["did you mean `hihg`?"]);
    refuses(&[6], json!([mark, mark]), "layers[1] (mark)", &["already a mark named `high`"]);
    let pool = json!({"max-pool": {"size": 2}});
    let words = ["[4, 4, 2] cannot be joined to [8, 8, 2]", "all but the channels", "upsample"];
    refuses(&[8, 8, 2], json!([mark, pool, concat]), "layers[2] (concat)", &words);
    refuses(&[8, 2], json!([mark, "flatten", concat]), "layers[2] (concat)", &["[16] cannot be joined to [8, 2]"]);
    refuses(&[2, 2, 2], json!(["flatten", mark, concat]), "layers[2] (concat)", &["flatten", "after it"]);
}

#[test]
fn zeros() {
    let zero = "must not be 0";
    refuses(&[6], json!([dense(0)]), "layers[0] (dense)", &["`out`", zero]);
    refuses(&[6], json!([{"swiglu": {"out": 0}}]), "layers[0] (swiglu)", &["`out`", zero]);
    refuses(&[6, 6, 1], json!([conv(0, 3, 1, 0)]), "layers[0] (conv)", &["`out`", zero]);
    refuses(&[6, 6, 1], json!([conv(3, 0, 1, 0)]), "layers[0] (conv)", &["`kernel`", zero]);
    refuses(&[6, 6, 1], json!([conv(3, 3, 0, 0)]), "layers[0] (conv)", &["`stride`", zero]);
    let transposed = |stride: usize| json!([{"transposed-conv": {"out": 1, "kernel": 2, "stride": stride}}]);
    refuses(&[6, 6, 1], transposed(0), "layers[0] (transposed-conv)", &["`stride`", zero]);
    refuses(&[6, 6, 1], json!([{"upsample": {"factor": 0}}]), "layers[0] (upsample)", &["`factor`", zero]);
    refuses(&[6, 6, 1], json!([{"max-pool": {"size": 0}}]), "layers[0] (max-pool)", &["`size`", zero]);
    refuses(&[6, 6, 1], json!([{"max-pool": {"size": 2, "stride": 0}}]), "layers[0] (max-pool)", &["`stride`", zero]);
    refuses(&[6, 6], json!([{"recurrent": {"out": 0}}]), "layers[0] (recurrent)", &["`out`", zero]);
    refuses(&[6], json!([{"embedding": {"symbols": 0, "out": 1}}]), "layers[0] (embedding)", &["`symbols`", zero]);
    refuses(&[6], json!([{"embedding": {"symbols": 1, "out": 0}}]), "layers[0] (embedding)", &["`out`", zero]);
}

#[test]
fn inputs_that_are_no_shape() {
    for input in [vec![], vec![0], vec![6, 0], vec![2, 2, 2, 2, 2], vec![usize::MAX, usize::MAX, 0]] {
        refuses(&input, json!([dense(3)]), "input", &["is no shape", "[features]"]);
    }
}

#[test]
fn rates_names_and_nothing() {
    for rate in [1.0, 1.5, -0.1] {
        refuses(&[6], json!([{"dropout": rate}]), "layers[0] (dropout)", &["rate", "less than 1"]);
    }
    for (kind, epsilon) in [("layer-norm", 0.0), ("rms-norm", -1e-6)] {
        let place = format!("layers[0] ({kind})");
        refuses(&[6], json!([{kind: {"epsilon": epsilon}}]), &place, &["`epsilon`", "not above 0"]);
    }
    refuses(&[6], json!([]), "layers", &["there is none"]);
    refuses(&[6], json!(["flatten"]), "layers", &["there is none"]);
    let named = json!({"dense": {"out": 3, "name": "a"}});
    refuses(&[6], json!([named, named]), "layers", &["`a.bias`", "name"]);
    // A name that looks like another layer's number.
    let numbered = json!({"dense": {"out": 3, "bias": false, "name": "1"}});
    refuses(&[6], json!([numbered, dense(3)]), "layers", &["`1.weight`"]);
}

/// Sizes that would overflow are refused, however they come about: not a panic, and no small network by wrapping round.
#[test]
fn too_large_for_any_machine() {
    let large = "too large for any machine";
    let (all, half, quarter) = (usize::MAX, 1 << 32, 1 << 16);
    refuses(&[all], json!([dense(3)]), "input", &[large]);
    refuses(&[half, half], json!([dense(3)]), "input", &[large]);
    refuses(&[half, half, half], json!(["global-pool"]), "input", &[large]);
    for out in [all, all / 2, half] {
        refuses(&[half], json!([dense(out)]), "layers[0] (dense)", &[large]);
        refuses(&[half], json!([{"swiglu": {"out": out}}]), "layers[0] (swiglu)", &[large]);
        refuses(&[9, 9, half], json!([conv(out, 3, 1, 1)]), "layers[0] (conv)", &[large]);
        refuses(&[half], json!([{"embedding": {"symbols": 3, "out": out}}]), "layers[0] (embedding)", &[large]);
        refuses(&[3], json!([{"embedding": {"symbols": out, "out": half}}]), "layers[0] (embedding)", &[large]);
        refuses(&[9, half], json!([{"recurrent": {"out": out}}]), "layers[0] (recurrent)", &[large]);
        refuses(&[9, half], json!([{"lstm": {"out": out}}]), "layers[0] (lstm)", &[large]);
    }
    let transposed = |stride: usize| json!([{"transposed-conv": {"out": 1, "kernel": 2, "stride": stride}}]);
    for huge in [half, all] {
        refuses(&[6, 6, 1], transposed(huge), "layers[0] (transposed-conv)", &[large]);
        refuses(&[6, 6, 1], json!([{"upsample": {"factor": huge}}]), "layers[0] (upsample)", &[large]);
    }
    let deep = json!({"depthwise-conv": {"kernel": quarter}});
    refuses(&[quarter, quarter, 9], json!([deep]), "layers[0] (depthwise-conv)", &[large]);
    // A border that is itself too large, around an image that is not.
    let border = |size: usize, padding: usize| json!([{"max-pool": {"size": size, "padding": padding}}]);
    refuses(&[9, 9, 9], border(half, half / 2), "layers[0] (max-pool)", &[large]);
    refuses(&[9, 9, 9], border(all, all / 2), "layers[0] (max-pool)", &["window"]);
    refuses(&[9, 9, 9], json!([conv(1, all, 1, all - 1)]), "layers[0] (conv)", &["window"]);
    // Each layer would do, but not all of them together.
    let layers = vec![dense(1 << 29); 16];
    refuses(&[1 << 29], json!(layers), "layers[3] (dense)", &[large]);
}

#[test]
fn large_networks_that_a_machine_could_hold_are_not_refused() {
    // Nothing is stored until there are parameters, so this is cheap.
    let network = build(&[1 << 20], json!([dense(1 << 20), "relu", dense(10)])).unwrap();
    assert_eq!(network.n_params(), (1 << 40) + (1 << 20) + 10 * (1 << 20) + 10);
    assert_eq!(network.summary()[0].n_multiplications, 1 << 40);
    let network = build(&[4096, 4096, 512], json!([conv(512, 7, 1, 3), "global-pool", dense(1000)])).unwrap();
    assert_eq!(network.summary()[0].n_multiplications, 4096 * 4096 * 512 * 512 * 49);
}
