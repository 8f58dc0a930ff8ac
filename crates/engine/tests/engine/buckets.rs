//! A gradient in buckets is the same gradient, handed over piece by piece while the rest is still computed.

use std::sync::{Arc, Mutex};

use crate::networks::{batch, networks};
use nettorrent_engine::model::{BucketSink, Network, Phase, Score, Workspace, zoo};
use nettorrent_engine::rng::Rng;

fn workspace(n_threads: usize) -> Workspace {
    Workspace::new(n_threads).expect("a few threads can be had")
}

fn bits(numbers: &[f32]) -> Vec<u32> {
    numbers.iter().map(|x| x.to_bits()).collect()
}

/// The whole gradient, and what was handed over on the way to it.
fn in_buckets(
    network: &Network,
    n: usize,
    min_len: usize,
    workspace: &mut Workspace,
) -> (Score, Vec<f32>, Vec<Vec<f32>>) {
    let values = network.init(&mut Rng::new(1));
    let mut gradient = vec![f32::NAN; network.n_values()];
    let mut handed = Vec::new();
    let sink = BucketSink {
        buckets: &network.buckets(min_len),
        on_bucket: &mut |k, numbers| {
            assert_eq!(k, handed.len(), "in order, each once");
            handed.push(numbers.to_vec());
        },
    };
    let score = network.gradient_in_buckets(&values, &batch(network, n), 9, &mut gradient, workspace, sink);
    (score, gradient, handed)
}

#[test]
fn buckets_cover_the_vector_once() {
    for entry in zoo::ZOO {
        let network = Network::new(&zoo::describe(entry.name, None, None).unwrap()).unwrap();
        let mut n_buckets = usize::MAX;
        for min_len in [0, 1, 1000, 1 << 18, usize::MAX] {
            let buckets = network.buckets(min_len);
            let what = format!("{} from {min_len}: {buckets:?}", entry.name);
            let mut sorted = buckets.clone();
            sorted.sort_by_key(|bucket| bucket.start);
            assert_eq!((sorted[0].start, sorted[sorted.len() - 1].end), (0, network.n_values()), "{what}");
            assert!(sorted.windows(2).all(|pair| pair[0].end == pair[1].start), "{what}");
            assert!(buckets.iter().all(|bucket| !bucket.is_empty()), "{what}");
            // The last of the trained numbers come first, and the running statistics come last.
            let has_statistics = network.n_params() < network.n_values();
            let trained = &buckets[..buckets.len() - usize::from(has_statistics)];
            assert_eq!(trained[0].end, network.n_params(), "{what}");
            assert!(trained.windows(2).all(|pair| pair[0].start == pair[1].end), "{what}");
            assert!(trained[..trained.len() - 1].iter().all(|bucket| bucket.len() >= min_len), "{what}");
            assert!(buckets.len() <= n_buckets, "{what}");
            n_buckets = buckets.len();
        }
        assert_eq!(n_buckets, 1 + usize::from(network.n_params() < network.n_values()), "{}", entry.name);
    }
}

#[test]
fn what_is_handed_over_is_the_gradient_bit_for_bit() {
    for (name, network) in networks() {
        let values = network.init(&mut Rng::new(1));
        for n_threads in [1, 2, 3] {
            let mut workspace = workspace(n_threads);
            // No samples, fewer than threads, a number that does not divide, and enough for several chunks.
            for (n, min_len) in [0, 1, 2, 11, 37].into_iter().flat_map(|n| [0, 200, 1 << 18].map(|len| (n, len))) {
                let what = format!("{name} of {n} with {n_threads} threads in buckets from {min_len}");
                let mut whole = vec![f32::NAN; network.n_values()];
                let whole_score = network.gradient(&values, &batch(&network, n), 9, &mut whole, &mut workspace);
                let (score, gradient, handed) = in_buckets(&network, n, min_len, &mut workspace);
                assert_eq!(score, whole_score, "{what}");
                assert_eq!(bits(&gradient), bits(&whole), "{what}");
                let buckets = network.buckets(min_len);
                assert_eq!(handed.len(), buckets.len(), "{what}");
                for (bucket, handed) in buckets.iter().zip(&handed) {
                    assert_eq!(bits(handed), bits(&gradient[bucket.clone()]), "{what}: {bucket:?}");
                }
            }
        }
    }
}

/// What happened, in order.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    /// The gradient by a step's weights was computed.
    Weights(usize),
    /// A bucket was handed over.
    Bucket(usize),
}

#[test]
fn a_bucket_does_not_wait_for_the_layers_below() {
    let network = Network::new(&zoo::describe("mlp:16,16", None, None).unwrap()).unwrap();
    for n_threads in [1, 2] {
        let events = Arc::new(Mutex::new(Vec::new()));
        let mut workspace = workspace(n_threads);
        let probed = events.clone();
        workspace.probe = Some(Box::new(move |step, phase| {
            if phase == Phase::WeightGradient {
                probed.lock().unwrap().push(Event::Weights(step));
            }
        }));
        let (values, mut gradient) = (network.init(&mut Rng::new(1)), vec![0.0; network.n_values()]);
        let sink = BucketSink {
            buckets: &network.buckets(0),
            on_bucket: &mut |k, _| events.lock().unwrap().push(Event::Bucket(k)),
        };
        network.gradient_in_buckets(&values, &batch(&network, 8), 9, &mut gradient, &mut workspace, sink);
        let dense: Vec<usize> = (0..).zip(network.summary()).filter(|(_, l)| l.n_params > 0).map(|(i, _)| i).collect();
        let expected = dense.iter().rev().enumerate().flat_map(|(k, &step)| [Event::Weights(step), Event::Bucket(k)]);
        assert_eq!(*events.lock().unwrap(), expected.collect::<Vec<_>>(), "{n_threads} threads");
    }
}

#[test]
#[should_panic(expected = "no bucket of this network")]
fn buckets_of_another_network_are_refused() {
    let network = |widths: &str| Network::new(&zoo::describe(widths, None, None).unwrap()).unwrap();
    let (one, other) = (network("mlp:16"), network("mlp:17"));
    let (values, mut gradient) = (one.init(&mut Rng::new(1)), vec![0.0; one.n_values()]);
    let sink = BucketSink { buckets: &other.buckets(0), on_bucket: &mut |_, _| {} };
    one.gradient_in_buckets(&values, &batch(&one, 2), 9, &mut gradient, &mut workspace(1), sink);
}
