//! A reader that goes away early.

use std::process::Command;

use crate::program::{Outcome, Place, events, newest_checkpoint, text};

/// Runs the program before `head -n 1`, which closes the pipe after its line; the program's own exit code comes over standard error.
fn before_head(place: &Place, arguments: &str) -> Outcome {
    let line = format!("{{ \"$0\" {arguments}; echo code $? >&2; }} | head -n 1");
    let mut command = Command::new("sh");
    command.args(["-c", &line, env!("CARGO_BIN_EXE_nettorrent")]);
    place.shelter(&mut command);
    Outcome::of(command.output().expect("there is a shell"))
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_program_without_a_complaint() {
    let place = Place::new();
    for arguments in ["model describe resnet50", "model describe resnet50 --toml", "data info digits"] {
        let outcome = before_head(&place, arguments);
        assert_eq!(outcome.stdout.lines().count(), 1);
        // What is short is written before the reader is gone.
        assert!(["code 141\n", "code 0\n"].contains(&outcome.stderr.as_str()), "{arguments}: {}", outcome.stderr);
    }
}

#[test]
fn a_text_that_is_read_no_further_ends_without_a_complaint() {
    let place = Place::new();
    place.train_text();
    // The prompt is the line that the reader wants; all further ones find it gone.
    let outcome = before_head(&place, "generate text --prompt 'To be\n' --tokens 300 --temperature 0");
    assert_eq!(outcome.stdout, "To be\n");
    assert!(["code 141\n", "code 0\n"].contains(&outcome.stderr.as_str()), "{}", outcome.stderr);
}

#[test]
fn training_goes_on_when_nobody_reads_its_events_any_more() {
    let place = Place::new();
    for peers in ["1", "2"] {
        let run = format!("run-{peers}");
        let outcome = before_head(&place, &format!("train --epochs 2 --peers {peers} --json --run {run}"));
        assert_eq!(outcome.stdout.lines().count(), 1);
        assert_eq!(outcome.stderr, "code 0\n");
        let run = place.path(&run);
        let stop = events(&run, "stop").pop().unwrap();
        assert_eq!((stop["reason"].as_str(), stop["epoch"].as_u64()), (Some("finished"), Some(2)));
        let newest = newest_checkpoint(&run);
        assert!(text(&newest).ends_with(&format!("{:010}", stop["step"].as_u64().unwrap())), "{}", newest.display());
    }
}
