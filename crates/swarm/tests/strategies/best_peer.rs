//! The best peer's weights go on: the highest accuracy on the validation samples, of equals the lowest rank.

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::OptimizerSpec;
use toml::{Table, toml};

use crate::table::{N, Pull, Scripted, distinct, job, run};

fn options() -> Table {
    toml! { local_steps = 1 validation = 10 }
}

/// Peers of which so many of ten validation samples are right.
fn judged(n_correct: &[usize]) -> Vec<Scripted> {
    let peer = |(rank, &n_correct): (usize, &usize)| Scripted { n_correct, ..Scripted::new(Pull::By(distinct(rank))) };
    n_correct.iter().enumerate().map(peer).collect()
}

#[test]
fn all_go_on_from_the_highest_accuracy_and_of_equals_from_the_lowest_rank() {
    for (n_correct, best) in [(vec![3, 9, 5], 1), (vec![2, 7, 7, 1], 1), (vec![4, 4, 4], 0), (vec![0, 1, 9], 2)] {
        let course = run(&job("best-peer", options()), &[0; 120], &judged(&n_correct));
        for numbers in course.after(1) {
            assert_eq!(numbers, distinct(best), "{n_correct:?}");
        }
        let twice: Vec<f32> = distinct(best).iter().map(|number| 2.0 * number).collect();
        assert_eq!(course.after(2)[0], twice, "the others' steps are thrown away");
    }
}

#[test]
fn a_peer_whose_numbers_are_none_takes_the_best_ones_over() {
    for bad in [f32::NAN, f32::INFINITY] {
        // It would be the best, if its numbers were numbers.
        let mut peers = judged(&[3, 10, 6]);
        peers[1].pull = Pull::By([bad; N]);
        let course = run(&job("best-peer", options()), &[0; 120], &peers);
        assert_eq!(course.after(1), vec![distinct(2).to_vec(); 3]);
    }
}

#[test]
fn who_takes_weights_over_keeps_its_momentum_or_forgets_it() {
    for (optimizer_state, is_kept) in [("keep", true), ("reset", false)] {
        let mut options = options();
        options.insert("optimizer_state".to_owned(), optimizer_state.into());
        let optimizer = OptimizerSpec { lr: 1.0, momentum: 0.5, ..OptimizerSpec::default() };
        let course = run(&Job { optimizer, ..job("best-peer", options) }, &[0; 120], &judged(&[3, 9]));
        let momentum = |rank: usize| course.0[1][rank].optimizer.numbers(0..N);
        let own = |rank: usize| distinct(rank).map(|number| -number);
        assert_eq!(momentum(1), own(1), "the best one keeps its own");
        assert_eq!(momentum(0), if is_kept { own(0) } else { [0.0; N] }, "{optimizer_state}");
    }
}
