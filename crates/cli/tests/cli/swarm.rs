//! Swarms of real processes: on this machine by one command, and by ticket as on several machines.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::program::{Place, Running, all_events, events, json_lines, signal};

/// The event's kind.
fn is(event: &Value, kind: &str) -> bool {
    event["event"] == kind
}

fn join_index(peer: &Value) -> u64 {
    peer.as_u64().expect("a peer's name") >> 40
}

/// Runs a swarm to its end; its events.
fn train(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let all: Vec<&str> = ["train", "--json", "--run", "run"].into_iter().chain(arguments.iter().copied()).collect();
    place.succeed(&all).json()
}

fn last_accuracy(events: &[Value]) -> f64 {
    let last = events.iter().rfind(|event| is(event, "epoch"));
    last.expect("an epoch")["test_accuracy"].as_f64().expect("a number")
}

#[test]
fn every_strategy_learns_over_sockets() {
    let place = Place::new();
    let list = place.succeed(&["strategies", "--json"]);
    let list: Value = serde_json::from_str(&list.stdout).expect("JSON");
    for strategy in list.as_array().expect("a list") {
        let name = strategy["name"].as_str().expect("a name");
        let place = Place::new();
        let events = train(&place, &["--peers", "3", "--epochs", "5", "--strategy", name, "--threads", "1"]);
        let accuracy = last_accuracy(&events);
        assert!(accuracy > 0.85, "{name}: {accuracy}");
        assert_eq!(events.iter().filter(|event| is(event, "epoch")).count(), 5, "{name}");
        // Three peers share 120 batches of 32; who is faster than the others takes more steps by itself.
        for epoch in events.iter().filter(|event| is(event, "epoch")) {
            assert!(epoch["step"].as_u64() >= epoch["epoch"].as_u64().map(|epoch| 100 * epoch), "{name}: {epoch}");
            assert!(epoch["test_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{name}: {epoch}");
            assert!(epoch["sent_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{name}: {epoch}");
            assert!(epoch["samples_per_s"].as_f64().is_some_and(|speed| speed > 0.0), "{name}: {epoch}");
        }
        let kept: Vec<&Value> = events.iter().filter(|event| is(event, "checkpoint")).map(|e| &e["path"]).collect();
        assert!(kept.iter().enumerate().all(|(k, path)| !kept[..k].contains(path)), "{name}: told twice: {kept:?}");
        let stop = events.last().expect("an end");
        assert!(is(stop, "stop") && stop["reason"] == "finished", "{name}: {stop}");
        // What was learnt is an ordinary run.
        let eval = place.succeed(&["eval", "run", "--json"]).json();
        assert!((eval[0]["accuracy"].as_f64().expect("a number") - accuracy).abs() < 1e-9, "{name}: {eval:?}");
    }
}

#[test]
fn the_simulator_and_sockets_give_the_same_bits() {
    let place = Place::new();
    let list: Value = serde_json::from_str(&place.succeed(&["strategies", "--json"]).stdout).expect("JSON");
    for strategy in list.as_array().expect("a list") {
        let name = strategy["name"].as_str().expect("a name");
        if strategy["is_asynchronous"] == true {
            // Who does not wait hears of others when it does.
            continue;
        }
        let settings = ["--peers", "3", "--epochs", "2", "--threads", "1", "--strategy", name];
        // Who is how fast is another matter there.
        let settings: Vec<&str> = settings.into_iter().chain(["--set", "swarm.work=equal"]).collect();
        // Losses are printed with all their digits, and the least difference in a parameter changes them.
        let losses = |events: &[Value]| -> Vec<(String, String)> {
            let mut epochs: Vec<&Value> = events.iter().filter(|event| is(event, "epoch")).collect();
            epochs.dedup_by_key(|event| event["epoch"].as_u64());
            epochs.iter().map(|event| (event["train_loss"].to_string(), event["test_loss"].to_string())).collect()
        };
        let real = losses(&train(&Place::new(), &settings));
        let all: Vec<&str> = ["simulate", "--json"].into_iter().chain(settings.iter().copied()).collect();
        let simulated = losses(&place.succeed(&all).json());
        assert_eq!(real.len(), 2, "{name}");
        assert_eq!(real, simulated, "{name}");
    }
}

/// Trains with four processes and does something to one of them when the second epoch is done.
fn disturbed(signals: &[&str], victim: u64) -> Vec<Value> {
    let place = Place::new();
    let settings = ["--peers", "4", "--epochs", "30", "--threads", "1", "--set", "swarm.deadline=1"];
    let all: Vec<&str> = ["train", "--json", "--run", "run"].into_iter().chain(settings).collect();
    let mut running = place.start(&all);
    let mut events = Vec::new();
    let mut pid = None;
    let mut wait = |running: &mut Running, is_wanted: &dyn Fn(&Value) -> bool| loop {
        let event: Value = serde_json::from_str(&running.wait_for_line(|_| true)).expect("JSON");
        if is(&event, "peer") && join_index(&event["peer"]) == victim {
            pid = event["pid"].as_u64();
        }
        let is_there = is_wanted(&event);
        events.push(event);
        if is_there {
            break pid;
        }
    };
    let pid = wait(&mut running, &|event| is(event, "epoch") && event["epoch"] == 2).expect("the victim's process");
    assert!(signal(pid as u32, &signals[..1]));
    // The others agree on a view without it.
    let without = |event: &Value| {
        let members = event["members"].as_array();
        is(event, "view") && members.is_some_and(|m| m.len() == 3 && m.iter().all(|peer| join_index(peer) != victim))
    };
    wait(&mut running, &without);
    for &name in &signals[1..] {
        assert!(signal(pid as u32, &[name]));
        // And it comes back.
        wait(&mut running, &|event| is(event, "view") && event["members"].as_array().is_some_and(|m| m.len() == 4));
    }
    wait(&mut running, &|event| is(event, "stop"));
    events
}

#[test]
fn a_killed_peer_is_done_without() {
    for victim in [0, 2] {
        let events = disturbed(&["KILL"], victim);
        assert_eq!(events.last().expect("an end")["reason"], "finished");
        assert!(last_accuracy(&events) > 0.95);
        // Where the time of those went who were there is told.
        for field in ["elapsed_s", "compute_s", "wait_s", "encode_s", "decode_s", "send_s"] {
            let is_told = |event: &Value| is(event, "times") && event[field].as_f64().is_some_and(|time| time > 0.0);
            let told: BTreeSet<u64> =
                events.iter().filter(|event| is_told(event)).map(|event| join_index(&event["peer"])).collect();
            assert!((0..4).all(|peer| peer == victim || told.contains(&peer)), "{field} of {told:?}");
        }
        // And how long they took to notice that it was gone, and to go on without it.
        let losses: Vec<&Value> = events.iter().filter(|event| is(event, "loss")).collect();
        let tellers: BTreeSet<u64> = losses.iter().map(|loss| join_index(&loss["peer"])).collect();
        assert!((0..4).all(|peer| (peer == victim) != tellers.contains(&peer)), "{losses:?}");
        for loss in losses {
            assert_eq!(join_index(&loss["lost"]), victim, "{loss}");
            let is_time = |field: &str| loss[field].as_f64().is_some_and(|seconds| (0.0..60.0).contains(&seconds));
            assert!(is_time("detection_s") && is_time("recovery_s"), "{loss}");
        }
    }
}

#[test]
fn a_hung_peer_is_given_up_and_comes_back() {
    let events = disturbed(&["STOP", "CONT"], 1);
    assert_eq!(events.last().expect("an end")["reason"], "finished");
    assert!(last_accuracy(&events) > 0.95);
}

#[test]
fn ctrl_c_loses_nothing_and_the_run_goes_on_with_another_number_of_peers() {
    let place = Place::new();
    let mut running = place.start(&["train", "--peers", "3", "--epochs", "200", "--run", "run", "--json"]);
    running.wait_for_line(|line| line.contains(r#""event":"epoch","epoch":2"#));
    running.signal(&["INT"]);
    let outcome = running.finish();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("nettorrent resume"), "{}", outcome.stderr);
    let kept = std::fs::read_to_string(place.path("run/events.jsonl")).expect("events");
    let kept = json_lines(&kept).into_iter().filter(|event| is(event, "checkpoint"));
    let newest = kept.max_by_key(|event| event["step"].as_u64()).expect("a checkpoint");
    let events = place.succeed(&["resume", "run", "--peers", "2", "--epochs", "5", "--json"]).json();
    let start = &events[0];
    assert_eq!((&start["epoch"], &start["step"]), (&newest["epoch"], &newest["step"]));
    let epochs: Vec<u64> =
        events.iter().filter(|event| is(event, "epoch")).filter_map(|event| event["epoch"].as_u64()).collect();
    assert_eq!(epochs.last(), Some(&5), "{events:?}");
    assert!(epochs[0] >= 3, "what was done is not done again: {epochs:?}");
}

#[test]
fn gradients_of_four_peers_are_those_of_one() {
    // Without dropout, whose masks differ.
    let losses = |arguments: &[&str]| -> Vec<f64> {
        let settings = ["--model", "mlp:32", "--epochs", "30", "--threads", "1"];
        let all: Vec<&str> = settings.into_iter().chain(arguments.iter().copied()).collect();
        let events = train(&Place::new(), &all);
        events.iter().filter(|event| is(event, "epoch")).filter_map(|event| event["test_loss"].as_f64()).collect()
    };
    let four = losses(&["--peers", "4", "--set", "batch=1000"]);
    let one = losses(&["--set", "batch=1000"]);
    assert_eq!((four.len(), one.len()), (30, 30));
    assert!(one[29] < one[0] - 0.1, "it learns: {one:?}");
    for (four, one) in four.iter().zip(&one) {
        assert!((four - one).abs() < 1e-5 * one, "{four} and {one}");
    }
}

/// Starts a swarm that waits for peers; the process and its ticket.
pub(crate) fn start(place: &Place, arguments: &[&str]) -> (Running, String) {
    let all: Vec<&str> = ["start", "--json", "--run", "run"].into_iter().chain(arguments.iter().copied()).collect();
    let mut running = place.start(&all);
    let line = running.wait_for_line(|line| line.contains(r#""event":"ticket""#));
    let event: Value = serde_json::from_str(&line).expect("JSON");
    (running, event["ticket"].as_str().expect("a ticket").to_owned())
}

#[test]
fn peers_join_by_ticket_and_all_end_with_the_same_model() {
    let (first, second) = (Place::new(), Place::new());
    let listen = ["--listen", "127.0.0.1:0", "--epochs", "6", "--threads", "1"];
    let settings = ["--set", "evaluate.every_batches=50", "--set", "swarm.split=equal"];
    let (mut starter, ticket) = start(&first, &[&listen[..], &settings].concat());
    let mut joiner = second.start(&["join", &ticket, "--json", "--run", "run", "--threads", "1"]);
    starter.wait_for_line(|line| line.contains(r#""event":"epoch","epoch":1"#));
    let status = first.succeed(&["status", &ticket, "--json"]);
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(status.as_array().expect("a list").len(), 2, "{status}");
    starter.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    joiner.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    let accuracy = |place: &Place| place.succeed(&["eval", "run", "--json"]).json()[0]["loss"].clone();
    assert_eq!(accuracy(&first), accuracy(&second));
    for place in [&first, &second] {
        let dropped = events(&place.path("run"), "dropped");
        assert!(dropped.iter().any(|dropped| dropped["n_peers"] == 2), "who joined is told too: {dropped:?}");
        assert!(!events(&place.path("run"), "evaluation").is_empty(), "and of tests within epochs");
    }
}

/// Whether each epoch's line tells what so many peers did in it, and that was all there was to do.
fn assert_all_tell(events: &[Value], n_peers: usize) {
    let n_train = events.iter().find(|event| is(event, "start")).expect("a start")["n_train"].as_u64();
    let epochs: Vec<&Value> = events.iter().filter(|event| is(event, "epoch")).collect();
    assert!(!epochs.is_empty());
    for epoch in epochs {
        let peers = epoch["peers"].as_array().expect("what each peer did");
        assert_eq!(peers.len(), n_peers, "{epoch}");
        let n_samples = peers.iter().map(|peer| peer["n_samples"].as_u64().expect("a number")).sum::<u64>();
        assert_eq!(Some(n_samples), n_train, "{epoch}");
        for number in ["loss", "compute_s", "sent_bytes", "received_bytes"] {
            let is_positive = |peer: &Value| peer[number].as_f64().is_some_and(|number| number > 0.0);
            assert!(n_peers == 1 || peers.iter().all(is_positive), "{number} in {epoch}");
        }
    }
}

#[test]
fn an_epoch_s_line_tells_what_each_peer_did() {
    let place = Place::new();
    let settings = ["--epochs", "3", "--threads", "1", "--json"];
    for (command, n_peers) in [
        (&["train"][..], 1),
        (&["train", "--peers", "2", "--strategy", "local-sgd"], 2),
        (&["train", "--peers", "3", "--strategy", "downpour"], 3),
        (&["simulate", "--peers", "3"], 3),
    ] {
        let run = n_peers.to_string() + command[0];
        place.succeed(&[command, &settings, &["--run", &run]].concat());
        assert_all_tell(&all_events(&place.path(&run)), n_peers);
    }
}

#[test]
fn the_starter_s_folder_shows_the_whole_swarm() {
    let places = [Place::new(), Place::new(), Place::new()];
    let (mut starter, ticket) =
        start(&places[0], &["--listen", "127.0.0.1:0", "--wait-for", "3", "--epochs", "4", "--threads", "1"]);
    let join = |place: &Place| place.start(&["join", &ticket, "--json", "--run", "run", "--threads", "1"]);
    let mut joiners = places[1..].iter().map(join).collect::<Vec<_>>();
    for running in std::iter::once(&mut starter).chain(&mut joiners) {
        running.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    }
    let [starter, joined, _] = places.each_ref().map(|place| all_events(&place.path("run")));
    assert_all_tell(&starter, 3);
    for (events, n_peers) in [(&starter, 3), (&joined, 1)] {
        for kind in ["times", "resources"] {
            let peers: BTreeSet<u64> =
                events.iter().filter(|event| is(event, kind)).map(|event| join_index(&event["peer"])).collect();
            assert_eq!(peers.len(), n_peers, "{kind}: {peers:?}");
        }
    }
}

#[test]
fn status_says_for_whom_a_peer_waits_and_for_how_long() {
    let (first, second) = (Place::new(), Place::new());
    let settings = ["--epochs", "100000", "--threads", "1", "--set", "swarm.deadline=600"];
    let all: Vec<&str> = ["--listen", "127.0.0.1:0"].into_iter().chain(settings).collect();
    let (mut starter, ticket) = start(&first, &all);
    let joiner = second.start(&["join", &ticket, "--json", "--run", "run", "--threads", "1"]);
    starter.wait_for_line(|line| line.contains(r#""event":"epoch","epoch":1"#));
    joiner.signal(&["STOP"]);
    // The first question may come before the starter has noticed that it has to wait.
    let waiting = |_| {
        let status = first.succeed(&["status", &ticket, "--json"]);
        let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
        let starter = status.as_array().expect("a list").iter().find(|peer| join_index(&peer["peer"]) == 0)?.clone();
        (starter["waits_for"][0]["peer"].as_u64()? >> 40 == 1).then_some((starter, status))
    };
    let (waiting, all) = (0..5).find_map(waiting).expect("who is there waits for who has stopped");
    let addresses = waiting["members"].as_array().expect("a list");
    let joiner = addresses.iter().find(|member| join_index(&member[0]) == 1).expect("both are members");
    assert_eq!(waiting["waits_for"][0]["address"], joiner[1], "{all}");
    assert!(waiting["step"].as_u64().is_some_and(|step| step > 40), "{all}");
    assert!(waiting["since_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{all}");
}

#[test]
fn who_has_another_ticket_is_refused_in_clear_words_on_both_sides() {
    let (first, second, third) = (Place::new(), Place::new(), Place::new());
    let (mut starter, ticket) = start(&first, &["--listen", "127.0.0.1:0"]);
    let (_other, other_ticket) = start(&second, &["--listen", "127.0.0.1:0"]);
    // The address of the first swarm with the secret of the second.
    let mixed = mix(&ticket, &other_ticket);
    let said = third.fail(&["join", &mixed, "--run", "run"]);
    assert!(said.contains("another swarm") && said.contains("ticket"), "{said}");
    let noted = starter.wait_for_line(|line| line.contains("was not let in"));
    assert!(noted.contains("another swarm"), "{noted}");
    let damaged = &ticket[..ticket.len() - 3];
    let said = third.run(&["join", damaged]).stderr;
    assert!(said.contains("ticket"), "{said}");
}

/// One ticket's addresses with another's secret.
pub(crate) fn mix(addresses: &str, secret: &str) -> String {
    use nettorrent_net::ticket::Ticket;
    let (addresses, secret): (Ticket, Ticket) =
        (addresses.parse().expect("a ticket"), secret.parse().expect("a ticket"));
    Ticket { addresses: addresses.addresses, ..secret }.to_string()
}

#[test]
fn a_swarm_of_one_goes_on_from_its_checkpoint() {
    let place = Place::new();
    let (mut starter, _) = start(&place, &["--listen", "127.0.0.1:0", "--wait-for", "1", "--epochs", "100"]);
    starter.wait_for_line(|line| line.contains(r#""event":"epoch","epoch":2"#));
    starter.signal(&["INT"]);
    assert_eq!(starter.finish().code, Some(130));
    let again = ["start", "--resume", "run", "--epochs", "4", "--wait-for", "1", "--listen", "127.0.0.1:0", "--json"];
    let events = place.succeed(&again).json();
    let epochs: Vec<u64> =
        events.iter().filter(|event| is(event, "epoch")).filter_map(|event| event["epoch"].as_u64()).collect();
    assert!(epochs.last() == Some(&4) && epochs[0] >= 3, "{epochs:?}");
}

#[test]
fn a_simulation_of_many_peers_is_the_same_twice() {
    let place = Place::new();
    let arguments =
        ["simulate", "--peers", "40", "--epochs", "1", "--link", "100mbit/20ms", "--json", "--threads", "2"];
    let records = |outcome: &str| -> Vec<String> {
        outcome.lines().filter(|line| !line.contains("took_s")).map(str::to_owned).collect()
    };
    let once = records(&place.succeed(&arguments).stdout);
    assert!(once.len() > 40);
    assert_eq!(once, records(&place.succeed(&arguments).stdout));
}

/// What a run's epochs gave, with all digits.
fn losses(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| is(event, "epoch")).map(|event| event["test_loss"].to_string()).collect()
}

#[test]
fn a_shared_directory_changes_nothing_but_the_way_and_is_empty_in_the_end() {
    // Its vectors are 1.2 MB long; in pieces as they travel, still long enough for files.
    let settings = ["--model", "mlp:512,512", "--peers", "2", "--epochs", "2", "--threads", "1"];
    let settings: Vec<&str> = settings.into_iter().chain(["--set", "swarm.work=equal"]).collect();
    let place = Place::new();
    std::fs::create_dir(place.path("shared")).expect("a folder");
    std::fs::write(place.path("shared/notes.txt"), "not ours").expect("a file");
    let with: Vec<&str> = settings.iter().copied().chain(["--shared-dir", "shared"]).collect();
    let shared = train(&place, &with);
    let told = shared.iter().filter(|event| is(event, "note")).filter_map(|event| event["text"].as_str());
    assert_eq!(told.filter(|text| text.contains("what is large goes through it")).count(), 2, "{shared:?}");
    let left: Vec<_> = std::fs::read_dir(place.path("shared")).expect("a folder").collect();
    assert!(left.len() == 1 && place.path("shared/notes.txt").exists(), "{left:?}");
    assert_eq!(losses(&shared), losses(&train(&Place::new(), &settings)));
}

#[cfg(unix)]
#[test]
fn peers_on_several_machines_may_share_a_directory_under_different_paths() {
    let (first, second) = (Place::new(), Place::new());
    std::fs::create_dir(first.path("shared")).expect("a folder");
    std::os::unix::fs::symlink(first.path("shared"), second.path("mounted")).expect("a link");
    let (mut starter, ticket) = start(
        &first,
        &["--listen", "127.0.0.1:0", "--model", "mlp:512,512", "--epochs", "3", "--shared-dir", "shared"],
    );
    let mut joiner = second.start(&["join", &ticket, "--json", "--run", "run", "--shared-dir", "mounted"]);
    for running in [&mut starter, &mut joiner] {
        running.wait_for_line(|line| line.contains("what is large goes through it"));
    }
    for running in [starter, joiner] {
        let outcome = running.finish();
        assert!(outcome.code == Some(0) && outcome.stdout.contains(r#""reason":"finished""#), "{}", outcome.stderr);
    }
    assert_eq!(std::fs::read_dir(first.path("shared")).expect("a folder").count(), 0);
}

#[test]
fn a_shared_directory_that_is_not_there_is_said_before_anything_begins() {
    let place = Place::new();
    for command in [&["train", "--peers", "2"][..], &["start"]] {
        let all: Vec<&str> = command.iter().copied().chain(["--shared-dir", "nowhere"]).collect();
        let said = place.fail(&all);
        assert!(said.contains("the shared directory nowhere cannot be used"), "{said}");
    }
    assert!(!place.path("runs").exists(), "nothing was begun");
}

#[test]
fn wrong_words_are_answered_with_what_would_be_right() {
    let place = Place::new();
    let said = place.fail(&["train", "--peers", "2", "--strategy", "ring-allreduce"]);
    assert!(said.contains("did you mean `ring-all-reduce`?"), "{said}");
    let said = place.fail(&["train", "--peers", "2", "--set", "swarm.options.frm=naive"]);
    assert!(said.contains("did you mean `form`?"), "{said}");
    let said = place.run(&["train", "--peers", "2", "--link", "fast"]).stderr;
    assert!(said.contains("100mbit"), "{said}");
    let said = place.fail(&["train", "--peers", "20", "--set", "swarm.split=class"]);
    assert!(said.contains("class"), "{said}");
    assert!(!place.path("runs").exists(), "nothing was begun");
}

#[test]
fn processes_can_be_made_slow_one_by_one() {
    let place = Place::new();
    let speeds = ["--speed", "4000", "--speed", "2000"];
    let settings = ["train", "--peers", "2", "--epochs", "1", "--threads", "1", "--run", "run", "--json"];
    place.succeed(&[&settings[..], &speeds].concat());
    let epoch = events(&place.path("run"), "epoch").remove(0);
    for (peer, speed) in epoch["peers"].as_array().expect("what each did").iter().zip([4000.0, 2000.0]) {
        let number = |name: &str| peer[name].as_f64().expect("a number");
        assert!(number("n_samples") / number("compute_s") <= 1.01 * speed, "{peer}");
    }
    assert!(place.run(&["train", "--peers", "2", "--speed", "fast"]).stderr.contains("500,50@30s"));
}
