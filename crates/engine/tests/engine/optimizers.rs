//! The optimizers take PyTorch's steps: trajectories that it computed once, kept as a fixture.

use nettorrent_engine::model::Workspace;
use nettorrent_engine::optimizer::{Optimizer, OptimizerKind, OptimizerSpec};
use nettorrent_engine::rng::mix;
use serde_json::Value;

/// The fixtures' formula: value `k` of a stream, between -1 and 1.
fn uniform(stream: u64, k: u64) -> f32 {
    let x = mix(((stream << 32) + k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    (x >> 40) as f32 / (1 << 24) as f32 * 2.0 - 1.0
}

fn spec(kind: &str, options: &Value) -> OptimizerSpec {
    let number = |name: &str, default: f32| options[name].as_f64().map_or(default, |x| x as f32);
    let usual = OptimizerSpec::default();
    let kind = match kind {
        "Adagrad" => OptimizerKind::Adagrad,
        "Adam" => OptimizerKind::Adam,
        "AdamW" => OptimizerKind::Adamw,
        "RMSprop" => OptimizerKind::Rmsprop,
        "SGD" => OptimizerKind::Sgd,
        other => panic!("the fixture has an optimizer {other} that is not ours"),
    };
    OptimizerSpec {
        kind,
        lr: number("lr", usual.lr),
        momentum: number("momentum", 0.0),
        nesterov: options["nesterov"].as_bool().unwrap_or(false),
        weight_decay: number("weight_decay", 0.0),
        beta1: options["betas"][0].as_f64().map_or(usual.beta1, |x| x as f32),
        beta2: options["betas"][1].as_f64().map_or(usual.beta2, |x| x as f32),
        alpha: number("alpha", usual.alpha),
        epsilon: options["eps"].as_f64().map(|x| x as f32),
        clip_norm: None,
        custom: None,
    }
}

#[test]
fn a_clipped_step_is_that_of_a_shorter_gradient() {
    let (values, gradient) = (vec![1.0, -2.0, 0.5], vec![3.0, 4.0, 7.0]);
    let spec =
        |clip_norm| OptimizerSpec { lr: 0.1, momentum: 0.9, weight_decay: 0.01, clip_norm, ..OptimizerSpec::default() };
    let step = |clip_norm, gradient: &[f32]| {
        let mut values = values.clone();
        Optimizer::new(spec(clip_norm), 2).step_alone(0.1, &mut values, gradient);
        values
    };
    // The third number is a running statistic: it is neither counted nor shortened.
    assert_eq!(step(Some(2.5), &gradient), step(None, &[1.5, 2.0, 7.0]));
    assert_eq!(step(Some(5.0), &gradient), step(None, &gradient));
    let pieces = || [vec![3.0], vec![4.0, 7.0]];
    let mut applied = values.clone();
    Optimizer::new(spec(Some(2.5)), 2).apply(0.1, &[0..1, 1..3], &mut applied, &pieces());
    assert_eq!(applied, step(Some(2.5), &gradient));
}

#[test]
fn a_change_is_what_a_step_would_add() {
    let (n, n_params) = (40, 33);
    let kinds =
        [OptimizerKind::Adagrad, OptimizerKind::Adam, OptimizerKind::Adamw, OptimizerKind::Rmsprop, OptimizerKind::Sgd];
    for (kind, clip_norm) in kinds.into_iter().flat_map(|kind| [(kind, None), (kind, Some(0.5))]) {
        let momentum = if matches!(kind, OptimizerKind::Rmsprop | OptimizerKind::Sgd) { 0.9 } else { 0.0 };
        let spec = OptimizerSpec { kind, momentum, weight_decay: 0.1, lr: 0.05, clip_norm, ..OptimizerSpec::default() };
        let mut stepping = Optimizer::new(spec.clone(), n_params);
        let mut changing = stepping.clone();
        let mut values: Vec<f32> = (0..n as u64).map(|k| uniform(1, k)).collect();
        for step in 2..6 {
            let gradient: Vec<f32> = (0..n as u64).map(|k| uniform(step, k)).collect();
            let before = values.clone();
            stepping.step_alone(spec.lr, &mut values, &gradient);
            let places = [0..10, 10..n];
            let mut gradient = places.clone().map(|place| gradient[place].to_vec());
            changing.change(spec.lr, &places, &before, &mut gradient);
            for (place, change) in places.into_iter().zip(gradient) {
                for ((after, before), change) in values[place.clone()].iter().zip(&before[place]).zip(change) {
                    assert!((after - before - change).abs() < 1e-6, "{kind:?}: {} and not {change}", after - before);
                }
            }
            let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
            for ((_, a), (_, b)) in stepping.state().1.zip(changing.state().1) {
                assert!(a.iter().zip(b).all(close), "{kind:?}");
            }
        }
    }
}

#[test]
fn steps_are_pytorchs() {
    let fixture: Value = serde_json::from_str(include_str!("../fixtures/optimizers.json")).unwrap();
    let n = fixture["n_params"].as_u64().unwrap();
    let start = fixture["start"].as_u64().unwrap();
    for case in fixture["optimizers"].as_array().unwrap() {
        let spec = spec(case["kind"].as_str().unwrap(), &case["options"]);
        spec.check().unwrap();
        for n_threads in [1, 3] {
            let workspace = Workspace::new(n_threads).unwrap();
            let mut values: Vec<f32> = (0..n).map(|k| uniform(start, k)).collect();
            let mut optimizer = Optimizer::new(spec.clone(), values.len());
            let streams = fixture["gradient_streams"].as_array().unwrap();
            for (stream, expected) in streams.iter().zip(case["steps"].as_array().unwrap()) {
                let stream = stream.as_u64().unwrap();
                let gradient: Vec<f32> = (0..n).map(|k| uniform(stream, k)).collect();
                optimizer.step(spec.lr, &mut values, &gradient, &workspace);
                for (value, expected) in values.iter().zip(expected.as_array().unwrap()) {
                    let expected = expected.as_f64().unwrap();
                    let difference = (f64::from(*value) - expected).abs();
                    assert!(difference < 2e-6, "{}: {value} and not {expected}", case["name"]);
                }
            }
        }
    }
}

#[test]
fn a_thread_alone_takes_the_same_steps_bit_for_bit() {
    let kinds = [
        (OptimizerKind::Adagrad, 0.0),
        (OptimizerKind::Adam, 0.0),
        (OptimizerKind::Adamw, 0.0),
        (OptimizerKind::Rmsprop, 0.0),
        (OptimizerKind::Rmsprop, 0.9),
        (OptimizerKind::Sgd, 0.0),
        (OptimizerKind::Sgd, 0.9),
    ];
    // Sizes that threads and vector registers do not divide, and running statistics behind.
    for ((kind, momentum), n_params) in kinds.into_iter().flat_map(|kind| [0, 1, 1009].map(|n| (kind, n))) {
        let spec = OptimizerSpec { kind, momentum, weight_decay: 0.01, ..OptimizerSpec::default() };
        let start: Vec<f32> = (0..n_params + 5).map(|k| uniform(1, k as u64)).collect();
        let (mut alone, mut alone_optimizer) = (start.clone(), Optimizer::new(spec.clone(), n_params));
        let rooms = [1, 2, 3].map(|n_threads| Workspace::new(n_threads).unwrap());
        let mut teams = rooms.map(|workspace| (start.clone(), Optimizer::new(spec.clone(), n_params), workspace));
        for stream in 2..6 {
            let gradient: Vec<f32> = (0..start.len()).map(|k| uniform(stream, k as u64)).collect();
            alone_optimizer.step_alone(0.1, &mut alone, &gradient);
            for (values, optimizer, workspace) in &mut teams {
                optimizer.step(0.1, values, &gradient, workspace);
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(values), bits(&alone), "{kind:?} of {n_params} with {} threads", workspace.n_threads());
                assert_eq!(*optimizer, alone_optimizer);
            }
        }
        assert_ne!(alone, start);
    }
}

#[test]
fn running_statistics_move_by_their_drift_alone() {
    let workspace = Workspace::new(1).unwrap();
    let spec = OptimizerSpec { momentum: 0.9, weight_decay: 0.5, ..OptimizerSpec::default() };
    let mut optimizer = Optimizer::new(spec, 2);
    let mut values = vec![1.0, 1.0, 1.0];
    optimizer.step(0.1, &mut values, &[0.0, 0.0, 0.25], &workspace);
    assert_eq!(values[2], 0.75);
    assert!((values[0] - 0.95).abs() < 1e-6);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let base = OptimizerSpec::default;
    for (wrong, word) in [
        (OptimizerSpec { lr: f32::NAN, ..base() }, "lr"),
        (OptimizerSpec { lr: -1.0, ..base() }, "lr"),
        (OptimizerSpec { momentum: 1.0, ..base() }, "momentum"),
        (OptimizerSpec { nesterov: true, ..base() }, "nesterov"),
        (OptimizerSpec { kind: OptimizerKind::Adam, momentum: 0.9, ..base() }, "beta1"),
        (OptimizerSpec { epsilon: Some(0.0), ..base() }, "epsilon"),
    ] {
        let message = wrong.check().unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }
}
