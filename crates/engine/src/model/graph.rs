//! What a network is made of: steps over numbered values, and tensors with names.

use std::ops::Range;

use super::join::Join;
use super::layer::{Layer, Tensor};

/// Why a description is no network.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}")]
pub struct ModelError {
    /// Which layer.
    pub place: String,
    /// What is wrong with it, and what to do.
    pub problem: String,
}

/// What a step does.
pub(super) enum Op {
    /// A layer's function of one value.
    Layer(Box<dyn Layer>),
    /// One of two values.
    Join(Join),
}

/// One step: from values to a value.
pub(super) struct Step {
    pub op: Op,
    pub inputs: Vec<usize>,
    pub output: usize,
    /// Where its parameters, its running statistics and its prepared numbers lie.
    pub params: Range<usize>,
    pub buffers: Range<usize>,
    pub prepared: Range<usize>,
    pub weights: Weights,
    pub name: String,
    pub kind: &'static str,
}

/// Whose parameters a step uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weights {
    /// Its own.
    Own,
    /// Its own, which a later step uses as well.
    Lent,
    /// An earlier step's.
    Borrowed {
        /// Which step's.
        from: usize,
    },
}

/// A tensor with its full name and its place in the flat vector.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Its name in a checkpoint.
    pub name: String,
    /// Its shape and layout.
    pub tensor: Tensor,
    /// Where it lies in the flat vector.
    pub range: Range<usize>,
}
