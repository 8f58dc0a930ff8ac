//! Who belongs to a swarm, and what its owner may do about it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::program::{Place, Running, newest_checkpoint};
use crate::swarm::start;

/// Enough epochs that nothing ends by itself.
const FOR_LONG: [&str; 4] = ["--listen", "127.0.0.1:0", "--epochs", "100000"];

/// A swarm of two that trains.
fn two(starter: &Place, joiner: &Place) -> (Running, Running, String) {
    let (mut first, ticket) = start(starter, &FOR_LONG);
    let mut second = joiner.start(&["join", &ticket, "--json", "--run", "run"]);
    first.wait_for("epoch");
    second.wait_for("epoch");
    (first, second, ticket)
}

fn list(place: &Place, ticket: &str) -> Vec<Value> {
    let outcome = place.succeed(&["members", ticket, "--json"]);
    serde_json::from_str(&outcome.stdout).expect("a list")
}

fn numbers(members: &[Value]) -> Vec<u64> {
    members.iter().map(|member| member["number"].as_u64().expect("a number")).collect()
}

#[test]
fn members_are_listed_with_key_address_and_times() {
    let (starter, joiner) = (Place::new(), Place::new());
    let (_first, _second, ticket) = two(&starter, &joiner);
    let members = list(&joiner, &ticket);
    assert_eq!(numbers(&members), [0, 1]);
    for member in &members {
        assert_eq!(member["peer"].as_u64().map(|peer| peer >> 40), member["number"].as_u64());
        assert_eq!(member["key"].as_str().map(str::len), Some(32), "{member}");
        assert!(member["address"].as_str().is_some_and(|address| address.contains(':')), "{member}");
        assert!(member["expires"].as_u64() > member["since"].as_u64(), "{member}");
    }
    let text = joiner.succeed(&["members", &ticket]).stdout;
    assert!(text.lines().count() == 2 && text.contains("certificate until 2"), "{text}");
    assert!(text.contains(members[1]["key"].as_str().expect("a fingerprint")), "{text}");
}

#[test]
fn the_owner_removes_a_member_which_keeps_what_it_has_and_nobody_else_may() {
    let (starter, joiner, other) = (Place::new(), Place::new(), Place::new());
    let (mut first, second, ticket) = two(&starter, &joiner);
    let key = starter.path("run").join("owner.key");
    assert_eq!(fs::metadata(&key).expect("the owner's key").permissions().mode() & 0o777, 0o600);
    assert!(!joiner.path("run").join("owner.key").exists());

    let said = joiner.fail(&["members", &ticket, "--remove", "0"]);
    assert!(said.contains("only the swarm's owner may"), "{said}");
    let said = joiner.fail(&["members", &ticket, "--remove", "0", "--run", "run"]);
    assert!(said.contains("owner.key"), "{said}");
    let (_others, _) = start(&other, &FOR_LONG);
    let said = other.fail(&["members", &ticket, "--remove", "0", "--run", "run"]);
    assert!(said.contains("of another swarm"), "{said}");
    let said = starter.fail(&["members", &ticket, "--remove", "7", "--run", "run"]);
    assert!(said.contains("there is no member 7") && said.contains("peer 1 at"), "{said}");
    assert_eq!(numbers(&list(&joiner, &ticket)), [0, 1]);

    let said = starter.succeed(&["members", &ticket, "--remove", "1", "--run", "run"]).stdout;
    let new = said.split_whitespace().find(|word| word.starts_with("nt3")).expect("a new ticket");
    let outcome = second.finish();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("removed this peer for good"), "{}", outcome.stderr);
    assert!(newest_checkpoint(&joiner.path("run")).join("model.safetensors").is_file());

    first.wait_for("epoch");
    let said = joiner.fail(&["join", &ticket, "--run", "again"]);
    assert!(said.contains("no longer"), "{said}");
    assert_eq!(numbers(&list(&joiner, new)), [0]);
}

#[test]
fn the_ticket_is_replaced_and_limited() {
    let (starter, joiner, late) = (Place::new(), Place::new(), Place::new());
    let (_first, mut second, old) = two(&starter, &joiner);
    let rotate = ["members", &old, "--rotate", "--ticket-uses", "1", "--run", "run", "--json"];
    let new = starter.succeed(&rotate).json().remove(0)["ticket"].as_str().expect("a ticket").to_owned();
    assert!(late.fail(&["status", &old]).contains("no longer"));
    let mut third = late.start(&["join", &new, "--json", "--run", "run"]);
    third.wait_for("epoch");
    second.wait_for_line(|line| line.contains("replaced its keys"));
    assert_eq!(numbers(&list(&late, &new)), [0, 1, 2]);
    let said = late.fail(&["join", &new, "--run", "other"]);
    assert!(said.contains("the ticket was good for 1 to join"), "{said}");
}

#[test]
fn a_limited_ticket_says_so_and_lets_in_no_more() {
    let (starter, joiner) = (Place::new(), Place::new());
    let limits = ["--ticket-uses", "1", "--ticket-expires", "2h"];
    let (_first, ticket) = start(&starter, &[&FOR_LONG[..], &limits].concat());
    let mut second = joiner.start(&["join", &ticket, "--json", "--run", "run"]);
    second.wait_for("epoch");
    let said = joiner.fail(&["join", &ticket, "--run", "other"]);
    assert!(said.contains("the ticket was good for 1 to join"), "{said}");
    let wrong = starter.run(&["start", "--ticket-expires", "soon"]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("for example 2h"), "{}", wrong.stderr);
}
