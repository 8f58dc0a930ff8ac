//! Plans of pipelines: chosen or given, shown in tables, in a picture and as JSON, and explained where they cannot be.

use serde_json::Value;

use crate::program::Place;

fn planned(place: &Place, arguments: &[&str]) -> Value {
    let all: Vec<&str> =
        ["plan", "--json", "--compute-speed", "10"].into_iter().chain(arguments.iter().copied()).collect();
    serde_json::from_str(&place.succeed(&all).stdout).expect("one JSON object")
}

#[test]
fn a_plan_is_chosen_and_says_why() {
    let place = Place::new();
    let slow = ["--peers", "6", "--link", "1mbit/5ms", "--set", "pipeline.in_flight=8"];
    let told = planned(&place, &slow);
    let best = told["best"]["estimate"]["samples_per_s"].as_f64().expect("a number");
    assert_ne!(told["best"]["kind"], "data-parallel", "on such links nobody averages whole networks");
    for other in told["runners_up"].as_array().expect("a list") {
        assert!(other["estimate"]["samples_per_s"].as_f64().is_some_and(|rate| rate <= best), "{told}");
    }
    let layers =
        told["stages"].as_array().expect("a list").iter().map(|stage| stage["layers"].as_u64().expect("a number"));
    assert_eq!(layers.sum::<u64>(), 10, "digits-cnn has ten layers");
    assert_eq!(planned(&place, &slow), told, "the same question has the same answer");

    let text = place.succeed(&[&["plan", "--compute-speed", "10"], &slow[..]].concat()).stdout;
    for part in
        ["parameters", "exchange", "stage 0: 0 conv", "┌─", "↓ ↑", "data parallel", "[pipeline]", "in_flight = 8"]
    {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn where_links_are_fast_the_answer_is_data_parallelism() {
    let place = Place::new();
    let text = place.succeed(&["plan", "--peers", "5", "--link", "100gbit", "--compute-speed", "1"]).stdout;
    assert!(text.contains("Data parallelism is best here"), "{text}");
    assert!(text.contains("for samples of 8 x 8 x 1; 5 peers over 100gbit"), "{text}");
    assert!(!text.contains("one peer alone"), "{text}");
    assert!(text.contains("5 replicas of 1 peer each") && text.contains("│ 0 │"), "{text}");
    // A batch of 32 is shared by five, and with one stage there is nothing in flight.
    let pipelined = ["--peers", "5", "--link", "100gbit", "--compute-speed", "1", "--set", "pipeline.in_flight=4"];
    let text = place.succeed(&[&["plan"], &pipelined[..]].concat()).stdout;
    if text.contains("Data parallelism is best here") {
        assert!(text.contains("of each 7 samples for a replica") && !text.contains("in flight"), "{text}");
    }
}

#[test]
fn where_sharing_does_not_pay_one_is_told() {
    let place = Place::new();
    let slow = ["--peers", "4", "--link", "1mbit/50ms"];
    let text = place.succeed(&[&["plan", "--compute-speed", "30"], &slow[..]].concat()).stdout;
    assert!(text.contains("But one peer alone is faster"), "{text}");
    let told = planned(&place, &slow);
    assert!(told["alone"]["estimate"]["samples_per_s"].as_f64() > told["best"]["estimate"]["samples_per_s"].as_f64());
    assert!(planned(&place, &["--peers", "4", "--memory", "1MB"])["alone"].is_null());
}

#[test]
fn the_speed_of_this_machine_is_measured() {
    let place = Place::new();
    let text = place.succeed(&["plan", "--peers", "2", "--threads", "1"]).stdout;
    assert!(text.contains("measured here on 1 thread)"), "{text}");
}

#[test]
fn a_jobs_own_stages_are_shown() {
    let place = Place::new();
    place.write(
        "job.toml",
        "model = \"mlp:200\"\nbatch = 100\n[data]\nname = \"digits\"\n[pipeline]\nin_flight = 2\n\
         stages = [{ layers = 3, batch_shards = 10 }, { layers = 1, batch_shards = 2, tensor_shards = 5 }]\n",
    );
    let told = planned(&place, &["job.toml", "--peers", "20"]);
    assert_eq!((&told["is_given"], &told["best"]["kind"]), (&true.into(), &"mixed".into()));
    assert_eq!(told["stages"][1]["tensor_shards"], 5);
    let text =
        place.succeed(&["plan", "job.toml", "--peers", "20", "--compute-speed", "5", "--svg", "plan.svg"]).stdout;
    assert!(text.contains("samples 90 – 99") && text.contains("the job's own stages"), "{text}");
    let svg = std::fs::read_to_string(place.path("plan.svg")).expect("the figure");
    assert!(svg.starts_with("<svg") && svg.contains("mlp:200 on 20 peers"), "{svg}");
    let text = place.succeed(&["plan", "job.toml", "--peers", "20", "--compute-speed", "5", "--memory", "1kB"]).stdout;
    assert!(text.contains("do not fit"), "{text}");
    let text =
        place.succeed(&["plan", "job.toml", "--peers", "20", "--set", "pipeline=auto", "--compute-speed", "5"]).stdout;
    assert!(text.contains("data parallel"), "{text}");
}

#[test]
fn a_plan_needs_no_data() {
    let place = Place::new();
    let told = planned(&place, &["--model", "resnet50", "--data", "mnist", "--peers", "100", "--link", "100mbit"]);
    assert_eq!(told["n_params"], 25_557_032);
    let text = place
        .succeed(&["plan", "--model", "resnet50", "--data", "mnist", "--compute-speed", "9", "--peers", "8"])
        .stdout;
    assert!(text.contains("as this model usually has them, because") && text.contains("data fetch mnist"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = Place::new();
    for (arguments, parts) in [
        (&["--memory", "1kB"][..], ["no plan for 4 peers fits in 1.0 kB of memory", "use more peers"].as_slice()),
        (&["--set", "pipeline.stages=[{layers=3}]"], &["the stages have 3 layers together, but the model has 10"]),
        (&["--set", "pipeline.stages=[{layers=10, tensor_shards=2}]"], &["pipeline.stages[0]", "cannot be split"]),
        (&["--set", "pipeline.stages=[{layers=10, batch_shards=5}]"], &["5 places, but there are only 4 peers"]),
        (&["--set", "pipeline.link=fast"], &["pipeline.link: \"fast\" is neither a rate nor a delay"]),
        (&["--set", "pipeline.in_fligt=2"], &["Did you mean `in_flight`?"]),
        (&["--set", "pipeline=atuo"], &["Did you mean `auto`?"]),
        (&["--speeds", "1,0"], &["a speed of 0"]),
        (&["--speeds", "1,1,1,1,1"], &["5 speeds for 4 peers"]),
        (&["--compute-speed=-1"], &["--compute-speed -1: must be a number above 0"]),
        (&["--svg", "nowhere/plan.svg", "--compute-speed", "1"], &["cannot write nowhere/plan.svg"]),
    ] {
        let message = place.fail(&[&["plan"], arguments].concat());
        for part in parts {
            assert!(message.contains(part), "{arguments:?}\n{message}");
        }
    }
    for wrong in [&["--memory", "much"][..], &["--link", "fast"], &["--peers", "0"]] {
        assert_eq!(place.run(&[&["plan"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}
