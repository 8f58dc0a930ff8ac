//! What a run says about its peers' machines, bytes and waiting.

use std::collections::BTreeSet;

use nettorrent_swarm::strategies::STRATEGIES;
use nettorrent_swarm::strategy::{CostQuestion, Payload};
use serde_json::Value;

use crate::program::{Place, events};

/// What TLS 1.3 adds to a record, and how long records are at most.
const RECORD_OVERHEAD: f64 = 22.0;
const RECORD_LEN: f64 = 16384.0;

fn train(place: &Place, arguments: &[&str]) {
    let all: Vec<&str> = ["train", "--run", "run", "--threads", "1"].iter().chain(arguments).copied().collect();
    place.succeed(&all);
}

fn number(event: &Value, field: &str) -> f64 {
    event[field].as_f64().unwrap_or_else(|| panic!("{event} has no {field}"))
}

fn sum(events: &[Value], field: &str) -> f64 {
    events.iter().map(|event| number(event, field)).sum()
}

fn peers(events: &[Value]) -> BTreeSet<u64> {
    events.iter().filter_map(|event| event["peer"].as_u64()).collect()
}

#[test]
fn sockets_carry_what_the_formulas_say_and_a_hundredth_more_at_most() {
    const N_PEERS: usize = 3;
    for spec in STRATEGIES {
        let mut options = (spec.defaults)();
        if options.contains_key("local_steps") {
            options.insert("local_steps".into(), toml::Value::Integer(1));
        }
        let strategy = (spec.build)(&options).expect("an exchange after each step is allowed");
        let payload = strategy.round_plan().payload;
        if strategy.cost_is_upper_bound() || payload == Payload::Updates {
            // What it says depends on the numbers, or on the time: the formula is a bound, which the simulator holds.
            continue;
        }
        let place = Place::new();
        let settings = ["--peers", "3", "--model", "mlp:512,512", "--epochs", "2", "--set", "batch=320"];
        let chosen = ["--strategy", spec.name, "--set", "swarm.options.local_steps=1"];
        train(&place, &[&settings[..], &chosen].concat());

        let run = place.path("run");
        let n_params = number(&events(&run, "start")[0], "n_params") as usize;
        let rounds = number(events(&run, "epoch").last().expect("an epoch"), "step") as u32;
        let whole = 0..n_params;
        let cost = |round| {
            let buckets = std::slice::from_ref(&whole);
            strategy.cost(&CostQuestion { n_peers: N_PEERS, buckets, n_params, round, site_sizes: &[] }).total
        };
        let expected = (0..rounds).map(cost).sum::<u64>() as f64;
        let told = events(&run, "resources");
        let (said, heard) = (sum(&told, "payload_sent_bytes"), sum(&told, "payload_received_bytes"));
        // Where replicas differ they are brought together after each of the two epochs, which is outside of the formula; it
        // takes no more than an all-reduce, or than the strategy's dearest round.
        let all_reduce = 8 * (N_PEERS - 1) * n_params;
        let dearest = (0..rounds).map(cost).fold(all_reduce as u64, u64::max);
        let together = if payload == Payload::Gradients { 0.0 } else { 2.0 * dearest as f64 };
        assert!(
            (expected..=expected + together).contains(&said),
            "{}: {said} bytes in {rounds} rounds, and not {expected}",
            spec.name
        );
        assert_eq!(said, heard, "{}", spec.name);

        let sealed = said * (1.0 + RECORD_OVERHEAD / RECORD_LEN);
        for field in ["net_sent_bytes", "net_received_bytes"] {
            let carried = sum(&told, field);
            assert!(
                carried > sealed && carried < 1.01 * sealed,
                "{}: {field} {carried}, and not about {sealed}",
                spec.name
            );
        }
    }
}

#[test]
fn each_peer_tells_what_it_takes_and_for_whom_it_waits() {
    let place = Place::new();
    train(&place, &["--peers", "2", "--epochs", "6"]);
    let run = place.path("run");
    let told = events(&run, "resources");
    let members = peers(&events(&run, "peer"));
    assert_eq!((peers(&told), members.len()), (members.clone(), 2));
    assert!(told.iter().all(|event| number(event, "rss_bytes") > 1e6 && number(event, "elapsed_s") > 0.0), "{told:?}");
    assert!(sum(&told, "cpu_percent") > 0.0 && sum(&told, "net_sent_bytes") > sum(&told, "payload_sent_bytes"));

    let times = events(&run, "times");
    let mut waited = 0.0;
    for event in &times {
        let waits = event["waits"].as_array().cloned().unwrap_or_default();
        let all = sum(&waits, "seconds");
        assert!(all <= number(event, "wait_s") + 1e-6, "{event}");
        let other: BTreeSet<u64> = members.iter().copied().filter(|&peer| event["peer"] != peer).collect();
        assert!(peers(&waits).is_subset(&other), "a peer waits for the other: {event}");
        waited += all;
    }
    // In a ring there is always somebody whose part has to come next.
    assert!(waited > 0.9 * sum(&times, "wait_s"), "{waited} of {times:?}");
    // Epochs are far shorter than a second here, and have learning rates all the same.
    assert!(events(&run, "epoch").iter().all(|event| number(event, "lr") > 0.0));
}

