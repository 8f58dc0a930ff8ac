//! A network: an immutable function of a flat vector of parameters, as a list of steps over numbered values.

use std::ops::Range;

use serde::Serialize;

use super::graph::{NamedTensor, Op, Step, Weights};
use super::layer::Shape;
use super::loss::Loss;
use super::plan::Plan;
use crate::rng::Rng;

/// One line of a network's description for people.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerSummary {
    /// Its name in checkpoints.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// The shape of its output.
    pub output: Shape,
    /// How many numbers are trained.
    pub n_params: usize,
    /// Multiplications for one sample on the forward pass.
    pub n_multiplications: usize,
}

/// An architecture: an immutable function of a flat vector of parameters.
pub struct Network {
    pub(super) steps: Vec<Step>,
    /// Numbers per sample of each value; the first is the input, and `output` the last.
    pub(super) lens: Vec<usize>,
    pub(super) output: usize,
    pub(super) output_shape: Shape,
    pub(super) plan: Plan,
    pub(super) n_prepared: usize,
    pub(super) shapes: Vec<Shape>,
    pub(super) input: Shape,
    pub(super) tensors: Vec<NamedTensor>,
    pub(super) n_params: usize,
    pub(super) n_values: usize,
    pub(super) loss: Loss,
}

impl Network {
    /// How many numbers are trained.
    pub fn n_params(&self) -> usize {
        self.n_params
    }

    /// Length of the flat vector: the trained numbers, then the running statistics.
    pub fn n_values(&self) -> usize {
        self.n_values
    }

    /// The shape of a sample.
    pub fn input(&self) -> &[usize] {
        &self.input
    }

    /// The same network, trained for another loss than cross-entropy.
    #[must_use]
    pub fn with_loss(self, loss: Loss) -> Self {
        Self { loss, ..self }
    }

    /// What it is trained for.
    pub fn loss(&self) -> &Loss {
        &self.loss
    }

    /// The shape of what it says about a sample: `[classes]`, or `[positions, classes]`.
    pub fn output(&self) -> &[usize] {
        &self.output_shape
    }

    /// How many numbers that is.
    pub fn output_len(&self) -> usize {
        self.lens[self.output]
    }

    /// How many classes it tells apart, or how many numbers it predicts.
    pub fn n_classes(&self) -> usize {
        self.output().last().copied().unwrap_or(1)
    }

    /// How many symbols its inputs name, if it begins with an embedding.
    pub fn n_symbols(&self) -> Option<usize> {
        let first = self.steps.first().filter(|step| step.kind == "embedding")?;
        Some(first.params.len() / self.shapes[first.output].last().copied().unwrap_or(1).max(1))
    }

    /// Its tensors in the order of the flat vector.
    pub fn tensors(&self) -> &[NamedTensor] {
        &self.tensors
    }

    /// Its layers for people to read, in the order in which they run.
    pub fn summary(&self) -> Vec<LayerSummary> {
        let line = |step: &Step| LayerSummary {
            name: step.name.clone(),
            kind: step.kind,
            output: self.shapes[step.output].clone(),
            n_params: if matches!(step.weights, Weights::Borrowed { .. }) { 0 } else { step.params.len() },
            n_multiplications: match &step.op {
                Op::Layer(layer) => layer.n_multiplications(),
                Op::Join(_) => 0,
            },
        };
        self.steps.iter().map(line).collect()
    }

    /// Where the trained numbers of these steps begin, if they have any.
    pub(super) fn first_param(&self, steps: Range<usize>) -> Option<usize> {
        self.own_params(steps).next().map(|params| params.start)
    }

    /// The ranges of the trained numbers that belong to these steps.
    pub(super) fn own_params(&self, steps: Range<usize>) -> impl DoubleEndedIterator<Item = &Range<usize>> {
        let own = self.steps[steps].iter().filter(|step| !matches!(step.weights, Weights::Borrowed { .. }));
        own.map(|step| &step.params).filter(|params| !params.is_empty())
    }

    /// A flat vector to start training from.
    pub fn init(&self, rng: &mut Rng) -> Vec<f32> {
        let mut values = vec![0.0; self.n_values];
        // In the order of names, not of places, so that the trained numbers come out the same with or without statistics.
        for NamedTensor { tensor, range, .. } in &self.tensors {
            values[range.clone()].iter_mut().for_each(|value| *value = tensor.init.draw(rng));
        }
        values
    }
}
