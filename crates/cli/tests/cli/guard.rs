//! Runs that diverge, and samples that spoil their batches.

use crate::program::{Place, checkpoints, events, text};
use crate::samples;

#[test]
fn a_run_that_diverges_goes_back_and_is_never_finished() {
    let place = Place::new();
    let train = ["train", "--model", "mlp:32", "--epochs", "2", "--threads", "1", "--set", "optimizer.lr=1000"];
    let outcome = place.run(&[train.as_slice(), &["--run", "hot"]].concat());
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    let halves: Vec<&str> =
        outcome.stdout.lines().filter(|line| line.starts_with("Training diverged at step")).collect();
    assert_eq!(halves.len(), 4, "{}", outcome.stdout);
    for (line, share) in halves.iter().zip(["0.5", "0.25", "0.125", "0.0625"]) {
        assert!(line.ends_with(&format!("and on with half the learning rate ({share} of the job's).")), "{line}");
    }
    assert!(!outcome.stdout.contains("Finished"), "{}", outcome.stdout);
    for part in ["error: training diverged: ", "gone back 4 times", "Lower optimizer.lr"] {
        assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
    }
    let run = place.path("hot");
    let rollbacks = events(&run, "rollback");
    assert_eq!(rollbacks.len(), 4);
    assert_eq!((&rollbacks[3]["lr_factor"], &rollbacks[3]["is_rate_halved"]), (&0.0625.into(), &true.into()));
    assert!(rollbacks.iter().all(|event| event["from_step"].as_u64() > event["step"].as_u64()));
    let reason = events(&run, "stop").pop().unwrap()["reason"]["failed"].clone();
    assert!(reason.as_str().unwrap().starts_with("training diverged"), "{reason}");
    // A program that reads the events is not disturbed, and people are told all the same.
    let outcome = place.run(&[train.as_slice(), &["--run", "json", "--json"]].concat());
    assert_eq!(outcome.json().iter().filter(|event| event["event"] == "rollback").count(), 4);
    assert!(outcome.stderr.starts_with("Training diverged at step"), "{}", outcome.stderr);
}

/// Trains at this rate; if the run went back and was finished all the same, its accuracy at the end.
fn recovered(place: &Place, rate: &str) -> Option<f64> {
    let set = format!("optimizer.lr={rate}");
    let train = ["train", "--run", rate, "--model", "mlp:32", "--threads", "1", "--epochs", "8", "--set", set.as_str()];
    let outcome = place.run(&train);
    let has_gone_back = outcome.stdout.contains("and on with half the learning rate");
    assert_eq!(has_gone_back, !events(&place.path(rate), "rollback").is_empty(), "{}", outcome.stdout);
    let last = events(&place.path(rate), "epoch").pop()?;
    (has_gone_back && outcome.code == Some(0)).then(|| last["test_accuracy"].as_f64().expect("a number"))
}

#[test]
fn half_the_rate_may_be_all_that_is_needed() {
    let place = Place::new();
    // At the edge of what can be learnt with, rounding decides, and that is different on other processors.
    let rates = ["1", "0.9", "1.1", "1.25", "1.5", "2"];
    let cured = rates.into_iter().find(|rate| recovered(&place, rate).is_some_and(|accuracy| accuracy > 0.5));
    let rate = cured.expect("a rate that is too high and whose half is not");
    let run = place.path(rate);
    let last = events(&run, "epoch").pop().expect("an epoch");
    assert_eq!((&last["epoch"], &last["step"]), (&8.into(), &960.into()), "all epochs were trained in the end");
    assert_eq!(checkpoints(&run).len(), 2, "what was saved before it went back is no part of the run");
    // The rate stays halved when the run goes on, unless another one is given.
    let resumed = |arguments: &[&str]| {
        place.succeed(&[["resume", rate, "--set", "schedule.kind=constant"].as_slice(), arguments].concat());
        events(&run, "epoch").pop().expect("an epoch")["lr"].as_f64().expect("a number")
    };
    assert!(resumed(&["--epochs", "9"]) < rate.parse().expect("a number"));
    assert_eq!(resumed(&["--epochs", "10", "--set", "optimizer.lr=0.125"]), 0.125);
}

#[test]
fn a_sample_that_spoils_its_batch_is_named_and_left_out() {
    let place = Place::new();
    let table = samples::csv(&place, "table.csv", 200, 2);
    let rows = std::fs::read_to_string(&table).unwrap();
    let changed = |(i, row): (usize, &str)| if i == 50 { "3e38,3e38,c0\n".to_owned() } else { format!("{row}\n") };
    let table = place.write("table.csv", rows.lines().enumerate().map(changed).collect::<String>());
    let train = ["train", "--run", "mine", "--data", text(&table), "--model", "mlp:8", "--epochs", "6"];
    let said =
        place.succeed(&[train.as_slice(), &["--set", "batch=8", "--set", "data.standardise=false"]].concat()).stdout;
    let line = said.lines().find(|line| line.starts_with("Left out")).unwrap_or_else(|| panic!("{said}"));
    assert!(line.starts_with("Left out 1 training sample without a finite loss and gradient: sample "), "{line}");
    assert!(line.ends_with(&format!(" ({}, line 51)", table.display())), "{line}");
    assert!(said.contains("Finished"), "{said}");
    let run = place.path("mine");
    let [event] = &events(&run, "left-out")[..] else { panic!("one event") };
    assert_eq!(event["samples"][0]["origin"], format!("{}, line 51", table.display()));
    assert!(line.contains(&format!("sample {} (", event["samples"][0]["index"])), "{line}");
    assert_eq!(events(&run, "epoch").pop().unwrap()["test_accuracy"], 1.0);
    // A run that goes on remembers it.
    let said = place.succeed(&["resume", "mine", "--epochs", "8"]).stdout;
    assert!(!said.contains("Left out") && said.contains("on 179 samples"), "{said}");
}

