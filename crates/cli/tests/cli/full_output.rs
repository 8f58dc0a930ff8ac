//! Standard output on a full disk.

use std::fs::File;

use crate::program::{Outcome, Place, events};

const ERROR: &str = "error: cannot write to standard output: No space left on device (os error 28)\n";
const WARNING: &str =
    "warning: cannot write to standard output: No space left on device (os error 28); the work goes on\n";

/// Runs the program with a standard output that takes nothing.
fn with_full_output(place: &Place, arguments: &[&str]) -> Outcome {
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    Outcome::of(place.command(arguments).stdout(full).output().expect("the program starts"))
}

#[test]
fn what_is_there_for_its_output_ends_with_an_error() {
    let place = Place::new();
    place.train_text();
    for arguments in [
        "eval text",
        "eval text --json",
        "predict text book.txt",
        "predict text book.txt --json",
        "generate text --prompt To --tokens 3",
        "generate text --tokens 3 --json",
        "strategies",
        "strategies ring-all-reduce",
        "strategies --json",
        "data list",
        "data info digits",
        "data info digits --json",
        "model list",
        "model describe mlp:8 --toml",
        "study",
        "study averaging --list",
        "study averaging --quick --list --json",
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let outcome = with_full_output(&place, &words);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(1), ERROR), "{arguments}");
    }
}

#[test]
fn training_goes_on_and_says_so_once() {
    let place = Place::new();
    for (n, extra) in [&[][..], &["--peers", "2"], &["--json"], &["--peers", "2", "--json"]].into_iter().enumerate() {
        let run = format!("run-{n}");
        let base = ["train", "--model", "mlp:8", "--threads", "1", "--epochs", "2", "--run", &run];
        let arguments = [&base[..], extra].concat();
        let outcome = with_full_output(&place, &arguments);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), WARNING), "{arguments:?}");
        let stop = events(&place.path(&run), "stop").pop().expect("the run's end");
        assert_eq!((stop["reason"].as_str(), stop["epoch"].as_u64()), (Some("finished"), Some(2)));
    }
}

#[test]
fn what_a_study_has_done_is_kept() {
    let place = Place::new();
    place.write(
        "tiny.toml",
        "name = \"tiny\"\ntarget_accuracy = 0.1\n[job]\nmodel = \"mlp:16\"\nepochs = 1\nthreads = 1\n[matrix]\n\
         \"optimizer.lr\" = [0.01, 0.1]\n",
    );
    let outcome = with_full_output(&place, &["study", "tiny.toml", "--out", "out"]);
    assert_eq!((outcome.code, outcome.stderr), (Some(1), format!("{WARNING}{ERROR}")));
    assert!(place.path("out/report.html").exists());
    let again = place.succeed(&["study", "--report", "out", "--json"]).json().pop().expect("one JSON object");
    let runs = again["runs"].as_array().expect("a list");
    assert!(runs.len() == 2 && runs.iter().all(|run| run["outcome"]["done"].is_object()), "{again}");
}
