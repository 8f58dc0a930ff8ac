//! Tests within epochs, and what is told of samples that nobody trains.

use serde_json::Value;

use crate::program::{Place, events, final_state};

const BY_BATCHES: [&str; 2] = ["--set", "evaluate.every_batches=50"];
/// So short a time is over after every round.
const BY_TIME: [&str; 2] = ["--set", "evaluate.every_seconds=0.000001"];

fn train(place: &Place, run: &str, arguments: &[&str]) -> Vec<Value> {
    let all =
        [&["train", "--json", "--model", "mlp:8", "--threads", "1", "--epochs", "2", "--run", run][..], arguments]
            .concat();
    place.succeed(&all).json()
}

fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["event"] == kind).collect()
}

fn number(event: &Value, field: &str) -> f64 {
    event[field].as_f64().unwrap_or_else(|| panic!("{field} in {event}"))
}

/// How many epochs were done at each test within one; all that tests tell must make sense.
fn places(events: &[Value]) -> Vec<f64> {
    let tests = of(events, "evaluation");
    for test in &tests {
        assert!((0.0..=1.0).contains(&number(test, "test_accuracy")) && number(test, "test_loss") > 0.0, "{test}");
        assert!(number(test, "at_s") > 0.0 && number(test, "test_seconds") > 0.0, "{test}");
    }
    tests.iter().map(|test| number(test, "epoch")).collect()
}

/// Whether tests are after every fiftieth batch: an epoch of the digits has 120 of 32 samples.
fn assert_expected(places: &[f64]) {
    let batches: Vec<f64> = places.iter().map(|epochs| (120e6 * epochs).round() / 1e6).collect();
    assert_eq!(batches, [50.0, 100.0, 150.0, 200.0]);
}

#[test]
fn one_process_learns_the_same_with_tests_within_epochs() {
    let place = Place::new();
    train(&place, "plain", &[]);
    let tested = train(&place, "tested", &BY_BATCHES);
    assert_expected(&places(&tested));
    let steps: Vec<f64> = of(&tested, "evaluation").iter().map(|test| number(test, "step")).collect();
    assert_eq!(steps, [50.0, 100.0, 150.0, 200.0]);
    let by_time = train(&place, "by-time", &BY_TIME);
    assert_eq!(places(&by_time).len(), 2 * 119, "after every batch but an epoch's last");
    for run in ["tested", "by-time"] {
        assert!(final_state(&place.path(run)) == final_state(&place.path("plain")), "{run}");
    }
    assert_eq!(events(&place.path("tested"), "evaluation").len(), 4, "the run's folder has them");
    let shown =
        place.succeed(&["train", "--threads", "1", "--epochs", "1", "--run", "shown", BY_BATCHES[0], BY_BATCHES[1]]);
    assert!(shown.stdout.contains("epoch 0.42/1"), "{}", shown.stdout);
    assert!(
        place.fail(&["train", BY_BATCHES[0], BY_BATCHES[1], BY_TIME[0], BY_TIME[1]]).contains("choose one of them")
    );
}

#[test]
fn a_swarm_learns_the_same_with_tests_within_epochs() {
    let place = Place::new();
    let swarm = ["--peers", "3", "--set", "swarm.work=equal"];
    train(&place, "plain", &swarm);
    let tested = train(&place, "tested", &[&swarm[..], &BY_BATCHES].concat());
    assert_expected(&places(&tested));
    let by_time = train(&place, "by-time", &[&swarm[..], &BY_TIME].concat());
    assert!(places(&by_time).len() > 4, "{by_time:?}");
    let model = |run: &str| final_state(&place.path(run)).0;
    assert!(model("tested") == model("plain") && model("by-time") == model("plain"));
    // The simulator is asked the same and gives the same numbers.
    let arguments = ["simulate", "--json", "--model", "mlp:8", "--threads", "1", "--epochs", "2"];
    let simulated = place.succeed(&[&arguments[..], &swarm, &BY_BATCHES].concat()).json();
    let mut tests: Vec<(String, String)> = Vec::new();
    let told = |test: &Value| (test["epoch"].to_string(), test["test_loss"].to_string());
    of(&simulated, "evaluation").into_iter().map(told).for_each(|test| {
        if !tests.contains(&test) {
            tests.push(test);
        }
    });
    assert_eq!(tests, of(&tested, "evaluation").into_iter().map(told).collect::<Vec<_>>());
}

#[test]
fn layer_networks_are_tested_after_batches_and_not_by_time() {
    let place = Place::new();
    let layers = ["--peers", "3", "--set", "pipeline.stages=[{layers=3,tensor_shards=2},{layers=1}]"];
    train(&place, "plain", &layers);
    let tested = train(&place, "tested", &[&layers[..], &BY_BATCHES].concat());
    assert_expected(&places(&tested));
    assert!(final_state(&place.path("tested")).0 == final_state(&place.path("plain")).0);
    let message = place.fail(&[&["train", "--model", "mlp:8"], &layers[..], &BY_TIME].concat());
    assert!(message.contains("set evaluate.every_batches"), "{message}");
}

#[test]
fn what_the_split_drops_is_told() {
    let place = Place::new();
    let line = "An epoch trains 3,792 of 3,823 samples: `equal` drops 31; `equal-spread` trains all.";
    let arguments = ["--epochs", "1", "--threads", "1", "--peers", "8"];
    let equal = [&arguments[..], &["--set", "swarm.split=equal", "--set", "model=\"mlp:8\""]].concat();
    let dropped = |event: &Value| (event["n_trained"].as_u64(), event["n_dropped"].as_u64(), event["n_peers"].as_u64());
    let expected = (Some(3792), Some(31), Some(8));

    let shown = place.succeed(&[&["simulate", "--run", "simulated"], &equal[..]].concat()).stdout;
    assert!(shown.contains(line), "{shown}");
    assert_eq!(events(&place.path("simulated"), "dropped").iter().map(dropped).collect::<Vec<_>>(), [expected]);
    let told = place.succeed(&[&["simulate", "--json"], &equal[..]].concat()).json();
    assert_eq!(of(&told, "dropped").into_iter().map(dropped).collect::<Vec<_>>(), [expected]);
    let shown = place.succeed(&[&["train", "--run", "real"], &equal[..]].concat()).stdout;
    assert!(shown.contains(line), "{shown}");
    assert_eq!(events(&place.path("real"), "dropped").iter().map(dropped).collect::<Vec<_>>(), [expected]);
    let spread = [&arguments[..], &["--set", "swarm.split=equal-spread", "--set", "model=\"mlp:8\""]].concat();
    assert!(!place.succeed(&[&["simulate"], &spread[..]].concat()).stdout.contains("drops"));
}
