//! Stopping and going on: an interrupted run ends as if it had never been interrupted.

use serde_json::Value;

use crate::program::{Place, checkpoints, events, final_state, newest_checkpoint, text};
use crate::samples;

/// Small batches make long epochs, so that a signal sent at the end of one comes in the middle of another.
const BATCH: &str = "batch=4";
const N_BATCHES: u64 = 3823_u64.div_ceil(4);
const EPOCHS: &str = "12";

/// Trains without interruption and with several; compares the ends byte by byte.
fn ends_the_same(model: &str, n_batches: u64, settings: &[&str]) {
    let place = Place::new();
    place.write("norm.toml", NORM_AND_DROPOUT);
    let mut arguments = vec!["train", "--json", "--threads", "1", "--epochs", EPOCHS, "--model", model, "--set", BATCH];
    settings.iter().for_each(|setting| arguments.extend(["--set", setting]));
    let with = |run: &'static str| [arguments.as_slice(), &["--run", run]].concat();

    place.succeed(&with("unbroken"));
    let mut running = place.start(&with("broken"));
    let mut n_within_epochs = 0;
    // A signal may come between two epochs, but not every time.
    for n_signals in 1..10 {
        if n_signals > 3 && n_within_epochs > 0 {
            break;
        }
        running.wait_for("epoch");
        running.signal(&["INT"]);
        let outcome = running.finish();
        assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
        assert!(outcome.stderr.contains("nettorrent resume broken"), "{}", outcome.stderr);
        let stop = outcome.json().pop().expect("a last event");
        assert_eq!(stop["reason"], "interrupted");
        assert_eq!(newest_checkpoint(&place.path("broken")), checkpoint_of(&place, &stop), "it was saved");
        n_within_epochs += u64::from(!step(&stop).is_multiple_of(n_batches));
        running = place.start(&["resume", "broken", "--json"]);
        let start = running.wait_for("start");
        assert_eq!((&start["step"], &start["epoch"]), (&stop["step"], &stop["epoch"]));
    }
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(n_within_epochs > 0, "no signal came within an epoch");
    assert!(final_state(&place.path("broken")) == final_state(&place.path("unbroken")), "{model} {settings:?}");
    let last = |run: &str| events(&place.path(run), "epoch").pop().expect("an epoch");
    let (broken, unbroken) = (last("broken"), last("unbroken"));
    for field in ["epoch", "step", "lr", "train_loss", "train_accuracy", "test_loss", "test_accuracy"] {
        assert_eq!(broken[field], unbroken[field], "{field}");
    }
}

fn checkpoint_of(place: &Place, event: &Value) -> std::path::PathBuf {
    place.path(&format!("broken/checkpoints/step-{:010}", step(event)))
}

fn step(event: &Value) -> u64 {
    event["step"].as_u64().expect("a number")
}

const NORM_AND_DROPOUT: &str = "
input = [8, 8, 1]
layers = [
  { conv = { out = 4, kernel = 3, stride = 2, padding = 1, bias = false } },
  { batch-norm = {} },
  \"relu\",
  { dropout = 0.25 },
  \"flatten\",
  { dense = { out = 10 } },
]
";

#[test]
fn with_momentum_nothing_is_lost() {
    ends_the_same("mlp:32", N_BATCHES, &["optimizer.momentum=0.9", "schedule.kind=cosine"]);
}

#[test]
fn with_adam_nothing_is_lost() {
    // The commonest digit is there 389 times, and a batch has one of each.
    ends_the_same("mlp:32", 389, &["optimizer={kind='adam',lr=0.001}", "order=balanced-repeat", "batch=10"]);
}

#[test]
fn with_batch_norm_dropout_and_an_average_nothing_is_lost() {
    let augment = "augment={crop-flip={padding=1,flip=false}}";
    ends_the_same("norm.toml", N_BATCHES, &["optimizer.momentum=0.9", augment, "ema=0.99"]);
}

/// A run that does not end by itself within any test.
const ENDLESS: [&str; 8] = ["train", "--run", "mine", "--epochs", "100000", "--model", "mlp:8", "--threads=1"];

