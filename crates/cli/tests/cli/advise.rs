//! Advice: every strategy is judged, links are measured, and what makes no sense is refused.

use serde_json::Value;

use crate::program::Place;

fn names(place: &Place) -> Vec<String> {
    let list: Value = serde_json::from_str(&place.succeed(&["strategies", "--json"]).stdout).expect("JSON");
    let name = |strategy: &Value| strategy["name"].as_str().expect("a name").to_owned();
    list.as_array().expect("a list").iter().map(name).collect()
}

fn advice(place: &Place, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["advise", "--json", "--threads", "1"].into_iter().chain(arguments.iter().copied()).collect();
    serde_json::from_str(&place.succeed(&all).stdout).expect("one JSON object")
}

#[test]
fn every_strategy_is_judged_and_one_is_taken() {
    let place = Place::new();
    let text = place.succeed(&["advise", "--link", "10mbit/20ms", "--peers", "3", "--threads", "1"]).stdout;
    let told = advice(&place, &["--link", "10mbit/20ms", "--peers", "3"]);
    let judged = told["strategies"].as_array().expect("a list");
    let mut found: Vec<&str> = judged.iter().filter_map(|one| one["strategy"].as_str()).collect();
    let seconds: Vec<f64> = judged.iter().filter_map(|one| one["seconds"].as_f64()).collect();
    assert!(seconds.len() == judged.len() && seconds.is_sorted(), "{seconds:?}");
    found.sort_unstable();
    assert_eq!(found, names(&place));
    for name in found {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is not in\n{text}");
    }
    let taken = told["advice"]["strategy"].as_str().expect("a name");
    assert_ne!(taken, "ring-all-reduce", "on such links nobody exchanges whole gradients after every batch");
    assert_eq!(told["command"], format!("nettorrent start --threads 1 --strategy {taken} --wait-for 3"));
    assert!(text.contains("Take ") && text.contains("nettorrent start --threads 1 --strategy"), "{text}");
    assert_eq!((&told["link"], &told["n_peers"]), (&"10mbit/20ms".into(), &3.into()));
    assert!(told["batch_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{told}");
}

#[test]
fn epochs_to_a_target_are_counted() {
    let place = Place::new();
    let link = ["--link", "1gbit/1ms", "--peers", "2", "--epochs", "2", "--set", "model=\"mlp:16\"", "--target"];
    let told = advice(&place, &[&link[..], &["0.2"]].concat());
    let judged = told["strategies"].as_array().expect("a list");
    assert!(judged.iter().any(|one| one["epochs"].as_u64().is_some_and(|epochs| (1..=2).contains(&epochs))), "{told}");
    let text = place.succeed(&[&["advise", "--threads", "1"], &link[..], &["1.0"]].concat()).stdout;
    assert!(text.contains("No strategy got there") && text.contains("when the job's epochs were over"), "{text}");
    let text = place.succeed(&[&["advise", "--pilot-seconds", "0"], &link[..], &["1.0"]].concat()).stdout;
    assert!(text.contains("when its --pilot-seconds were over"), "{text}");
}

#[test]
fn links_of_a_running_swarm_are_measured() {
    let place = Place::new();
    let start = ["start", "--json", "--run", "run", "--wait-for", "2", "--listen", "127.0.0.1:0", "--threads", "1"];
    let mut running = place.start(&start);
    let line = running.wait_for_line(|line| line.contains(r#""event":"ticket""#));
    let event: Value = serde_json::from_str(&line).expect("JSON");
    let ticket = event["ticket"].as_str().expect("a ticket");
    let told = advice(&place, &["--ticket", ticket, "--peers", "2"]);
    let links = told["links"].as_array().expect("a list");
    assert_eq!(links.len(), 1, "{told}");
    assert!(links[0]["speed"]["bytes_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{told}");
    assert!(links[0]["speed"]["round_trip_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{told}");
    assert!(told["link"].as_str().is_some_and(|link| link.contains("bit")), "{told}");
    assert!(told["advice"]["strategy"].is_string(), "{told}");
    running.signal(&["KILL"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    assert!(place.fail(&["advise"]).contains("--link 100mbit/20ms"));
    let link = ["advise", "--link", "1gbit"];
    assert!(place.fail(&[&link[..], &["--target", "97"]].concat()).contains("must be a share"));
    assert!(place.fail(&[&link[..], &["--pilot-seconds=-1"]].concat()).contains("--pilot-seconds"));
    for wrong in [&["--link", "fast"][..], &["--peers", "1", "--link", "1gbit"], &["--link", "1gbit", "--plain"]] {
        let outcome = place.run(&[&["advise"], wrong].concat());
        assert_eq!(outcome.code, Some(2), "{wrong:?}: {}{}", outcome.stdout, outcome.stderr);
    }
}
