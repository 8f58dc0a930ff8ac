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

fn rows(told: &Value) -> &Vec<Value> {
    told["strategies"].as_array().expect("a list")
}

#[test]
fn without_pilots_every_strategy_is_ranked_by_its_speed_beside_one_machine() {
    let place = Place::new();
    let link = ["--link", "10mbit/20ms", "--peers", "3", "--no-pilots"];
    let text = place.succeed(&[&["advise", "--threads", "1"], &link[..]].concat()).stdout;
    let told = advice(&place, &link);
    let mut found: Vec<&str> = rows(&told).iter().filter_map(|one| one["strategy"].as_str()).collect();
    let seconds: Vec<f64> = rows(&told).iter().filter_map(|one| one["seconds"].as_f64()).collect();
    assert!(seconds.len() == found.len() && seconds.is_sorted(), "{seconds:?}");
    found.sort_unstable();
    assert_eq!(found, names(&place));
    for name in found.into_iter().chain(["alone"]) {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name} is not in\n{text}");
    }
    assert!(text.contains("Speed only: whether strategies learn was not tested"), "{text}");
    assert_eq!((&told["is_learning_tested"], &told["target"]), (&false.into(), &Value::Null));
    let (alone, epochs) = (&told["alone"], told["alone"]["epochs"].as_f64().expect("as the job says"));
    let epoch_s = told["batch_s"].as_f64().expect("a time") * alone["rounds_per_epoch"].as_f64().expect("a number");
    let alone_s = alone["seconds"].as_f64().expect("a time");
    assert!((alone_s / (epochs * epoch_s) - 1.0).abs() < 1e-6, "{alone}");
    assert_eq!((&alone["bytes_per_peer"], &alone["messages_s"]), (&0.0.into(), &0.0.into()));
    assert_eq!((&told["link"], &told["n_peers"]), (&"10mbit/20ms".into(), &3.into()));
    for rate in [&told["batch_s"], &told["messages"]["bytes_per_s"], &told["messages"]["frame_s"]] {
        assert!(rate.as_f64().is_some_and(|rate| rate > 0.0), "{told}");
    }
}

#[test]
fn peers_of_this_machine_need_no_link() {
    let place = Place::new();
    let told = advice(&place, &["--here", "--peers", "2", "--no-pilots", "--set", "model=\"mlp:16\""]);
    assert_eq!((&told["link"], &told["n_peers"]), (&"0s".into(), &2.into()));
    assert!(told["slowdown"].as_f64().is_some_and(|slowdown| (1.0..=2.0).contains(&slowdown)), "{told}");
    assert_eq!(place.run(&["advise", "--here", "--ticket", "nt1"]).code, Some(2));
}

#[test]
fn one_machine_is_recommended_where_links_are_slow() {
    let place = Place::new();
    let link = ["--link", "1mbit/500ms", "--peers", "2", "--epochs", "2", "--seeds", "1", "--budget", "600"];
    let told = advice(&place, &link);
    assert_eq!((&told["recommended"], &told["advice"]["strategy"]), (&"alone".into(), &"alone".into()), "{told}");
    assert_eq!(told["command"], "nettorrent train --epochs 2 --threads 1");
    assert_eq!((&told["alone"]["learning"], &told["alone"]["n_reached"]), (&"reached".into(), &1.into()), "{told}");
    let target = told["target"].as_f64().expect("what one machine reaches, and a little less");
    for one in rows(&told) {
        if one["learning"] == "too-slow" {
            assert!(one["seconds"].is_null() && one["quality"].is_null(), "{one}");
            continue;
        }
        let accuracy = one["quality"].as_f64().expect("there is time for the digits");
        let is_reached = one["learning"] == "reached";
        assert_eq!((is_reached, one["seconds"].is_null()), (accuracy >= target, accuracy < target), "{one}");
    }
}

#[test]
fn several_peers_are_recommended_only_if_they_are_sooner_at_the_target() {
    let place = Place::new();
    let link = ["--link", "10gbit/10us", "--peers", "4", "--epochs", "3", "--seeds", "2", "--set", "model=\"mlp:16\""];
    let told = advice(&place, &[&link[..], &["--target", "0.2"]].concat());
    assert_eq!(told["target"], 0.2);
    let taken = told["recommended"].as_str().expect("the target is low");
    let alone_s = told["alone"]["seconds"].as_f64().expect("one machine gets there");
    if let Some(best) = rows(&told).iter().find(|one| one["strategy"] == taken) {
        assert!(best["seconds"].as_f64().is_some_and(|seconds| seconds < alone_s), "{best}");
        assert!(told["command"].as_str().is_some_and(|words| words.ends_with(&format!("{taken} --wait-for 4"))));
    } else {
        assert_eq!(taken, "alone");
    }
    assert!(rows(&told).iter().any(|one| one["n_reached"] == 2 && one["n_seeds"] == 2), "{told}");
}

#[test]
fn what_does_not_get_there_is_named() {
    let place = Place::new();
    let link = ["--link", "1gbit/1ms", "--peers", "2", "--epochs", "1", "--seeds", "1", "--set", "model=\"mlp:16\""];
    let text = place.succeed(&[&["advise", "--threads", "1", "--target", "1.0"], &link[..]].concat()).stdout;
    assert!(text.contains("threshold does not learn here: "), "{text}");
    assert!(text.contains("alone does not learn here: ") && text.contains("Nothing got to the target"), "{text}");
    let text = place.succeed(&[&["advise", "--threads", "1", "--budget", "0"], &link[..]].concat()).stdout;
    assert!(text.contains("threshold was not judged for want of time"), "{text}");
    assert!(text.contains("There was not enough time to recommend anything"), "{text}");
}

#[test]
fn links_of_a_running_swarm_are_measured() {
    let place = Place::new();
    let start = ["start", "--json", "--run", "run", "--wait-for", "2", "--listen", "127.0.0.1:0", "--threads", "1"];
    let mut running = place.start(&start);
    let line = running.wait_for_line(|line| line.contains(r#""event":"ticket""#));
    let event: Value = serde_json::from_str(&line).expect("JSON");
    let ticket = event["ticket"].as_str().expect("a ticket");
    let told = advice(&place, &["--ticket", ticket, "--peers", "2", "--no-pilots"]);
    let links = told["links"].as_array().expect("a list");
    assert_eq!(links.len(), 1, "{told}");
    assert!(links[0]["speed"]["bytes_per_s"].as_f64().is_some_and(|rate| rate > 0.0), "{told}");
    assert!(links[0]["speed"]["round_trip_s"].as_f64().is_some_and(|seconds| seconds > 0.0), "{told}");
    assert!(told["link"].as_str().is_some_and(|link| link.contains("bit")), "{told}");
    assert!(told["recommended"].is_string(), "{told}");
    running.signal(&["KILL"]);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    assert!(place.fail(&["advise"]).contains("--link 100mbit/20ms"));
    let link = ["advise", "--link", "1gbit"];
    assert!(place.fail(&[&link[..], &["--target", "97"]].concat()).contains("must be a share"));
    assert!(place.fail(&[&link[..], &["--budget=-1"]].concat()).contains("--budget"));
    for wrong in [
        &["--link", "fast"][..],
        &["--peers", "1", "--link", "1gbit"],
        &["--link", "1gbit", "--plain"],
        &["--link", "1gbit", "--seeds", "0"],
        &["--link", "1gbit", "--no-pilots", "--target", "0.9"],
    ] {
        let outcome = place.run(&[&["advise"], wrong].concat());
        assert_eq!(outcome.code, Some(2), "{wrong:?}: {}{}", outcome.stdout, outcome.stderr);
    }
}
