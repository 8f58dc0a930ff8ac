//! A ticket need not be an argument, which other users of the machine can see.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::program::{Outcome, Place, Running};
use crate::swarm::start;

/// Runs a command that reads this from standard input.
fn with_input(mut command: Command, input: &str) -> Outcome {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it listens");
    Outcome::of(child.wait_with_output().expect("our own child"))
}

fn with_variable(mut command: Command, ticket: &str) -> Command {
    command.env("NETTORRENT_TICKET", ticket);
    command
}

#[test]
fn a_ticket_comes_from_a_file_from_standard_input_or_from_the_environment() {
    let place = Place::new();
    let (_starter, ticket) = start(&place, &["--listen", "127.0.0.1:0"]);
    let line = format!("{ticket}\n");
    place.write("ticket", &line);
    let status = ["status", "--json"];
    let outcomes = [
        place.run(&[&status[..], &["--ticket-file", "ticket"]].concat()),
        with_input(place.command(&[&status[..], &["-"]].concat()), &line),
        Outcome::of(with_variable(place.command(&status), &ticket).output().expect("it runs")),
        place.run(&[&status[..], &[&ticket]].concat()),
    ];
    for outcome in outcomes {
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains("\"phase\""), "{}", outcome.stdout);
    }
    let advise = ["advise", "--no-pilots", "--json", "--model", "mlp:4", "--epochs", "1"];
    for outcome in [
        place.run(&[&advise[..], &["--ticket-file", "ticket"]].concat()),
        Outcome::of(with_variable(place.command(&advise), &ticket).output().expect("it runs")),
    ] {
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        assert!(outcome.stdout.contains("\"round_trip_s\""), "{}", outcome.stdout);
    }
    let other = Place::new();
    let join = ["join", "--json", "--run", "run"];
    let mut joiner = Running::of(with_variable(other.command(&join), &ticket));
    joiner.wait_for("start");
}

#[test]
fn a_ticket_that_is_not_there_is_asked_for() {
    let place = Place::new();
    for command in ["join", "status"] {
        let said = place.fail(&[command]);
        assert!(said.contains("--ticket-file FILE") && said.contains("NETTORRENT_TICKET"), "{said}");
    }
    place.write("ticket", "what is this\n");
    let said = place.fail(&["status", "--ticket-file", "ticket"]);
    assert!(said.contains("there is no ticket in ticket"), "{said}");
    assert!(place.fail(&["status", "--ticket-file", "nowhere"]).contains("cannot read the ticket in nowhere"));
    assert!(place.run(&["status", "-", "--ticket-file", "ticket"]).stderr.contains("cannot be used with"));
}
