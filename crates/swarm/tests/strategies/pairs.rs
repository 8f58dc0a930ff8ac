//! Peers meet in pairs, and both go on with the mean of the two.

use toml::Table;

use crate::table::{distinct, is_near, job, mean, pulled, run};

#[test]
fn a_pair_goes_on_with_its_mean_and_who_meets_nobody_with_its_own() {
    for n_peers in [2, 3, 4, 7] {
        for seed in 0..5 {
            let mut job = job("gossip", Table::new());
            job.seed = seed;
            let after = run(&job, &vec![0; 3 * n_peers], &pulled(n_peers)).after(1);
            let alone = |rank: usize| after[rank] == distinct(rank);
            assert_eq!((0..n_peers).filter(|&rank| alone(rank)).count(), n_peers % 2, "{after:?}");
            for rank in (0..n_peers).filter(|&rank| !alone(rank)) {
                let is_partner = |&other: &usize| {
                    let pair = [distinct(rank).to_vec(), distinct(other).to_vec()];
                    other != rank && is_near(&after[rank], &mean(&pair, &[1.0, 1.0]))
                };
                let other = (0..n_peers).find(is_partner).expect("it met somebody");
                assert_eq!(after[other], after[rank], "both hold the same bits");
            }
        }
    }
}
