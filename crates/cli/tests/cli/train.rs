//! `train`, and what can be done with its result.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{Place, checkpoints, events, final_state, json_lines, newest_checkpoint, text};

#[test]
fn without_arguments_it_learns_the_digits() {
    let place = Place::new();
    let outcome = place.succeed(&["train"]);
    let runs: Vec<_> = fs::read_dir(place.path("runs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [run] = runs.as_slice() else { panic!("one run: {runs:?}") };
    let name = run.file_name().unwrap().to_str().unwrap();
    assert!(outcome.stdout.contains(&format!("nettorrent eval runs/{name}")), "{}", outcome.stdout);
    assert!(run.join("job.toml").is_file() && run.join("model.toml").is_file());
    assert_eq!(checkpoints(run).len(), 2, "as many as checkpoint.keep says");
    let epochs = events(run, "epoch");
    assert_eq!(epochs.len(), 10);
    let accuracy = epochs[9]["test_accuracy"].as_f64().unwrap();
    assert!(accuracy >= 0.96, "{accuracy}");

    let eval = place.succeed(&["eval", text(run), "--json"]).json().remove(0);
    assert_eq!(eval["accuracy"].as_f64(), Some(accuracy), "the same model on the same samples");
    assert_eq!(eval["n"], 1797);
    let confusion = eval["confusion"].as_array().unwrap().iter().flat_map(|row| row.as_array().unwrap());
    assert_eq!(confusion.map(|cell| cell.as_u64().unwrap()).sum::<u64>(), 1797);
    let in_top = eval["metrics"]["top5_accuracy"].as_f64().unwrap();
    assert!(in_top > accuracy && in_top <= 1.0 && eval["metrics"].get("auc").is_none(), "{in_top}");
    let table = place.succeed(&["eval", text(run)]).stdout;
    let told = format!(", accuracy {:.2} %, top-5 accuracy {:.2} %, 1797 samples", 100.0 * accuracy, 100.0 * in_top);
    assert!(table.lines().next().is_some_and(|line| line.ends_with(&told)), "{table}");

    predicts_a_drawing(&place, run);
}

/// A nought in light strokes, eight times as large as the pictures that were learnt.
fn predicts_a_drawing(place: &Place, run: &Path) {
    let rows = ["..###...", ".#####..", ".##.##..", ".#...#..", ".#...#..", ".##.##..", ".#####..", "..###..."];
    let light = |x: u32, y: u32| if rows[y as usize / 8].as_bytes()[x as usize / 8] == b'#' { 255 } else { 0 };
    let drawing = image::GrayImage::from_fn(64, 64, |x, y| image::Luma([light(x, y)]));
    drawing.save(place.path("nought.png")).expect("a picture");
    let inverted = image::GrayImage::from_fn(64, 64, |x, y| image::Luma([255 - light(x, y)]));
    inverted.save(place.path("paper.png")).expect("a picture");

    let predict = |arguments: &[&str]| {
        let outcome = place.succeed(&[&["predict", text(run)], arguments].concat());
        outcome.json().remove(0)
    };
    let seen = predict(&["nought.png", "--json", "--top", "10"]);
    let guesses = seen["guesses"].as_array().expect("a list");
    assert_eq!((guesses.len(), seen["logits"].as_array().expect("a list").len()), (10, 10));
    assert_eq!(guesses[0]["class"], "0", "{seen}");
    let total: f64 = guesses.iter().map(|guess| guess["probability"].as_f64().expect("a number")).sum();
    assert!((total - 1.0).abs() < 1e-6, "{seen}");
    let paper = predict(&["paper.png", "--json", "--top", "10", "--invert"]);
    assert_eq!(paper["guesses"], seen["guesses"]);
    let shown = place.succeed(&["predict", text(run), "nought.png"]).stdout;
    assert!(shown.starts_with("nought.png: 0 ("), "{shown}");
    assert!(place.fail(&["predict", text(run)]).contains("say which files"));
    assert!(place.fail(&["predict", text(run), "none.png"]).contains("none.png"));
}

/// What each event has, beside its kind.
const FIELDS: [(&str, &[&str]); 7] = [
    (
        "start",
        &[
            "run", "model", "n_params", "n_train", "n_test", "measure", "threads", "seed", "epochs", "epoch", "step",
            "version",
        ],
    ),
    (
        "epoch",
        &[
            "epoch",
            "step",
            "train_loss",
            "train_accuracy",
            "test_loss",
            "test_accuracy",
            "lr",
            "samples_per_s",
            "seconds",
            "test_seconds",
            "sent_bytes",
            "peers",
        ],
    ),
    ("checkpoint", &["path", "epoch", "step"]),
    ("view", &["peer", "view", "members", "donor", "was_behind", "round", "sites"]),
    (
        "times",
        &["peer", "elapsed_s", "compute_s", "wait_s", "encode_s", "decode_s", "send_s", "sent_bytes", "received_bytes"],
    ),
    (
        "resources",
        &[
            "peer",
            "elapsed_s",
            "cpu_percent",
            "rss_bytes",
            "net_received_bytes",
            "net_sent_bytes",
            "payload_received_bytes",
            "payload_sent_bytes",
            "disk_read_bytes",
            "disk_written_bytes",
        ],
    ),
    ("stop", &["reason", "epoch", "step", "seconds", "peak_rss_bytes", "is_guessing"]),
];

#[test]
fn json_goes_to_standard_output_and_arguments_to_the_job() {
    let place = Place::new();
    let outcome = place.succeed(&[
        "train",
        "--json",
        "--run",
        "mine",
        "--model",
        "mlp:32",
        "--epochs",
        "2",
        "--threads",
        "1",
        "--set",
        "optimizer.lr=0.02",
        "--set",
        "seed=7",
    ]);
    assert_eq!(outcome.stderr, "");
    let printed = outcome.json();
    let kinds: Vec<&str> = printed.iter().map(|event| event["event"].as_str().unwrap()).collect();
    // How often that is told depends on the time.
    let (regular, kinds): (Vec<&str>, Vec<&str>) =
        kinds.into_iter().partition(|kind| ["resources", "times"].contains(kind));
    assert!(["resources", "times"].iter().all(|kind| regular.contains(kind)));
    assert_eq!(kinds, ["start", "view", "checkpoint", "epoch", "checkpoint", "epoch", "stop"]);
    let kept = json_lines(&fs::read_to_string(place.path("mine/events.jsonl")).unwrap());
    assert_eq!(kept, printed, "the run keeps what was printed");
    for event in &printed {
        let (kind, fields) = FIELDS.iter().find(|(kind, _)| event["event"] == *kind).unwrap();
        let mut expected: Vec<&str> = fields.iter().copied().chain(["at_s", "event"]).collect();
        expected.sort_unstable();
        let found: Vec<&str> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, expected, "{kind}");
    }
    let start = &printed[0];
    assert_eq!((&start["model"], &start["threads"], &start["seed"]), (&"mlp:32".into(), &1.into(), &7.into()));
    assert_eq!(start["n_params"], 64 * 32 + 32 + 32 * 10 + 10);
    assert_eq!((&start["n_train"], &start["n_test"]), (&3823.into(), &1797.into()));
    let stop = printed.last().unwrap();
    assert_eq!((&stop["reason"], &stop["epoch"]), (&"finished".into(), &2.into()));
    let job = fs::read_to_string(place.path("mine/job.toml")).unwrap();
    for line in ["model = \"mlp:32\"", "epochs = 2", "threads = 1", "seed = 7", "lr = 0.02"] {
        assert!(job.lines().any(|found| found == line), "{line}\n{job}");
    }
}

#[test]
fn a_folder_that_holds_a_run_is_not_overwritten() {
    let place = Place::new();
    let train = ["train", "--run", "mine", "--model", "mlp:4", "--epochs", "1"];
    place.succeed(&train);
    let before = final_state(&place.path("mine"));
    let message = place.fail(&train);
    assert!(message.contains("mine holds a run already") && message.contains("nettorrent resume mine"), "{message}");
    assert_eq!(final_state(&place.path("mine")), before);
}

#[test]
fn the_same_seed_and_threads_give_the_same_bytes() {
    let place = Place::new();
    let state = |name: &str, seed: u64, threads: usize| {
        let (seed, threads) = (format!("seed={seed}"), threads.to_string());
        let what = ["--model", "mlp:16", "--epochs", "2", "--set", seed.as_str(), "--threads", threads.as_str()];
        place.succeed(&[&["train", "--run", name], what.as_slice()].concat());
        final_state(&place.path(name))
    };
    for threads in [1, 2] {
        let first = state(&format!("{threads}-first"), 1, threads);
        assert!(first == state(&format!("{threads}-second"), 1, threads), "with {threads} threads");
        assert!(first.0 != state(&format!("{threads}-other"), 2, threads).0, "another seed, with {threads} threads");
    }
}

#[test]
fn training_can_start_from_weights() {
    let place = Place::new();
    place.succeed(&["model", "init", "mlp:8", "--input", "8,8,1", "--seed", "5", "-o", "start.safetensors"]);
    let train = |run: &str, rate: &str| {
        let from = ["--weights", "start.safetensors", "--run", run, "--set", rate];
        place.succeed(&[&["train", "--model", "mlp:8", "--epochs", "1"], from.as_slice()].concat());
        newest_checkpoint(&place.path(run)).join("model.safetensors")
    };
    let start = fs::read(place.path("start.safetensors")).unwrap();
    assert!(fs::read(train("still", "optimizer.lr=0")).unwrap() == start, "without steps it stays what it was");
    let trained = train("moved", "optimizer.lr=0.05");
    assert!(fs::read(&trained).unwrap() != start);

    let arguments = ["eval", "--weights", text(&trained), "--model", "mlp:8", "--data", "digits", "--json"];
    let of_weights: Value = place.succeed(&arguments).json().remove(0);
    let of_run: Value = place.succeed(&["eval", "moved", "--json"]).json().remove(0);
    assert_eq!(of_weights["accuracy"], of_run["accuracy"]);
    assert_eq!(of_run["accuracy"], events(&place.path("moved"), "epoch")[0]["test_accuracy"]);
}
