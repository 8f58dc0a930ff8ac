//! A reader that goes away early.

use std::process::Command;

use crate::program::{Outcome, Place};

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_nettorrent");
    for arguments in ["model describe resnet50", "model describe resnet50 --toml", "data info digits"] {
        // `head` closes the pipe after its line; the shell hands on the program's own code.
        let line = format!("{{ \"$0\" {arguments}; echo code $? >&2; }} | head -n 1");
        let mut command = Command::new("sh");
        command.args(["-c", &line, program]);
        place.shelter(&mut command);
        let outcome = Outcome::of(command.output().unwrap());
        assert_eq!(outcome.stdout.lines().count(), 1);
        assert_eq!(outcome.stderr, "code 0\n", "{arguments}");
    }
}
