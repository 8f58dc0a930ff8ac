//! A test stand for a single layer: it runs the layer as a network would, and hands it nothing that it did not ask for.

use std::ops::Range;

use nettorrent_engine::model::{Backward, Context, Layer, Mode, Role, Scratch, Tensor};

/// A layer with its parameters and a number of samples to run.
pub(crate) struct Stand<'a> {
    layer: &'a dyn Layer,
    params: &'a [f32],
    buffers: Vec<f32>,
    prepared: Vec<f32>,
    /// Numbers per sample in the output.
    n_outputs: usize,
    n: usize,
}

/// What came down.
pub(crate) struct Gradients {
    /// By the input.
    pub(crate) input: Vec<f32>,
    /// By the parameters.
    pub(crate) weights: Vec<f32>,
}

/// How many numbers of a layer are trained.
pub(crate) fn n_params(layer: &dyn Layer) -> usize {
    count(layer, Role::Parameter)
}

fn count(layer: &dyn Layer, role: Role) -> usize {
    layer.tensors().iter().filter(|tensor| tensor.role == role).map(Tensor::len).sum()
}

impl<'a> Stand<'a> {
    pub(crate) fn new(layer: &'a dyn Layer, params: &'a [f32], n_outputs: usize, n: usize) -> Self {
        // What a layer does not write, it must not read: the prepared numbers start as no numbers.
        let mut prepared = vec![f32::NAN; layer.n_prepared()];
        layer.prepare(params, &mut prepared);
        Self { layer, params, buffers: vec![0.0; count(layer, Role::Buffer)], prepared, n_outputs, n }
    }

    /// The outputs.
    pub(crate) fn up(&self, x: &[f32]) -> Vec<f32> {
        let sums = self.gather(x);
        let mut y = vec![f32::NAN; self.n * self.n_outputs];
        for part in self.parts() {
            let context = self.context(&part, &sums, &[]);
            self.layer.forward(&context, self.cut(x, &part), cut_mut(&mut y, self.n, &part), &mut used_scratch());
        }
        y
    }

    /// The gradients of the sum of `dy * y`.
    pub(crate) fn down(&self, x: &[f32], dy: &[f32]) -> Gradients {
        let (y, sums) = (self.up(x), self.gather(x));
        let gradient_sums = self.gather_gradient(x, &y, dy, &sums);
        let mut input = vec![f32::NAN; x.len()];
        // Weight gradients are added to what is there.
        let mut weights = vec![1.0; self.params.len()];
        for part in self.parts() {
            let context = self.context(&part, &sums, &gradient_sums);
            let back = self.back(x, &y, dy, &part);
            self.layer.input_gradient(&context, back, cut_mut(&mut input, self.n, &part), &mut used_scratch());
            self.layer.weight_gradient(&context, back, &mut weights, &mut used_scratch());
        }
        if let Some(statistics) = self.layer.statistics() {
            statistics.finish_gradient(&self.context(&(0..self.n), &sums, &gradient_sums), &mut weights);
        }
        weights.iter_mut().for_each(|weight| *weight -= 1.0);
        Gradients { input, weights }
    }

    /// Layers that do not mind get the batch in two uneven parts.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let first = if self.layer.wants_whole_batch() { 0 } else { self.n / 3 };
        [0..first, first..self.n].into_iter().filter(|part| !part.is_empty())
    }

    fn gather(&self, x: &[f32]) -> Vec<f64> {
        let Some(statistics) = self.layer.statistics() else { return Vec::new() };
        let mut sums = vec![0.0; statistics.n_sums()];
        for part in self.parts() {
            statistics.gather(&self.context(&part, &[], &[]), self.cut(x, &part), &mut sums);
        }
        sums
    }

    fn gather_gradient(&self, x: &[f32], y: &[f32], dy: &[f32], sums: &[f64]) -> Vec<f64> {
        let Some(statistics) = self.layer.statistics() else { return Vec::new() };
        let mut gradient_sums = vec![0.0; statistics.n_sums()];
        for part in self.parts() {
            let back = self.back(x, y, dy, &part);
            statistics.gather_gradient(&self.context(&part, sums, &[]), back, &mut gradient_sums);
        }
        gradient_sums
    }

    fn context<'b>(&'b self, part: &Range<usize>, sums: &'b [f64], gradient_sums: &'b [f64]) -> Context<'b> {
        Context {
            params: self.params,
            buffers: &self.buffers,
            prepared: &self.prepared,
            mode: Mode::Train { seed: 5 },
            n: part.len(),
            first: part.start,
            batch_len: self.n,
            sums,
            before: nettorrent_engine::kernel::Before::Kept,
            gradient_sums,
        }
    }

    /// Only what the layer says it keeps.
    fn back<'b>(&self, x: &'b [f32], y: &'b [f32], dy: &'b [f32], part: &Range<usize>) -> Backward<'b> {
        let keeps = self.layer.keeps();
        Backward {
            x: if keeps.input { self.cut(x, part) } else { &[] },
            y: if keeps.output { self.cut(y, part) } else { &[] },
            dy: self.cut(dy, part),
            dx: &[],
        }
    }

    fn cut<'b>(&self, numbers: &'b [f32], part: &Range<usize>) -> &'b [f32] {
        let len = numbers.len() / self.n;
        &numbers[part.start * len..part.end * len]
    }
}

fn cut_mut<'b>(numbers: &'b mut [f32], n: usize, part: &Range<usize>) -> &'b mut [f32] {
    let len = numbers.len() / n;
    &mut numbers[part.start * len..part.end * len]
}

/// Nobody may rely on what is in the scratch room.
fn used_scratch() -> Scratch {
    let mut scratch = Scratch::default();
    scratch.take(10_000).fill(f32::NAN);
    scratch
}
