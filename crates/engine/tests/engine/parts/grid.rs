//! A network run by hand as groups of layers, each on a grid of parts: what peers will do, without the peers.

use std::ops::Range;

use nettorrent_engine::data::{Batch, Targets};
use nettorrent_engine::model::{
    LayerSpec, Loss, Mode, ModelSpec, Network, Part, PartSpec, Pass, Rows, Score, Workspace, loss_gradient,
};
use nettorrent_engine::rng::Rng;
use serde_json::Value;

/// Layers, and how many rows and columns of parts share them.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub layers: Range<usize>,
    pub rows: usize,
    pub columns: usize,
}

/// What comes out of a forward pass and down.
pub(crate) struct Outcome {
    pub score: Score,
    pub gradient: Vec<f32>,
}

pub(crate) fn model(input: &[usize], layers: Value) -> ModelSpec {
    let layers: Vec<LayerSpec> = serde_json::from_value(layers).expect("the layers are well described");
    ModelSpec { input: input.to_vec(), layers }
}

pub(crate) fn workspace(n_threads: usize) -> Workspace {
    Workspace::new(n_threads).expect("a few threads can be had")
}

pub(crate) fn batch(network: &Network, n: usize) -> Batch {
    let mut rng = Rng::new(n as u64);
    let n_inputs = n * network.input().iter().product::<usize>();
    let inputs = (0..n_inputs).map(|_| rng.range(-1.0, 1.0)).collect();
    // A class for each of the positions that the network says something about.
    let n_labels = n * network.output_len() / network.n_classes();
    let classes = (0..n_labels).map(|_| rng.below(network.n_classes()) as u32).collect();
    Batch { n, inputs, targets: Targets::Classes(classes) }
}

/// One of `n` blocks of `len` things; the first ones get one more if they do not come out even.
pub(crate) fn block(k: usize, n: usize, len: usize) -> Range<usize> {
    let start = |k: usize| k * (len / n) + k.min(len % n);
    start(k)..start(k + 1)
}

pub(crate) fn parts(spec: &ModelSpec, group: &Group) -> Vec<Part> {
    let part = |column| PartSpec { layers: group.layers.clone(), column, columns: group.columns };
    (0..group.columns).map(|column| Part::new(spec, &part(column)).expect("this can be split")).collect()
}

/// A group that is being run.
struct Grid<'a> {
    group: &'a Group,
    parts: Vec<Part>,
    /// The whole network's.
    values: &'a [f32],
    /// Samples of the batch.
    n: usize,
}

impl<'a> Grid<'a> {
    fn new(spec: &ModelSpec, group: &'a Group, values: &'a [f32], n: usize) -> Self {
        Self { group, parts: parts(spec, group), values, n }
    }

    /// The samples of a row, and their place where a sample has `len` numbers.
    fn row(&self, k: usize, len: usize) -> (Rows, Range<usize>) {
        let samples = block(k, self.group.rows, self.n);
        let rows = Rows { first: samples.start, n: samples.len(), batch_len: self.n };
        (rows, samples.start * len..samples.end * len)
    }

    /// The forward pass: a pass for each part, row by row, and the whole output.
    fn up(&self, inputs: &[f32], mode: Mode, workspace: &mut Workspace) -> (Vec<Pass>, Vec<f32>) {
        let len = self.parts[0].outputs().whole_len();
        let (mut passes, mut outputs) = (Vec::new(), vec![f32::NAN; self.n * len]);
        for k in 0..self.group.rows {
            for part in &self.parts {
                let (rows, place) = self.row(k, part.input_len());
                let pass = part.forward(&part.take(self.values), inputs[place].to_vec(), rows, mode, workspace);
                part.outputs().put(pass.output(), &mut outputs[self.row(k, len).1]);
                passes.push(pass);
            }
        }
        (passes, outputs)
    }

    /// The backward pass: the gradient by the inputs, if there is somebody to want it. The gradients by the parts' own numbers are
    /// put in their places in `whole`.
    fn down(&self, mut passes: Vec<Pass>, gradient: &[f32], whole: &mut [f32], workspace: &mut Workspace) -> Vec<f32> {
        let is_wanted = self.group.layers.start > 0;
        let (len, input_len) = (self.parts[0].outputs().whole_len(), self.parts[0].input_len());
        let mut by_inputs = vec![0.0; if is_wanted { self.n * input_len } else { 0 }];
        let mut by_weights: Vec<Vec<f32>> = self.parts.iter().map(|part| vec![0.0; part.n_values()]).collect();
        for (i, pass) in passes.iter_mut().enumerate() {
            let (k, part) = (i / self.group.columns, &self.parts[i % self.group.columns]);
            let mine = part.outputs().take(&gradient[self.row(k, len).1]);
            let result = part.input_gradient(&part.take(self.values), pass, &mine, is_wanted, workspace);
            if is_wanted {
                add(&mut by_inputs[self.row(k, input_len).1], &result);
            } else {
                assert!(result.is_empty());
            }
        }
        // Only after all gradients by inputs, as peers who wait for these want it.
        for (i, pass) in passes.into_iter().enumerate() {
            let part = &self.parts[i % self.group.columns];
            let mut result = vec![f32::NAN; part.n_values()];
            part.weight_gradient(&part.take(self.values), pass, &mut result, workspace);
            add(&mut by_weights[i % self.group.columns], &result);
        }
        self.parts.iter().zip(&by_weights).for_each(|(part, gradient)| part.put(gradient, whole));
        by_inputs
    }
}

