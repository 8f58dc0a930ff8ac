//! Peers that one command launches elsewhere: on "hosts" that are folders, each with a home of its own.

#[cfg(target_os = "linux")]
pub(crate) mod cluster;
mod pods;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::program::{BINARY, Place, Running, all_events};

/// A command that takes a host and a command line as ssh does, and runs it in that host's home.
pub(crate) fn fake_ssh(place: &Place) -> String {
    let path = place.path("fake-ssh");
    let homes = place.path("homes");
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = gone ]; then echo 'no route to gone' >&2; exit 255; fi\nexport HOME='{}'/\"$1\" PATH=/usr/bin:/bin\nmkdir \
         -p \"$HOME\"\ncd \"$HOME\"\nshift\nexec sh -c \"$*\"\n",
        homes.display()
    );
    fs::write(&path, script).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file of our own");
    path.display().to_string()
}

/// Two hosts that know where the program is, and others that do not.
fn hosts(place: &Place, others: &[&str]) {
    let known = |name: &str| format!("{name} program='{BINARY}' listen=127.0.0.1:0 threads=1 # known\n");
    let unknown = others.iter().map(|name| format!("{name} listen=127.0.0.1:0 threads=1\n"));
    place.write("hosts", [known("one"), known("two")].into_iter().chain(unknown).collect::<String>());
}

#[test]
fn a_swarm_on_several_hosts_is_launched_followed_and_collected() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    hosts(&place, &["three"]);
    place.write(
        "model.toml",
        "input = [8, 8, 1]\nlayers = [\"flatten\", { dense = { out = 16 } }, \"relu\", { dense = { out = 10 } }]\n",
    );
    let launch = ["launch", "--ssh", "hosts", "--ssh-command", &ssh, "--model", "model.toml", "--epochs", "3"];
    let planned = place.succeed(&[&launch[..], &["--dry-run"]].concat()).stdout;
    assert!(planned.contains("--wait-for 3") && planned.contains("three: joins"), "{planned}");
    assert!(!place.path("homes").exists(), "nothing was done");

    let outcome = place.succeed(&[&launch[..], &["--run", "run"]].concat());
    assert!(outcome.stdout.contains("Finished: 3 of 3 peers"), "{}", outcome.stdout);
    let events = all_events(&place.path("run"));
    let of = |kind: &str, field: &str| -> BTreeSet<u64> {
        events.iter().filter(|event| event["event"] == kind).filter_map(|event| event[field].as_u64()).collect()
    };
    assert_eq!(of("times", "peer").len(), 3, "all tell where their time went");
    assert_eq!(of("epoch", "epoch"), BTreeSet::from([1, 2, 3]));
    // The one that did not have the program got it; nobody's command line had the ticket.
    assert!(place.path("homes/three/.cache/nettorrent").is_dir() && !place.path("homes/one/.cache").exists());
    let ticket = fs::read_to_string(place.path("run/ticket")).expect("a ticket");
    assert!(!planned.contains(ticket.trim()));
    let eval: Vec<Value> = place.succeed(&["eval", "run", "--json"]).json();
    let last = events.iter().rfind(|event| event["event"] == "epoch").expect("an epoch");
    assert_eq!(eval[0]["accuracy"], last["test_accuracy"]);
}

#[test]
fn nobody_waits_for_a_host_that_fails_before_training() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    hosts(&place, &[]);
    let others = fs::read_to_string(place.path("hosts")).expect("a file");
    place.write("hosts", format!("{others}three program='{BINARY}' listen=127.0.0.1:0 threads=1 data=/nowhere\n"));
    let outcome = place.run(&["launch", "--ssh", "hosts", "--ssh-command", &ssh, "--run", "run"]);
    assert!(outcome.code != Some(0) && outcome.stderr.contains("/nowhere"), "{}", outcome.stderr);
    assert!(all_events(&place.path("run")).iter().all(|event| event["event"] != "epoch"));
}

#[test]
fn ctrl_c_has_all_peers_leave_and_keeps_what_they_learnt() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    hosts(&place, &[]);
    let launch = ["launch", "--ssh", "hosts", "--ssh-command", &ssh, "--epochs", "100000", "--run", "run", "--json"];
    let mut running = place.start(&launch);
    running.wait_for("epoch");
    running.signal(&["INT"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("the newest checkpoint of"), "{}", outcome.stderr);
    for host in ["one", "two"] {
        let k = usize::from(host == "two");
        let events = all_events(&place.path(&format!("homes/{host}/nettorrent/run/peer-{k}/run")));
        assert_eq!(events.last().expect("an end")["reason"], "interrupted");
    }
    place.succeed(&["eval", "run", "--json"]);
}

#[test]
fn peers_leave_when_whoever_launched_them_is_gone() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    hosts(&place, &[]);
    let launch = ["launch", "--ssh", "hosts", "--ssh-command", &ssh, "--epochs", "100000", "--run", "run", "--json"];
    let mut running = place.start(&launch);
    running.wait_for("epoch");
    running.signal(&["KILL"]);
    running.finish();
    // Its folder is free again when its process has ended; until then it is locked.
    let run = place.path("homes/one/nettorrent/run/peer-0/run");
    let events = fs::File::open(run.join("events.jsonl")).expect("events");
    events.lock().expect("a lock");
    assert_eq!(all_events(&run).last().expect("an end")["reason"], "interrupted");
}

#[test]
fn the_nodes_of_a_ray_cluster_are_reached_by_a_python_that_has_ray() {
    let place = Place::new();
    let planned = place.succeed(&["launch", "--ray", "--nodes", "3", "--cpus", "2", "--dry-run"]).stdout;
    for words in ["hold nettorrent-", " auto 3 2 0\n", "peer-0@NODE: starts", "peer-2@NODE: joins", "--threads 2"] {
        assert!(planned.contains(words), "{words}: {planned}");
    }
    let mut command = place.command(&["launch", "--ray", "--run", "run"]);
    command.env("NETTORRENT_PYTHON", "no-such-python");
    let outcome = Running::of(command).finish();
    assert!(outcome.code != Some(0) && outcome.stderr.contains("cannot run `no-such-python`"), "{}", outcome.stderr);
}

#[test]
fn a_host_that_cannot_be_reached_is_named_and_nothing_is_started() {
    let place = Place::new();
    let ssh = fake_ssh(&place);
    hosts(&place, &["gone"]);
    let said = place.fail(&["launch", "--ssh", "hosts", "--ssh-command", &ssh, "--run", "run"]);
    assert!(said.contains("gone: no route to gone"), "{said}");
    assert!(!place.path("homes/one/nettorrent").exists());
    let said = place.fail(&["launch", "--ssh", "hosts", "--ssh-command", "no-such-program", "--run", "run2"]);
    assert!(said.contains("cannot run `no-such-program`"), "{said}");
    assert!(place.fail(&["launch", "--ssh", "nowhere"]).contains("cannot read nowhere"));
}
