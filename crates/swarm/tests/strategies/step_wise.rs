//! Step-wise averaging: position q of the ring holds the mean of positions 0 to q.

use nettorrent_engine::job::Job;
use nettorrent_engine::optimizer::OptimizerSpec;
use toml::Table;

use crate::table::{Pull, Scripted, distinct, is_near, job, mean, pulled, run};

fn options(form: &str) -> Table {
    Table::from_iter([("form".to_owned(), form.into())])
}

/// What the rule makes of what peers hold after their own steps in a round.
fn averaged(held: &[Vec<f32>], start: usize) -> Vec<Vec<f32>> {
    let n = held.len();
    let mut result = held.to_vec();
    for q in 0..n {
        let so_far: Vec<Vec<f32>> = (0..=q).map(|k| held[(start + k) % n].clone()).collect();
        result[(start + q) % n] = mean(&so_far, &vec![1.0; q + 1]);
    }
    result
}

#[test]
fn every_position_holds_the_mean_of_those_up_to_itself() {
    for form in ["rotating", "fixed"] {
        for n_peers in [1, 2, 4, 5] {
            let n_rounds = 6;
            let course = run(&job("step-wise", options(form)), &vec![0; n_rounds * n_peers], &pulled(n_peers));
            let mut held = vec![vec![0.0; crate::table::N]; n_peers];
            for round in 0..n_rounds {
                for (rank, numbers) in held.iter_mut().enumerate() {
                    numbers.iter_mut().zip(distinct(rank)).for_each(|(number, by)| *number += by);
                }
                held = averaged(&held, if form == "fixed" { 0 } else { round % n_peers });
                for (rank, (numbers, expected)) in course.after(round + 1).iter().zip(&held).enumerate() {
                    assert!(
                        is_near(numbers, expected),
                        "{form}, round {round}, peer {rank} of {n_peers}: {numbers:?}, not {expected:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_fixed_start_is_biased_to_the_first_and_a_rotating_one_is_not() {
    // The optimum of all is 1; the first peer alone would go to 0, and with a fixed start it never hears of the others.
    let (n_peers, n_rounds) = (4, 400);
    let peers: Vec<Scripted> =
        (0..n_peers).map(|rank| Scripted::new(Pull::To(if rank == 0 { 0.0 } else { 4.0 / 3.0 }))).collect();
    let end = |form: &str| {
        let optimizer = OptimizerSpec { lr: 0.05, ..OptimizerSpec::default() };
        let job = Job { optimizer, ..job("step-wise", options(form)) };
        let course = run(&job, &vec![0; n_rounds * n_peers], &peers);
        course.end()[n_peers - 1][0]
    };
    let (fixed, rotating) = (end("fixed"), end("rotating"));
    assert!((0.01..0.1).contains(&fixed), "fixed: {fixed}");
    assert!((0.97..1.03).contains(&rotating), "rotating: {rotating}");
}
