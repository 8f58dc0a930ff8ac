//! Worlds that were drawn from seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nettorrent_chaos::oracle::violations;
use nettorrent_chaos::plan::{Action, Plan};
use nettorrent_chaos::summary::Summary;
use nettorrent_chaos::{seeds, world};

fn log(seed: u64) -> Vec<String> {
    world::run(&Plan::new(seed)).fates.into_iter().flat_map(|fate| fate.told.log).collect()
}

#[test]
fn a_seed_gives_the_same_world_every_time() {
    for seed in 0..28 {
        assert_eq!(log(seed), log(seed), "seed {seed}");
    }
}

#[test]
fn how_many_worlds_run_at_a_time_changes_none_of_them() {
    let run = |n_jobs| {
        let (mut summary, mut logs) = (Summary::new(0..28), BTreeMap::new());
        seeds::run(0..28, n_jobs, &AtomicBool::new(false), |trial| {
            summary.add(&trial);
            let fates = trial.outcome.expect("nobody panics").fates;
            logs.insert(trial.plan.seed, fates.into_iter().map(|fate| fate.told.log).collect::<Vec<_>>());
        });
        (summary, logs)
    };
    let alone = run(1);
    assert_eq!((alone.0.n_run, alone.1.len()), (28, 28));
    assert_eq!(alone, run(3));
}

#[test]
fn a_run_that_is_stopped_tells_what_was_done() {
    let is_stopped = AtomicBool::new(false);
    let mut summary = Summary::new(100..10_000);
    seeds::run(100..10_000, 2, &is_stopped, |trial| {
        summary.add(&trial);
        is_stopped.store(true, Ordering::Relaxed);
    });
    // The other thread ends the world that it is in the middle of.
    assert!((1..=2).contains(&summary.n_run), "{summary}");
    assert!(summary.to_string().contains("of 9900 from 100 on: stopped before the end"), "{summary}");
}

/// Among them are those that failed once: 11 (a joiner whom nobody answers any more, and later one that meets a peer which is done but
/// for its disk), 45 (a state that was saved before its epoch was over, in the place of the last one), 152 and 488 (blocks of a pipeline
/// that came early), 219 (a machine that is stuck), 2393 (peers that stand by). Later ones are in [`links_that_are_closed_for_silence`].
#[test]
fn nothing_is_violated_whatever_happens() {
    let mut failed = Vec::new();
    seeds::run(0..2400, seeds::n_cores(), &AtomicBool::new(false), |trial| {
        if !trial.violations.is_empty() {
            failed.push(format!("{}{:?}", trial.plan, trial.violations));
        }
    });
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// Whoever is to write the last state has a disk that fails or stalls, is not heard when it has, or is a newcomer that stands by.
#[test]
fn a_pipeline_is_saved_or_nobody_says_so() {
    check(&[10750, 12458, 18968, 31694, 37056, 37714, 38260, 40962, 43502, 85567, 91390]);
}

/// Two who refuse each other and hear each other have views of their own.
#[test]
fn peers_that_refuse_each_other_train_on() {
    check(&[5402, 41438]);
}

#[test]
fn a_joiner_that_comes_when_all_have_left() {
    check(&[27378]);
}

/// A machine that was suspended in the middle of a batch gets stuck later: how long that batch took says nothing about how long one may.
#[test]
fn one_that_is_stuck_after_it_was_suspended() {
    check(&[54565]);
}

/// Just when the others finish and leave, there is a moment in which one is invited and finds nobody any more.
#[test]
fn a_joiner_that_is_invited_when_the_others_leave() {
    // All strategies; not pipelines, whose peers may hand over their layers when somebody comes at the very end.
    for seed in 0..12 {
        let calm = Plan { actions: Vec::new(), spoilt: Vec::new(), n_peers: 4, ..Plan::new(seed) };
        let took = world::run(&calm).took;
        // Worlds are looked at every tenth of a second.
        for k in 0..30 {
            let at = took.saturating_sub(Duration::from_millis(150 - 5 * k));
            let plan = Plan { actions: vec![(at, Action::Join(calm.n_peers))], ..calm.clone() };
            let violations = violations(&plan, &world::run(&plan));
            assert!(violations.is_empty(), "{plan}{violations:?}");
        }
    }
}

/// A link is closed because it was silent for the deadline, and carries again at once: what was on its way is lost all the same.
#[test]
fn links_that_are_closed_for_silence() {
    check(&[5722, 7398, 8912]);
}

/// One agrees to a view and promises a later one before the first is in place: those who put it in place do not wait for it.
#[test]
fn one_that_does_not_put_a_view_in_place() {
    check(&[73086]);
}

fn check(seeds: &[u64]) {
    for &seed in seeds {
        let plan = Plan::new(seed);
        let violations = violations(&plan, &world::run(&plan));
        assert!(violations.is_empty(), "{plan}{violations:?}");
    }
}