#[test]
fn simulated_peers_tell_for_whom_they_wait() {
    let place = Place::new();
    let settings = ["--epochs", "1", "--link", "100mbit/20ms", "--sample-ms", "1"];
    let simulate = |run: &str, others: &[&str]| {
        place.succeed(&[&["simulate", "--run", run], others, &settings[..]].concat());
        events(&place.path(run), "times")
    };
    for spec in STRATEGIES {
        let times = simulate(spec.name, &["--peers", "3", "--strategy", spec.name]);
        let members = peers(&times);
        assert_eq!(members.len(), 3, "{}", spec.name);
        let mut waited = 0.0;
        for event in &times {
            let waits = event["waits"].as_array().cloned().unwrap_or_default();
            let all = sum(&waits, "seconds");
            assert!(all <= number(event, "wait_s") + 1e-6, "{}: {event}", spec.name);
            let other: BTreeSet<u64> = members.iter().copied().filter(|&peer| event["peer"] != peer).collect();
            assert!(peers(&waits).is_subset(&other), "{}: a peer waits for others: {event}", spec.name);
            waited += all;
        }
        // Where thinking takes no time, a peer that waits knows for whom. But the best peer is found by scoring a few samples,
        // which every peer does itself; and who trains asynchronously counts its wait for the first view, which is nobody's.
        let payload = (spec.build)(&(spec.defaults)()).expect("the defaults are right").round_plan().payload;
        if spec.name != "best-peer" && payload != Payload::Updates {
            let waits_s = sum(&times, "wait_s");
            assert!(waits_s > 0.0 && waited > 0.9 * waits_s, "{}: {waited} of {waits_s}", spec.name);
        }
    }
    let many = simulate("many", &["--peers", "33"]);
    assert!(sum(&many, "wait_s") > 0.0 && many.iter().all(|event| event["waits"].is_null()), "too many to tell");
}

#[test]
fn simulated_epochs_take_as_long_as_their_training() {
    let place = Place::new();
    place.write("slow.toml", "[stragglers]\nshare = 0.5\nfactor = 4.0\n");
    for (run, scenario) in [("even", &[][..]), ("uneven", &["--scenario", "slow.toml"][..])] {
        let settings = ["simulate", "--run", run, "--peers", "2", "--epochs", "3", "--sample-ms", "1"];
        place.succeed(&[&settings[..], scenario].concat());
        let epochs = events(&place.path(run), "epoch");
        let [first, second, third] = epochs.as_slice() else { panic!("there are epochs") };
        assert!(number(first, "test_seconds") > 0.0, "{epochs:?}");
        // All epochs train as many samples in as many rounds; in the first, nobody knows at first who is slow. The test before them is
        // far longer than these shares.
        let ratio = |epoch: &Value| number(epoch, "seconds") / number(second, "seconds");
        assert!((ratio(third) - 1.0).abs() < 0.01 && (ratio(first) - 1.0).abs() < 0.1, "{run}: {epochs:?}");
    }
}

#[test]
fn a_process_alone_tells_what_it_takes_and_nothing_is_measured_if_nobody_wants_it() {
    let place = Place::new();
    train(&place, &["--epochs", "2"]);
    let told = events(&place.path("run"), "resources");
    assert!(told.iter().all(|event| event["peer"] == 0 && number(event, "net_sent_bytes") == 0.0), "{told:?}");
    assert!(sum(&told, "cpu_percent") > 0.0 && sum(&told, "elapsed_s") > 0.0, "{told:?}");
    let stop = &events(&place.path("run"), "stop")[0];
    assert!(sum(&told, "elapsed_s") <= number(stop, "seconds") + 1.0, "{told:?} until {stop}");

    for peers in ["0", "2"] {
        let place = Place::new();
        train(&place, &["--epochs", "2", "--set", &format!("swarm.peers={peers}"), "--no-measuring"]);
        assert!(events(&place.path("run"), "resources").is_empty());
        assert!(events(&place.path("run"), "times").iter().all(|event| event["waits"].is_null()));
    }
}

#[test]
fn who_wants_tensorboard_gets_a_file_of_each_session() {
    let place = Place::new();
    let files = || -> Vec<String> {
        let entries = std::fs::read_dir(place.path("run/tensorboard")).expect("a folder");
        let texts = entries.map(|entry| std::fs::read(entry.expect("a file").path()).expect("a file"));
        texts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).collect()
    };
    train(&place, &["--epochs", "1", "--tensorboard"]);
    for tag in ["test/accuracy", "test/loss", "train/loss", "train/lr", "train/samples per s", "peer 0/cpu %"] {
        assert!(files()[0].contains(tag), "{tag}");
    }
    place.succeed(&["resume", "run", "--epochs", "2"]);
    assert_eq!(files().len(), 1, "nobody asked for it");
    // When there is nothing to do, nothing is written.
    place.succeed(&["resume", "run", "--tensorboard"]);
    assert_eq!(files().len(), 1);
    place.succeed(&["resume", "run", "--epochs", "3", "--peers", "2", "--tensorboard"]);
    let swarm = files().into_iter().find(|text| text.contains("peer 1/"));
    let swarm = swarm.expect("a file of the swarm");
    for tag in ["test/accuracy", "peer 1/memory bytes", "peer 1/sent bytes per s", "peer 1/wait %"] {
        assert!(swarm.contains(tag), "{tag}");
    }
}