/// The last line that people see, if the model has learnt nothing.
const NOT_LEARNT: &str = "Finished, but the model has not learnt: its accuracy is that of guessing.";

#[test]
fn a_rate_that_is_too_high_without_exploding_is_found_out() {
    let place = Place::new();
    let hot = ["--set", "optimizer.lr=4", "--epochs", "3", "--threads", "1", "--run"];
    for (command, run) in [(&["train"][..], "alone"), (&["simulate", "--peers", "3"][..], "together")] {
        let outcome = place.run(&[command, &hot, &[run]].concat());
        let rollbacks = events(&place.path(run), "rollback");
        let collapsed =
            |event: &&serde_json::Value| event["why"].as_str().is_some_and(|why| why.contains("only guesses"));
        assert!(rollbacks.iter().any(|event| collapsed(&event)), "{}{}", outcome.stdout, outcome.stderr);
        // Where half the rate is enough, it has learnt something; else it says that it has not.
        let last = events(&place.path(run), "epoch").pop().expect("an epoch");
        let has_learnt = last["test_accuracy"].as_f64().expect("a number") > 0.2;
        let says_so = outcome.stdout.contains(NOT_LEARNT);
        assert!(has_learnt || says_so || outcome.code == Some(1), "{}{}", outcome.stdout, outcome.stderr);
        assert!(!(has_learnt && says_so), "{}{}", outcome.stdout, outcome.stderr);
    }
}

#[test]
fn a_rate_that_is_too_low_is_left_alone_and_the_end_says_what_came_of_it() {
    let place = Place::new();
    let cold = ["--set", "optimizer.lr=1e-9", "--epochs", "2", "--threads", "1", "--run"];
    for (command, run) in [(&["train"][..], "alone"), (&["simulate", "--peers", "3"][..], "together")] {
        let outcome = place.succeed(&[command, &cold, &[run]].concat());
        let last = outcome.stdout.lines().last().expect("a line");
        assert!(last.starts_with(NOT_LEARNT), "{}", outcome.stdout);
        assert!(events(&place.path(run), "rollback").is_empty(), "{}", outcome.stdout);
        let stop = events(&place.path(run), "stop").pop().expect("an end");
        assert_eq!((&stop["reason"], &stop["is_guessing"]), (&"finished".into(), &true.into()));
    }
    let said = place.succeed(&["train", "--epochs", "2", "--threads", "1", "--run", "well"]).stdout;
    assert!(!said.contains(NOT_LEARNT), "{said}");
    assert_eq!(events(&place.path("well"), "stop").pop().expect("an end")["is_guessing"], false);
}

#[test]
fn a_swarm_that_diverges_keeps_its_good_checkpoint_and_tells_the_truth() {
    let place = Place::new();
    place.succeed(&["train", "--model", "mlp:32", "--peers", "2", "--threads", "1", "--epochs", "2", "--run", "mine"]);
    let (run, good) = (place.path("mine"), checkpoints(&place.path("mine")).pop().expect("a checkpoint"));
    // Far too high even when it has been halved four times, and just too high.
    for (rate, epochs) in [("100000", "6"), ("3", "10")] {
        let set = format!("optimizer.lr={rate}");
        let outcome = place.run(&["resume", "mine", "--epochs", epochs, "--set", set.as_str()]);
        assert!(!events(&run, "rollback").is_empty(), "{}{}", outcome.stdout, outcome.stderr);
        let newest = checkpoints(&run).pop().expect("a checkpoint");
        let accuracy = place.succeed(&["eval", "mine", "--json"]).json()[0]["accuracy"].as_f64().expect("a number");
        if outcome.code == Some(0) {
            // All epochs were trained and tested in the end, and the newest checkpoint is what was tested last.
            let last = events(&run, "epoch").pop().expect("an epoch");
            assert_eq!(last["epoch"].to_string(), epochs, "{}", outcome.stdout);
            assert!((last["test_accuracy"].as_f64().expect("a number") - accuracy).abs() < 1e-9, "{}", outcome.stdout);
        } else {
            assert_eq!(outcome.code, Some(1), "{}{}", outcome.stdout, outcome.stderr);
            assert!(outcome.stderr.contains("training diverged"), "{}", outcome.stderr);
            assert!(newest == good && accuracy > 0.8, "{accuracy}: {}{}", outcome.stdout, outcome.stderr);
        }
    }
}
