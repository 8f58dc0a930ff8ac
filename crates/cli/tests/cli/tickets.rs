//! Tickets: where they come from, and that every member has one.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::program::{Outcome, Place, Running, all_events};
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

#[test]
fn who_started_a_swarm_may_go_others_join_through_any_member_and_it_joins_again() {
    let [first, second, third, fourth] = [(); 4].map(|()| Place::new());
    let for_long = ["--listen", "127.0.0.1:0", "--epochs", "100000", "--wait-for", "3", "--set", "swarm.deadline=1"];
    let (mut starter, ticket) = start(&first, &for_long);
    let join = |place: &Place, ticket: &str| {
        place.start(&["join", ticket, "--listen", "127.0.0.1:0", "--json", "--run", "run"])
    };
    let members = [join(&second, &ticket), join(&third, &ticket)];
    starter.wait_for("epoch");
    starter.signal(&["KILL"]);
    starter.finish();
    assert!(
        fourth.fail(&["join", &ticket]).contains("no peer of this swarm has answered"),
        "it named only one address"
    );

    // Whichever is asked, it names those who are there, and one of them lets others in.
    let asked: Value = serde_json::from_str(&third.succeed(&["ticket", "run", "--json"]).stdout).expect("JSON");
    assert!(asked["members"].as_array().is_some_and(|members| !members.is_empty()), "{asked}");
    let ticket = second.succeed(&["ticket", "run"]).stdout;
    let mut newcomer = join(&fourth, ticket.trim());
    newcomer.wait_for("epoch");
    let status = fourth.succeed(&["status", "run", "--json"]).stdout;
    assert!(status.contains("\"phase\""), "{status}");

    // Whoever started it finds it where it was.
    let mut again = first.start(&["start", "--resume", "run", "--listen", "127.0.0.1:0", "--json"]);
    again.wait_for("epoch");
    let others = |event: &Value| event["members"].as_array().is_some_and(|members| members.len() >= 3);
    assert!(all_events(&first.path("run")).iter().rev().any(others), "it is one of them");
    drop(members);
}

#[test]
fn a_run_without_a_swarm_has_no_ticket_and_one_whose_swarm_is_over_says_so() {
    let place = Place::new();
    place.succeed(&["train", "--epochs", "1", "--run", "alone"]);
    assert!(place.fail(&["ticket", "alone"]).contains("has no ticket"));
    assert!(place.fail(&["status", "alone"]).contains("never took part in a swarm"));
    let (starter, _) = start(&place, &["--listen", "127.0.0.1:0", "--wait-for", "1", "--epochs", "1"]);
    assert_eq!(starter.finish().code, Some(0));
    let said = place.fail(&["ticket", "run"]);
    assert!(said.contains("is over, or cannot be reached") && said.contains("start --resume"), "{said}");
}

#[test]
fn a_ticket_whose_time_is_over_is_shown_with_a_warning_and_can_be_replaced() {
    let (place, other) = (Place::new(), Place::new());
    let shortly = ["--listen", "127.0.0.1:0", "--epochs", "100000", "--ticket-expires", "1s"];
    let (_starter, ticket) = start(&place, &shortly);
    let mut shown = (0..2000).map(|_| place.succeed(&["ticket", "run"]));
    let over = shown.find(|outcome| !outcome.stderr.is_empty()).expect("a second passes");
    assert!(over.stderr.contains("warning: the time of this ticket is over"), "{}", over.stderr);
    assert!(over.stderr.contains("nettorrent members RUN --rotate --run RUN"), "{}", over.stderr);
    assert!(
        over.stdout.starts_with("nt3") && over.stdout.lines().count() == 1,
        "it is the ticket alone: {}",
        over.stdout
    );
    assert!(other.fail(&["join", &ticket]).contains("the ticket's time is over"));

    let rotated = place.succeed(&["members", "run", "--rotate", "--run", "run", "--json"]).json().remove(0);
    let mut joiner = other.start(&["join", rotated["ticket"].as_str().expect("a ticket"), "--json", "--run", "run"]);
    joiner.wait_for("start");
}
