//! What peers tell of how they joined, how soon they noticed a loss, and when they trained on.

use std::time::Duration;

use nettorrent_chaos::plan::{Action, Plan};
use nettorrent_chaos::process::Fate;
use nettorrent_chaos::training::DEADLINE;
use nettorrent_chaos::world;
use nettorrent_swarm::record::{Event, LossCause};

const AT: Duration = Duration::from_secs(2);

/// Four peers, to whom this happens in the middle of training; all strategies, and the plans of pipelines.
fn fates(actions: &[(Duration, Action)]) -> Vec<(String, Vec<Fate>)> {
    let run = |seed| {
        let plan = Plan { actions: actions.to_vec(), spoilt: Vec::new(), n_peers: 4, ..Plan::new(seed) };
        (plan.to_string(), world::run(&plan).fates)
    };
    (0..14).map(run).collect()
}

/// What each of the others tells of the loss of peer 3 that showed first.
fn losses(fates: &[Fate]) -> Vec<(LossCause, f64, Option<f64>)> {
    let first = |fate: &Fate| {
        fate.told.churn.iter().find_map(|event| match event {
            Event::Lost { who, cause, detection_s, recovery_s, .. } if who.join_index() == 3 => {
                Some((*cause, *detection_s, *recovery_s))
            }
            _ => None,
        })
    };
    fates.iter().filter(|fate| fate.host != 3).filter_map(first).collect()
}

/// Everybody tells of the loss once, somebody knows why, and all tell of times within these.
fn check(actions: &[(Duration, Action)], expected: &[LossCause], detected_within: [f64; 2]) {
    for (plan, fates) in fates(actions) {
        let losses = losses(&fates);
        assert_eq!(losses.len(), 3, "{plan}{losses:?}");
        let logs = || fates.iter().flat_map(|fate| fate.told.log.clone()).collect::<Vec<_>>().join("\n");
        assert!(losses.iter().any(|(cause, ..)| expected.contains(cause)), "{plan}{losses:?}{}", logs());
        let is_known = |cause: LossCause| expected.contains(&cause) || cause == LossCause::Told;
        let [least, most] = detected_within;
        for (cause, detection_s, recovery_s) in &losses {
            assert!(is_known(*cause) && (least..most).contains(detection_s), "{plan}{losses:?}");
            assert!(recovery_s.is_some_and(|recovery_s| (0.0..5.0).contains(&recovery_s)), "{plan}{losses:?}");
        }
    }
}

#[test]
fn one_that_is_killed_is_noticed_at_once() {
    check(&[(AT, Action::Kill(3))], &[LossCause::Disconnected, LossCause::Ended], [0.0, 1.0]);
}

#[test]
fn one_that_says_goodbye_is_noticed_at_once() {
    check(&[(AT, Action::Leave(3))], &[LossCause::Left], [0.0, 1.0]);
}

#[test]
fn one_that_is_silent_is_noticed_within_the_deadline() {
    let deadline = DEADLINE.as_secs_f64();
    // Until its link is known to be dead, and the members have agreed on a view without it.
    check(&[(AT, Action::Suspend(3, true))], &[LossCause::Silent], [0.3 * deadline, 2.0 * deadline]);
}

#[test]
fn of_one_that_is_stuck_it_is_told_since_when_it_trained_no_more() {
    let deadline = DEADLINE.as_secs_f64();
    check(&[(AT, Action::Stick(3, true))], &[LossCause::Stuck], [2.0 * deadline, 20.0 * deadline]);
}

#[test]
fn one_that_joins_tells_how_long_that_took() {
    for (plan, fates) in fates(&[(AT, Action::Join(4))]) {
        let churn = &fates[4].told.churn;
        let joins: Vec<_> = churn.iter().filter(|event| matches!(event, Event::Joined { .. })).collect();
        // Who stands by for a pipeline trains no round.
        if plan.contains("layers") {
            continue;
        }
        let [Event::Joined { admission_s, round_s }] = joins[..] else { panic!("{plan}{churn:?}") };
        assert!(0.0 < *admission_s && admission_s <= round_s && *round_s < 5.0, "{plan}{churn:?}");
        assert!(fates.iter().all(|fate| losses(std::slice::from_ref(fate)).is_empty()), "{plan}");
    }
}
