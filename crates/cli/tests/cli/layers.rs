//! Layer networks of real processes: each holds some layers, and what is kept is the whole network.

use std::path::Path;

use serde_json::Value;

use crate::program::{Place, Running, newest_checkpoint, signal};

const STAGES: &str = "pipeline.stages=[{layers=2,tensor_shards=2},{layers=4},{layers=4}]";

/// The numbers of a checkpoint's tensors, whatever their names.
fn numbers(checkpoint: &Path) -> Vec<f32> {
    let bytes = std::fs::read(checkpoint.join("model.safetensors")).expect("a checkpoint");
    let tensors = safetensors::SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut named: Vec<_> = tensors.tensors();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let of = |data: &[u8]| data.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect::<Vec<f32>>();
    named.iter().flat_map(|(_, tensor)| of(tensor.data())).collect()
}

fn assert_close(a: &Path, b: &Path) {
    let (a, b) = (numbers(a), numbers(b));
    assert_eq!(a.len(), b.len());
    let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-4, "{apart}");
}

fn train(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let all: Vec<&str> =
        ["train", "--json", "--threads", "1", "--run", "run"].into_iter().chain(arguments.iter().copied()).collect();
    place.succeed(&all).json()
}

#[test]
fn four_processes_with_some_layers_each_learn_what_one_with_all_does() {
    let (layers, whole) = (Place::new(), Place::new());
    let events = train(&layers, &["--peers", "4", "--epochs", "2", "--set", STAGES]);
    assert_eq!(events.last().expect("an end")["reason"], "finished");
    train(&whole, &["--peers", "1", "--epochs", "2"]);
    assert_close(&newest_checkpoint(&layers.path("run")), &newest_checkpoint(&whole.path("run")));
    // A stranger to layers tests the same network.
    let told = events.iter().rfind(|event| event["event"] == "epoch").expect("an epoch");
    let eval = layers.succeed(&["eval", "run", "--json"]).json();
    assert!((eval[0]["accuracy"].as_f64().unwrap() - told["test_accuracy"].as_f64().unwrap()).abs() < 1e-9);
}

#[test]
fn a_run_goes_on_from_its_checkpoint_whoever_holds_what() {
    let (first, second) = (Place::new(), Place::new());
    let schedule = ["--set", "schedule.kind=constant"];
    train(&first, &[&["--peers", "4", "--epochs", "3", "--set", STAGES], &schedule[..]].concat());
    train(&second, &[&["--peers", "4", "--epochs", "1", "--set", STAGES], &schedule[..]].concat());
    let other = "pipeline.stages=[{layers=6,batch_shards=2},{layers=4}]";
    second.succeed(&["resume", "run", "--json", "--epochs", "2", "--peers", "3", "--set", other]);
    second.succeed(&[
        "resume",
        "run",
        "--json",
        "--epochs",
        "3",
        "--peers",
        "2",
        "--set",
        "pipeline.stages=[{layers=6},{layers=4}]",
    ]);
    assert_close(&newest_checkpoint(&first.path("run")), &newest_checkpoint(&second.path("run")));
}