#[test]
fn a_request_to_terminate_is_a_polite_stop_too() {
    let place = Place::new();
    let mut running = place.start(&ENDLESS);
    running.wait_for_line(|line| line.starts_with("epoch"));
    running.signal(&["TERM"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("nothing is lost. Go on with: nettorrent resume mine"), "{}", outcome.stdout);
    let stop = events(&place.path("mine"), "stop").pop().unwrap();
    let step = events(&place.path("mine"), "checkpoint").pop().unwrap()["step"].clone();
    assert_eq!((&stop["reason"], &stop["step"]), (&"interrupted".into(), &step));
}

#[test]
fn two_interrupts_at_once_stop_at_once_and_lose_no_checkpoint() {
    let place = Place::new();
    let mut running = place.start(&[ENDLESS.as_slice(), &["--json"]].concat());
    let saved = running.wait_for("checkpoint");
    running.signal(&["INT", "INT"]);
    assert_eq!(running.finish().code, Some(130));
    assert!(newest_checkpoint(&place.path("mine")) >= place.path(saved["path"].as_str().unwrap()));
    let epoch = newest_epoch(&place) + 1;
    place.succeed(&["resume", "mine", "--epochs", &epoch.to_string()]);
}

/// The epoch that the newest checkpoint is in.
fn newest_epoch(place: &Place) -> u64 {
    let newest = newest_checkpoint(&place.path("mine"));
    let step = text(&newest).rsplit('-').next().and_then(|step| step.parse::<u64>().ok()).expect("a number of steps");
    step / 3823_u64.div_ceil(32) + 1
}

#[test]
fn a_finished_run_says_so_and_can_be_trained_further() {
    let place = Place::new();
    place.succeed(&["train", "--run", "mine", "--model", "mlp:8", "--epochs", "2"]);
    let before = final_state(&place.path("mine"));
    let said = place.succeed(&["resume", "mine"]).stdout;
    assert!(said.contains("has done its 2 epochs") && said.contains("resume mine --epochs N"), "{said}");
    let quiet = place.succeed(&["resume", "mine", "--json"]);
    assert!(quiet.stdout.is_empty() && quiet.stderr.contains("has done its 2 epochs"), "{}", quiet.stderr);
    assert!(place.succeed(&["resume", "mine", "--epochs", "1"]).stdout.contains("has done its 2 epochs"));
    assert!(final_state(&place.path("mine")) == before);

    place.succeed(&["resume", "mine", "--epochs", "3", "--set", "optimizer.lr=0.01"]);
    let epochs = events(&place.path("mine"), "epoch");
    let numbers: Vec<u64> = epochs.iter().map(|event| event["epoch"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [1, 2, 3]);
    let said = place.succeed(&["resume", "mine"]).stdout;
    assert!(said.contains("has done its 3 epochs"), "the run remembers how long it is to be: {said}");
    let job = std::fs::read_to_string(place.path("mine/job.toml")).unwrap();
    assert!(job.contains("epochs = 3") && job.contains("lr = 0.01"), "{job}");
}

#[test]
fn a_run_goes_on_with_its_own_model() {
    let place = Place::new();
    place.write("net.toml", NORM_AND_DROPOUT);
    place.succeed(&["train", "--run", "mine", "--model", "net.toml", "--epochs", "1"]);
    let job = std::fs::read_to_string(place.path("mine/job.toml")).unwrap();
    let another = ["--epochs", "2", "--set", "model=mlp:4"];
    for arguments in [
        [&["resume", "mine"][..], &another].concat(),
        [&["resume", "mine", "--peers", "2"][..], &another].concat(),
        [&["start", "--resume", "mine"][..], &another].concat(),
        vec!["start", "--resume", "mine", "--epochs", "2", "--model", "mlp:4"],
        vec!["eval", "mine", "--set", "model=mlp:4"],
    ] {
        let message = place.fail(&arguments);
        assert!(message.contains("mine is a run of the model `net.toml`"), "{arguments:?}\n{message}");
        assert!(message.contains("`nettorrent train --model mlp:4`"), "{arguments:?}\n{message}");
        assert_eq!(std::fs::read_to_string(place.path("mine/job.toml")).unwrap(), job, "{arguments:?}");
    }
    // The same name is no other model, and its description is in the run.
    std::fs::remove_file(place.path("net.toml")).unwrap();
    place.succeed(&["resume", "mine", "--epochs", "2", "--set", "model=net.toml"]);
}

#[test]
fn an_earlier_checkpoint_can_be_gone_on_from() {
    let place = Place::new();
    let train = ["train", "--run", "mine", "--model", "mlp:8", "--epochs", "3", "--set", "checkpoint.keep=3"];
    place.succeed(&[train.as_slice(), &["--set", "schedule.kind=constant"]].concat());
    let mine = place.path("mine");
    let all = checkpoints(&mine);
    let before = final_state(&mine);
    // By its name in the run; the later ones are of another course now, and kept, but not as checkpoints of this run.
    let name = all[0].file_name().unwrap().to_str().unwrap();
    let said = place.succeed(&["resume", "mine", "--checkpoint", name]).stdout;
    assert!(said.contains("set aside: mine/checkpoints/aside-step-"), "{said}");
    assert_eq!(checkpoints(&mine), all);
    assert!(final_state(&mine) == before, "the same course leads to the same end");
    place.succeed(&["resume", "mine", "--checkpoint", text(&all[0]), "--set", "optimizer.lr=0.5"]);
    assert_eq!(checkpoints(&mine), all);
    assert!(final_state(&mine) != before, "and another course to another");
}

#[test]
fn a_run_that_was_ended_before_its_first_checkpoint_begins_again() {
    let place = Place::new();
    place.succeed(&["train", "--run", "whole", "--model", "mlp:8", "--epochs", "1"]);
    std::fs::create_dir_all(place.path("mine/checkpoints")).unwrap();
    for name in ["job.toml", "model.toml"] {
        std::fs::copy(place.path("whole").join(name), place.path("mine").join(name)).unwrap();
    }
    assert!(place.fail(&["eval", "mine"]).contains("has no checkpoint yet"));
    place.succeed(&["resume", "mine"]);
    assert!(final_state(&place.path("mine")) == final_state(&place.path("whole")));
}

/// Few parameters and much work, so that an epoch or a test takes seconds.
fn slow_model(input: &str, width: usize) -> String {
    let layer = format!("{{ conv = {{ out = {width}, kernel = 3, padding = 1 }} }}, \"relu\",");
    let head = "\"global-pool\", { dense = { out = 10 } }";
    format!("input = {input}\nlayers = [{} {head}]\n", layer.repeat(8))
}

#[test]
fn an_epoch_on_its_way_is_told_and_must_go_on_with_the_same_data() {
    let place = Place::new();
    place.write("slow.toml", slow_model("[8, 8, 1]", 96));
    let mut running = place.start(&["train", "--json", "--run", "mine", "--model", "slow.toml"]);
    let progress = running.wait_for("progress");
    for field in ["epoch", "step", "loss", "accuracy", "lr", "samples_per_s", "seconds"] {
        assert!(progress[field].is_number(), "{field}: {progress}");
    }
    assert_eq!(progress["epoch"], 1, "the epoch that it is in");
    running.signal(&["INT"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    let stop = outcome.json().pop().unwrap();
    assert_eq!((&stop["reason"], &stop["epoch"]), (&"interrupted".into(), &0.into()), "within the first epoch");
    let message = place.fail(&["resume", "mine", "--set", "batch=4000"]);
    assert!(message.contains("an epoch now has 1") && message.contains("bring them back"), "{message}");
    let mut running = place.start(&["resume", "mine", "--json"]);
    assert_eq!(running.wait_for("start")["step"], stop["step"]);
}

#[test]
fn a_test_that_is_cut_short_has_no_result() {
    let place = Place::new();
    place.write("slow.toml", slow_model("[28, 28, 1]", 24));
    let data = samples::idx_set(&place, "data", 28, 10, 2000);
    let arguments = ["train", "--json", "--run", "mine", "--model", "slow.toml", "--data", text(&data)];
    for (epochs, hint) in [("2", "nettorrent resume mine"), ("1", "nettorrent eval mine")] {
        let mut running = place.start(&[arguments.as_slice(), &["--epochs", epochs]].concat());
        // It is saved before it is tested.
        running.wait_for("checkpoint");
        running.signal(&["INT"]);
        let outcome = running.finish();
        assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
        assert!(outcome.stderr.contains(hint), "{}", outcome.stderr);
        assert!(events(&place.path("mine"), "epoch").is_empty());
        let stop = outcome.json().pop().unwrap();
        assert_eq!((&stop["reason"], &stop["epoch"]), (&"interrupted".into(), &1.into()));
        assert_eq!(checkpoints(&place.path("mine")).len(), 1);
        std::fs::remove_dir_all(place.path("mine")).unwrap();
    }
}

#[test]
fn two_processes_do_not_train_the_same_run() {
    let place = Place::new();
    let mut running = place.start(&[ENDLESS.as_slice(), &["--json"]].concat());
    running.wait_for("epoch");
    let message = place.fail(&["resume", "mine"]);
    assert!(message.contains("another process is training this run") && message.contains("stop it"), "{message}");
    place.succeed(&["eval", "mine"]);
    running.signal(&["INT"]);
    assert_eq!(running.finish().code, Some(130));
    place.succeed(&["resume", "mine", "--epochs", "1"]);
}
