//! What a network is run with: its threads, and the numbers that live only while a batch goes through.

use std::sync::Mutex;

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use super::graph::Op;
use super::layer::Scratch;
use super::network::Network;
use super::plan::Extent;
use super::score::Score;
use crate::kernel::add;
use crate::team::{Team, TeamError};

/// Which part of a step was just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// The forward pass.
    Forward,
    /// The gradient by the input.
    InputGradient,
    /// The gradient by the weights.
    WeightGradient,
    /// Statistics over the batch, both ways.
    Statistics,
}

/// Called by the first thread after each part of each step, with the step's number; the host knows what time it is.
pub type Probe = Box<dyn Fn(usize, Phase) + Send + Sync>;

/// Threads and memory for running one network at a time; reused from batch to batch.
pub struct Workspace {
    pub(super) team: Team,
    pub(super) spaces: Vec<Mutex<Space>>,
    /// The layers' rearranged parameters, shared by all threads.
    pub(super) prepared: Vec<f32>,
    /// The parts of the gradient of all threads but the first, which writes to the caller's.
    pub(super) parts: Vec<Vec<f32>>,
    /// What a pass through a part of a network left behind, for the next one: a space a thread.
    pub(super) spare: Option<Vec<Mutex<Space>>>,
    /// Who wants to know where the time goes.
    pub probe: Option<Probe>,
}

/// One thread's numbers.
#[derive(Default)]
pub(super) struct Space {
    pub values: Vec<Vec<f32>>,
    pub gradients: Vec<Vec<f32>>,
    pub sums: Vec<Vec<f64>>,
    pub gradient_sums: Vec<Vec<f64>>,
    /// Where a gradient waits that is to be added to another.
    pub shared: Vec<f32>,
    pub scratch: Scratch,
    pub score: Score,
}

impl Workspace {
    /// Room for this many threads.
    pub fn new(n_threads: usize) -> Result<Self, TeamError> {
        let team = Team::new(n_threads)?;
        let spaces = (0..team.len()).map(|_| Mutex::default()).collect();
        Ok(Self { team, spaces, prepared: Vec::new(), parts: Vec::new(), spare: None, probe: None })
    }

    /// How many threads there are.
    pub fn n_threads(&self) -> usize {
        self.team.len()
    }

    /// Runs `work` where parallel iterators use these threads.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.team.install(work)
    }

    /// Makes room for rearranged parameters, for those who do not look at them.
    pub(super) fn make_prepared(&mut self, network: &Network) {
        self.prepared.resize(network.n_prepared, 0.0);
    }

    /// Has every layer rearrange its parameters.
    pub(super) fn prepare(&mut self, network: &Network, values: &[f32]) {
        self.make_prepared(network);
        let mut rest = self.prepared.as_mut_slice();
        let mut jobs = Vec::new();
        for step in &network.steps {
            let (prepared, after) = std::mem::take(&mut rest).split_at_mut(step.prepared.len());
            rest = after;
            if let (Op::Layer(layer), false) = (&step.op, prepared.is_empty()) {
                jobs.push((layer, &values[step.params.clone()], prepared));
            }
        }
        if jobs.is_empty() {
            return;
        }
        self.team.install(|| {
            jobs.into_par_iter().for_each(|(layer, params, prepared)| layer.prepare(params, prepared));
        });
    }

    /// Spaces that outlive a call, one for each thread: used ones, if there are any.
    pub(super) fn take_spaces(&mut self) -> Vec<Mutex<Space>> {
        self.spare.take().unwrap_or_else(|| (0..self.team.len()).map(|_| Mutex::default()).collect())
    }

    /// Takes out the parts of the gradient, so that threads can write to them, with room for this many numbers each.
    pub(super) fn take_parts(&mut self, n_values: usize) -> Vec<Vec<f32>> {
        let mut parts = std::mem::take(&mut self.parts);
        parts.resize_with(self.team.len() - 1, Vec::new);
        parts.iter_mut().for_each(|part| part.resize(n_values, 0.0));
        parts
    }

    /// Adds the other threads' gradients to the first's, always in the order of their ranks.
    pub(super) fn add_up(&self, gradient: &mut [f32], others: &[Vec<f32>]) {
        if others.is_empty() {
            return;
        }
        let len = gradient.len().div_ceil(self.team.len()).max(1);
        self.team.install(|| {
            gradient.par_chunks_mut(len).enumerate().for_each(|(part, sums)| {
                others.iter().for_each(|other| add(sums, &other[part * len..][..sums.len()]));
            });
        });
    }
}

impl Space {
    /// Makes room for the values of `n` samples of this network, and begins all sums anew.
    pub(super) fn fit_values(&mut self, network: &Network, n: usize) {
        // The input is the caller's, so the first value has no room of its own.
        fit(&mut self.values, network, &network.plan.values, n, 1);
        let n_sums = |op: &Op| match op {
            Op::Layer(layer) => layer.statistics().map_or(0, super::layer::BatchStatistics::n_sums),
            Op::Join(_) => 0,
        };
        let zeros = || network.steps.iter().map(|step| vec![0.0; n_sums(&step.op)]).collect();
        self.sums = zeros();
        self.gradient_sums = zeros();
    }

    /// Makes room for the gradients by the values, and by the input if somebody wants that.
    pub(super) fn fit_gradients(&mut self, network: &Network, n: usize, with_input: bool) {
        fit(&mut self.gradients, network, &network.plan.gradients, n, usize::from(!with_input && network.output != 0));
    }

    /// Exchanges with another space what nobody relies on between two calls.
    pub(super) fn swap_tools(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.scratch, &mut other.scratch);
        std::mem::swap(&mut self.shared, &mut other.shared);
    }
}

/// Gives every value from `first` on as many numbers as its extent says.
fn fit(vectors: &mut Vec<Vec<f32>>, network: &Network, extents: &[Extent], n: usize, first: usize) {
    vectors.resize_with(network.lens.len(), Vec::new);
    for ((vector, extent), len) in vectors.iter_mut().zip(extents).zip(&network.lens).skip(first) {
        let samples = match extent {
            Extent::Chunk(chunk) => n.min(*chunk),
            Extent::Batch => n,
        };
        vector.resize(samples * len, 0.0);
    }
}
