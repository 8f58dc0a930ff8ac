//! Worlds that were drawn from seeds.

use nettorrent_chaos::oracle::violations;
use nettorrent_chaos::plan::{Action, Plan};
use nettorrent_chaos::world;

fn log(seed: u64) -> Vec<String> {
    world::run(&Plan::new(seed)).fates.into_iter().flat_map(|fate| fate.told.log).collect()
}

#[test]
fn a_seed_gives_the_same_world_every_time() {
    for seed in 0..24 {
        assert_eq!(log(seed), log(seed), "seed {seed}");
    }
}

#[test]
fn nothing_is_violated_where_links_hold() {
    let has_cuts =
        |plan: &Plan| plan.actions.iter().any(|(_, action)| matches!(action, Action::Cut(..) | Action::Suspend(..)));
    for plan in (0..600).map(Plan::new).filter(|plan| !has_cuts(plan) && plan.spoilt.is_empty()) {
        let problems = violations(&plan, &world::run(&plan));
        assert!(problems.is_empty(), "{plan}{problems:?}");
    }
}