#[test]
fn a_lost_process_s_layers_go_on_elsewhere() {
    for victim in [0_usize, 2] {
        let place = Place::new();
        let settings = ["--set", STAGES, "--set", "pipeline.snapshot_every=20", "--set", "swarm.deadline=1"];
        let arguments =
            [&["train", "--json", "--run", "run", "--peers", "4", "--epochs", "8", "--threads", "1"], &settings[..]];
        let mut running = place.start(&arguments.concat());
        let pid = |event: &Value| event["pid"].as_u64().expect("a process") as u32;
        let peers: Vec<Value> = (0..4).map(|_| running.wait_for("peer")).collect();
        let join_index = |event: &Value| event["peer"].as_u64().expect("a name") >> 40;
        let victim = peers.iter().find(|event| join_index(event) == victim as u64).expect("it is there");
        running.wait_for_line(|line| line.contains(r#""event":"epoch","epoch":2"#));
        assert!(signal(pid(victim), &["KILL"]));
        let last = running.wait_for_line(|line| line.contains(r#""event":"stop""#));
        assert!(last.contains(r#""reason":"finished""#), "{last}");
        let eval = place.succeed(&["eval", "run", "--json"]).json();
        assert!(eval[0]["accuracy"].as_f64().is_some_and(|accuracy| accuracy > 0.9), "{eval:?}");
    }
}

#[test]
fn who_stood_by_and_is_left_alone_goes_on_from_the_last_checkpoint() {
    let place = Place::new();
    let stages = "pipeline.stages=[{layers=6},{layers=4}]";
    let settings = ["--set", stages, "--set", "swarm.deadline=1", "--set", "schedule.kind=constant"];
    let arguments =
        [&["train", "--json", "--run", "run", "--peers", "3", "--epochs", "8", "--threads", "1"], &settings[..]];
    let mut running = place.start(&arguments.concat());
    let peers: Vec<Value> = (0..3).map(|_| running.wait_for("peer")).collect();
    running.wait_for_line(|line| line.contains(r#""event":"checkpoint""#) && line.contains(r#""epoch":2"#));
    let [mut holders, mut last] = [Vec::new(), Vec::new()];
    for peer in &peers {
        let join_index = peer["peer"].as_u64().expect("a name") >> 40;
        if join_index < 2 { holders.push(peer) } else { last.push(peer) }
    }
    for holder in holders {
        assert!(signal(holder["pid"].as_u64().expect("a process") as u32, &["KILL"]));
    }
    // It does not begin anew: the round in which it goes on is one of a later epoch.
    let view = loop {
        let view = running.wait_for("view");
        if view["members"].as_array().is_some_and(|members| members.len() == 1) {
            break view;
        }
    };
    assert_eq!(view["peer"], last[0]["peer"]);
    assert!(view["round"].as_u64().is_some_and(|round| round > 0), "{view}");
    let stop = running.wait_for_line(|line| line.contains(r#""event":"stop""#));
    assert!(stop.contains(r#""reason":"finished","epoch":8"#), "{stop}");
    assert_eq!(running.finish().code, Some(0));
    let eval = place.succeed(&["eval", "run", "--json"]).json();
    assert!(eval[0]["accuracy"].as_f64().is_some_and(|accuracy| accuracy > 0.9), "{eval:?}");
}

/// Starts a swarm that waits for peers; the process and its ticket.
fn start(place: &Place, arguments: &[&str]) -> (Running, String) {
    let all: Vec<&str> = ["start", "--json", "--run", "run", "--listen", "127.0.0.1:0", "--threads", "1"]
        .into_iter()
        .chain(arguments.iter().copied())
        .collect();
    let mut running = place.start(&all);
    let event = running.wait_for("ticket");
    (running, event["ticket"].as_str().expect("a ticket").to_owned())
}

#[test]
fn machines_join_by_ticket_and_the_first_keeps_the_whole() {
    let (first, second, third) = (Place::new(), Place::new(), Place::new());
    let settings = [
        "--wait-for",
        "3",
        "--epochs",
        "3",
        "--set",
        "pipeline.stages=[{layers=2},{layers=4},{layers=4}]",
        "--set",
        "pipeline.in_flight=2",
    ];
    let (mut starter, ticket) = start(&first, &settings);
    let joiners =
        [&second, &third].map(|place| place.start(&["join", &ticket, "--json", "--run", "run", "--threads", "1"]));
    starter.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    for mut joiner in joiners {
        joiner.wait_for_line(|line| line.contains(r#""reason":"finished""#));
    }
    let eval = first.succeed(&["eval", "run", "--json"]).json();
    assert!(eval[0]["accuracy"].as_f64().is_some_and(|accuracy| accuracy > 0.9), "{eval:?}");
}

#[test]
fn what_cannot_be_shared_out_is_explained() {
    let place = Place::new();
    for (setting, told) in [
        ("pipeline.stages=[{layers=3}]", "the stages have 3 layers together, but the model has 10"),
        ("pipeline.stages=[{layers=5},{layers=5,tensor_shards=2}]", "cannot be split into tensor shards"),
        ("pipeline.stages=[{layers=4},{layers=2},{layers=4}]", "none of its layers has parameters"),
        ("pipeline.stages=[]", "stages"),
        ("pipeline.in_flight=0", "in_flight"),
        ("swarm.strategy=manager-worker", "cannot be combined with layers"),
    ] {
        let said = place.fail(&["train", "--peers", "2", "--run", "run", "--set", STAGES, "--set", setting]);
        assert!(said.contains(told), "{setting}: {said}");
    }
}
