//! Those who average all vectors: everybody ends with the mean, by the rule's weights.

use nettorrent_engine::data::split::SplitRule;
use nettorrent_engine::job::Job;
use nettorrent_engine::job::Resplit;
use toml::toml;

use crate::table::{Pull, Scripted, distinct, is_near, job, mean, pulled, run};

#[test]
fn sums_end_with_the_mean_at_all_peers() {
    for strategy in ["ring-reduce", "ring-all-reduce", "parameter-server"] {
        for options in [toml! { payload = "weights" }, toml! { payload = "gradients" }] {
            // One alone has nothing to average, and lends its state to its worker between rounds.
            for n_peers in [2, 3, 5] {
                let course = run(&job(strategy, options.clone()), &vec![0; 2 * n_peers], &pulled(n_peers));
                let pulls: Vec<Vec<f32>> = (0..n_peers).map(|rank| distinct(rank).to_vec()).collect();
                let step = mean(&pulls, &vec![1.0; n_peers]);
                for round in [1, 2] {
                    let expected: Vec<f32> = step.iter().map(|number| round as f32 * number).collect();
                    for (rank, numbers) in course.after(round).iter().enumerate() {
                        assert!(is_near(numbers, &expected), "{strategy}, {n_peers} peers: {rank} has {numbers:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_manager_weighs_results_as_it_is_told() {
    // Six samples are the first peer's, three the second's and one the third's; each trains its own as one batch.
    let labels = [0, 0, 0, 0, 0, 0, 1, 1, 1, 2];
    let peers: Vec<Scripted> = [4.0, 1.0, 2.0]
        .into_iter()
        .enumerate()
        .map(|(rank, loss)| Scripted { loss, ..Scripted::new(Pull::By(distinct(rank))) })
        .collect();
    let pulls: Vec<Vec<f32>> = (0..3).map(|rank| distinct(rank).to_vec()).collect();
    for (aggregation, weights) in [
        ("samples", [6.0, 3.0, 1.0]),
        ("average", [1.0, 1.0, 1.0]),
        ("weighted", [4.0, 1.0, 2.0]),
        ("weighted-minmax", [1.0, 0.0, 1.0 / 3.0]),
    ] {
        let mut options = toml! { local_steps = "epoch" };
        options.insert("aggregation".to_owned(), aggregation.into());
        let mut job = Job { batch: 6, ..job("manager-worker", options) };
        (job.swarm.split, job.swarm.resplit) = (SplitRule::Class, Resplit::Run);
        let course = run(&job, &labels, &peers);
        let expected = mean(&pulls, &weights);
        for numbers in course.after(1) {
            assert!(is_near(&numbers, &expected), "{aggregation}: {numbers:?}, not {expected:?}");
        }
    }
}
