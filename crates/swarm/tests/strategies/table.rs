//! Peers around a table: no network, no clock, and nothing learnt; each peer's numbers move as the test says.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::job::{Job, SwarmSpec, Work as Pace};
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::scale::Scale;
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use nettorrent_swarm::{Input, Outbox, Peer, PeerId, Setup, State, View};
use toml::Table as Options;

/// How many numbers a peer holds, and the buckets they are handed over in.
pub(crate) const N: usize = 6;
const BUCKETS: [Range<usize>; 2] = [4..N, 0..4];

/// What a peer's training does with its numbers, at a rate of 1.
#[derive(Clone, Debug)]
pub(crate) enum Pull {
    /// Adds these.
    By([f32; N]),
    /// Takes each to this one.
    To(f32),
}

/// What one peer is made of.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub pull: Pull,
    /// Of ten samples that it is judged by, so many are right.
    pub n_correct: usize,
    /// The loss of each of its samples.
    pub loss: f64,
}

impl Scripted {
    pub(crate) fn new(pull: Pull) -> Self {
        Self { pull, n_correct: 5, loss: 1.0 }
    }
}

/// A task whose gradient is what the test says.
struct Given {
    layout: Layout,
    labels: Vec<u32>,
    peer: Scripted,
}

impl Task for Given {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, _: u64) -> Vec<f32> {
        vec![0.0; N]
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn n_test(&self) -> usize {
        1
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Given {
    fn gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        _: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let pull = |k: usize| match &self.peer.pull {
            Pull::By(by) => -by[k],
            Pull::To(to) => values[k] - to,
        };
        let gradient: Vec<f32> = (0..N).map(pull).collect();
        BUCKETS.iter().enumerate().for_each(|(k, bucket)| sink(k, &gradient[bucket.clone()]));
        let n = indices.len();
        Ok(Score { loss_sum: self.peer.loss * n as f64, n_correct: n, n, ..Score::default() })
    }

    fn score(&self, _: &[f32], indices: &[usize]) -> Result<Score, TrainError> {
        let n = indices.len();
        Ok(Score { loss_sum: n as f64, n_correct: n * self.peer.n_correct / 10, n, ..Score::default() })
    }

    fn test(&self, _: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        Ok(Score { loss_sum: samples.len() as f64, n_correct: samples.len(), n: samples.len(), ..Score::default() })
    }
}

/// A run of a strategy in which peers have a batch of one sample each in every round, at a rate of 1.
pub(crate) fn job(strategy: &str, options: Options) -> Job {
    let swarm = SwarmSpec {
        strategy: strategy.to_owned(),
        options,
        scale: Scale::None,
        work: Pace::Equal,
        ..SwarmSpec::default()
    };
    let optimizer = OptimizerSpec { lr: 1.0, ..OptimizerSpec::default() };
    Job { epochs: 1, batch: 1, optimizer, swarm, ..Job::default() }
}

/// What every peer held after each round: by round, then by rank. The end of the run is the last.
pub(crate) struct Course(pub Vec<Vec<State>>);

impl Course {
    /// The numbers after a round, counted from 1, by rank.
    pub(crate) fn after(&self, round: usize) -> Vec<Vec<f32>> {
        self.0[round].iter().map(|state| state.values.to_vec()).collect()
    }

    /// The numbers at the end of the run.
    pub(crate) fn end(&self) -> Vec<Vec<f32>> {
        self.after(self.0.len() - 1)
    }
}

/// Lets these peers train all samples of these labels, and writes down what they hold.
pub(crate) fn run(job: &Job, labels: &[u32], peers: &[Scripted]) -> Course {
    let given = |peer: &Scripted| {
        Arc::new(Given { layout: Layout::flat(N, N, BUCKETS.to_vec()), labels: labels.to_vec(), peer: peer.clone() })
    };
    let setup = Arc::new(Setup::new(job, given(&peers[0])).unwrap());
    let tasks: Vec<Arc<Given>> = peers.iter().map(given).collect();
    let ids: Vec<PeerId> = (0..peers.len()).map(|rank| PeerId::new(rank as u32, 0)).collect();
    let peer = |&id: &PeerId| setup.peer(id, State::fresh(setup.training()));
    let mut peers: Vec<Box<dyn Peer>> = ids.iter().map(peer).collect();
    let mut course = vec![vec![State::fresh(setup.training()); peers.len()]];
    let mut rounds = vec![0; peers.len()];
    let view = View::new(1, ids.clone());
    let mut inputs: VecDeque<(usize, Input)> = (0..ids.len()).map(|rank| (rank, Input::View(view.clone()))).collect();
    while let Some((rank, input)) = inputs.pop_front() {
        let mut out = Outbox::default();
        peers[rank].handle(Duration::ZERO, input, &mut out).unwrap();
        assert!(out.refused.is_empty() && out.failure.is_none(), "{:?} {:?}", out.refused, out.failure);
        let state = peers[rank].state().unwrap();
        let round = state.place.version.round as usize;
        // The end of an epoch, where there is nothing to bring together, counts as a round that ends at once.
        while course.len() <= round {
            course.push(vec![State::fresh(setup.training()); peers.len()]);
        }
        (rounds[rank] + 1..=round).for_each(|round| course[round][rank] = state.clone());
        rounds[rank] = round;
        let peer = |id: PeerId| ids.iter().position(|&other| other == id).unwrap();
        inputs.extend(out.frames.into_iter().map(|(to, frame)| (peer(to), Input::Frame { from: ids[rank], frame })));
        for work in out.work {
            let mut hand_over = |done| inputs.push_back((rank, Input::Done { done, took: Duration::from_millis(1) }));
            work.run(&mut StatelessWorker(tasks[rank].clone()), &mut hand_over);
        }
    }
    assert!(
        peers.iter().all(|peer| peer.is_finished()),
        "{:?}",
        peers.iter().map(|peer| peer.status()).collect::<Vec<_>>()
    );
    Course(course)
}

/// Numbers that are different at every peer and every place.
pub(crate) fn distinct(rank: usize) -> [f32; N] {
    std::array::from_fn(|k| (k + 1) as f32 + 10.0 * (rank * rank) as f32)
}

/// So many peers with such numbers.
pub(crate) fn pulled(n_peers: usize) -> Vec<Scripted> {
    (0..n_peers).map(|rank| Scripted::new(Pull::By(distinct(rank)))).collect()
}

/// Weighted mean of vectors.
pub(crate) fn mean(vectors: &[Vec<f32>], weights: &[f32]) -> Vec<f32> {
    let total: f32 = weights.iter().sum();
    let at = |k: usize| vectors.iter().zip(weights).map(|(vector, weight)| weight * vector[k]).sum::<f32>() / total;
    (0..N).map(at).collect()
}

/// Whether two vectors are equal but for rounding.
pub(crate) fn is_near(a: &[f32], b: &[f32]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-4 * b.abs().max(1.0))
}
