//! What a network computes depends on the number of threads by rounding only, and never on what a workspace did before.

use crate::networks::{batch, networks};
use nettorrent_engine::model::{Network, Score, Workspace};
use nettorrent_engine::rng::Rng;

fn workspace(n_threads: usize) -> Workspace {
    Workspace::new(n_threads).expect("a few threads can be had")
}

/// Everything a network can say about a batch: its gradient, its outputs, and its score while training.
fn run(network: &Network, n: usize, workspace: &mut Workspace) -> (Vec<f32>, Vec<f32>, Score) {
    let values = network.init(&mut Rng::new(1));
    let batch = batch(network, n);
    let mut gradient = vec![f32::NAN; network.n_values()];
    let score = network.gradient(&values, &batch, 9, &mut gradient, workspace);
    let (outputs, _) = network.predict(&values, &batch, workspace);
    (gradient, outputs, score)
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

fn assert_same_bits(what: &str, left: &(Vec<f32>, Vec<f32>, Score), right: &(Vec<f32>, Vec<f32>, Score)) {
    assert_eq!(bits(&left.0), bits(&right.0), "{what}: the gradients differ");
    assert_eq!(bits(&left.1), bits(&right.1), "{what}: the outputs differ");
    assert_eq!(left.2, right.2, "{what}: the scores differ");
}

/// The share of the larger vector's length that the two are apart.
fn distance(left: &[f32], right: &[f32]) -> f64 {
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let wide = |numbers: &[f32]| norm(&mut numbers.iter().map(|&x| f64::from(x)));
    let apart = norm(&mut left.iter().zip(right).map(|(l, r)| f64::from(*l) - f64::from(*r)));
    apart / wide(left).max(wide(right))
}

#[test]
fn any_number_of_threads_gives_the_same_but_for_rounding() {
    for (name, network) in networks() {
        // Fewer samples than threads, as many, a number that does not divide, and enough for several chunks. Batch norm
        // over one row would divide by nothing but its epsilon, so there are at least two samples.
        for n in [2, 3, 5, 11, 37] {
            let (gradient, outputs, score) = run(&network, n, &mut workspace(1));
            assert!(gradient.iter().all(|g| g.is_finite()), "{name} of {n}");
            for n_threads in [2, 3, 5] {
                let (other_gradient, other_outputs, other_score) = run(&network, n, &mut workspace(n_threads));
                let what = format!("{name} of {n} with {n_threads} threads");
                assert!((score.loss() - other_score.loss()).abs() < 1e-5, "{what}: {score:?}, {other_score:?}");
                assert_eq!((score.n, score.n_correct), (n, other_score.n_correct), "{what}");
                let apart = [distance(&gradient, &other_gradient), distance(&outputs, &other_outputs)];
                // Below a batch norm, gradients are small differences of large sums; with two samples even more so.
                let allowed = if n == 2 { 1e-3 } else { 1e-4 };
                assert!(apart.iter().all(|&apart| apart < allowed), "{what}: {apart:?}");
            }
        }
    }
}

#[test]
fn the_same_number_of_threads_gives_the_same_bits() {
    for (name, network) in networks() {
        for n_threads in [1, 2, 3, 5] {
            let first = run(&network, 11, &mut workspace(n_threads));
            let second = run(&network, 11, &mut workspace(n_threads));
            assert_same_bits(&format!("{name} with {n_threads} threads"), &first, &second);
        }
    }
}

#[test]
fn a_used_workspace_is_as_good_as_a_new_one() {
    let networks = networks();
    for n_threads in [1, 3] {
        let mut used = workspace(n_threads);
        // A smaller batch, a larger one, and each network after each other.
        for n in [11, 4, 29] {
            for (name, network) in networks.iter().chain(networks.iter().rev()) {
                let found = run(network, n, &mut used);
                let expected = run(network, n, &mut workspace(n_threads));
                assert_same_bits(&format!("{name} of {n} with {n_threads} threads"), &found, &expected);
            }
        }
    }
}

#[test]
fn an_empty_batch_asks_for_no_change() {
    for (name, network) in networks() {
        for n_threads in [1, 2] {
            let (gradient, outputs, score) = run(&network, 0, &mut workspace(n_threads));
            assert!(gradient.iter().all(|&g| g == 0.0), "{name}");
            assert!(outputs.is_empty() && score == Score::default(), "{name}");
        }
    }
}

#[test]
fn another_seed_drops_other_numbers() {
    let (_, network) = networks().remove(0);
    let values = network.init(&mut Rng::new(1));
    let batch = batch(&network, 5);
    let gradient = |seed| {
        let mut gradient = vec![0.0; network.n_values()];
        network.gradient(&values, &batch, seed, &mut gradient, &mut workspace(1));
        gradient
    };
    assert!(distance(&gradient(1), &gradient(2)) > 0.1);
}