fn add(sums: &mut [f32], others: &[f32]) {
    assert_eq!(sums.len(), others.len());
    sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
}

/// Everything, by parts.
pub(crate) fn by_parts(
    spec: &ModelSpec,
    groups: &[Group],
    values: &[f32],
    batch: &Batch,
    seed: u64,
    workspace: &mut Workspace,
) -> Outcome {
    let n = batch.len();
    let grids: Vec<Grid<'_>> = groups.iter().map(|group| Grid::new(spec, group, values, n)).collect();
    let (mut flow, mut passes) = (batch.inputs.clone(), Vec::new());
    for grid in &grids {
        let (grid_passes, outputs) = grid.up(&flow, Mode::Train { seed }, workspace);
        passes.push(grid_passes);
        flow = outputs;
    }
    let outputs = flow;
    let (score, mut flow) = loss_gradient(&Loss::default(), &outputs, batch.targets.rows(), n, n);
    let mut gradient = vec![f32::NAN; values.len()];
    for (grid, passes) in grids.iter().zip(passes).rev() {
        flow = grid.down(passes, &flow, &mut gradient, workspace);
    }
    Outcome { score, gradient }
}

/// What parts say about samples when nothing is learnt.
pub(crate) fn test_by_parts(
    spec: &ModelSpec,
    groups: &[Group],
    values: &[f32],
    batch: &Batch,
    workspace: &mut Workspace,
) -> Vec<f32> {
    groups.iter().fold(batch.inputs.clone(), |flow, group| {
        Grid::new(spec, group, values, batch.len()).up(&flow, Mode::Test, workspace).1
    })
}

/// How far two vectors are apart at most, as a share of the largest number in them.
pub(crate) fn distance(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    let largest = left.iter().chain(right).fold(0.0_f32, |largest, x| largest.max(x.abs()));
    // A NaN anywhere is as far away as can be.
    let apart = |(l, r): (&f32, &f32)| if (l - r).is_nan() { f32::INFINITY } else { (l - r).abs() };
    let most = left.iter().zip(right).map(apart).fold(0.0, f32::max);
    if most == 0.0 { 0.0 } else { most / largest }
}

/// Asserts that parts give what the whole gives, up to a share of the largest number.
pub(crate) fn assert_as_whole(name: &str, spec: &ModelSpec, groups: &[Group], n: usize, tolerance: f32) {
    let network = Network::new(spec).expect("the network can be built");
    let mut values = network.init(&mut Rng::new(1));
    // Biases and statistics that start as zero or one would hide a mistake in their places.
    let mut rng = Rng::new(2);
    for tensor in network.tensors().iter().filter(|tensor| tensor.tensor.shape.len() == 1) {
        values[tensor.range.clone()].iter_mut().for_each(|value| *value += rng.range(0.0, 0.2));
    }
    let (batch, seed) = (batch(&network, n), 9);
    let mut gradient = vec![f32::NAN; network.n_values()];
    let score = network.gradient(&values, &batch, seed, &mut gradient, &mut workspace(1));
    let (outputs, _) = network.predict(&values, &batch, &mut workspace(1));
    for n_threads in [1, 2] {
        let what = format!("{name} of {n} samples with {n_threads} threads on {groups:?}");
        let mut workspace = workspace(n_threads);
        let found = by_parts(spec, groups, &values, &batch, seed, &mut workspace);
        assert_eq!((found.score.n, found.score.n_correct), (score.n, score.n_correct), "{what}");
        let apart = (found.score.loss() - score.loss()).abs();
        assert!(apart <= f64::from(tolerance) * (1.0 + score.loss()), "{what}: the losses are {apart} apart");
        let trained = 0..network.n_params();
        let apart = distance(&found.gradient[trained.clone()], &gradient[trained]);
        assert!(apart <= tolerance, "{what}: the gradients are {apart} apart");
        let statistics = network.n_params()..network.n_values();
        let apart = distance(&found.gradient[statistics.clone()], &gradient[statistics]);
        assert!(apart <= tolerance, "{what}: the statistics are {apart} apart");
        let apart = distance(&test_by_parts(spec, groups, &values, &batch, &mut workspace), &outputs);
        assert!(apart <= tolerance, "{what}: the outputs are {apart} apart");
    }
}
