//! What a network is asked about samples: their classes or those of their positions, the next token at each position, or numbers.

use std::ops::Range;

/// A position of a sample that no answer is asked for.
pub const IGNORED: u32 = u32::MAX;

/// The right answers for the samples of a batch, one sample's after the other's.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// Classes: one a sample, or one for each of its positions; [`IGNORED`] where none is asked for.
    Classes(Vec<u32>),
    /// Numbers, as many a sample as the network has outputs.
    Numbers(Vec<f32>),
}

/// Some of a batch's targets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetRows<'a> {
    /// See [`Targets::Classes`].
    Classes(&'a [u32]),
    /// See [`Targets::Numbers`].
    Numbers(&'a [f32]),
}

impl Default for Targets {
    fn default() -> Self {
        Self::Classes(Vec::new())
    }
}

impl Targets {
    /// All of them.
    pub fn rows(&self) -> TargetRows<'_> {
        match self {
            Self::Classes(classes) => TargetRows::Classes(classes),
            Self::Numbers(numbers) => TargetRows::Numbers(numbers),
        }
    }

    /// Those of some samples, of `n` that these are the targets of.
    pub fn of(&self, samples: Range<usize>, n: usize) -> TargetRows<'_> {
        self.rows().of(samples, n)
    }
}

impl TargetRows<'_> {
    /// Those of some samples, of `n` that these are the targets of.
    pub fn of(self, samples: Range<usize>, n: usize) -> Self {
        let range = |len: usize| samples.start * (len / n.max(1))..samples.end * (len / n.max(1));
        match self {
            Self::Classes(classes) => Self::Classes(&classes[range(classes.len())]),
            Self::Numbers(numbers) => Self::Numbers(&numbers[range(numbers.len())]),
        }
    }
}

/// What kind of answer a data set asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum TargetKind {
    /// The class of each sample.
    #[default]
    Class,
    /// Which of the classes a sample belongs to, none, one or several: a 0 or 1 for each.
    Labels,
    /// So many numbers for each sample, or for each of its positions; their variance says how far off a constant guess would be.
    Numbers {
        /// How many.
        n: usize,
        /// How many positions a sample has that each get as many: the pixels of a picture, the steps of a sequence. 1 for the sample as
        /// a whole.
        n_positions: usize,
        /// The mean squared distance of the training samples' numbers from their mean.
        variance: f32,
    },
    /// The class of each position of a sample: of each pixel of a picture, of each step of a sequence.
    Positions {
        /// How many positions a sample has.
        n: usize,
    },
    /// The next token at each position; the classes are the vocabulary.
    Tokens,
}

impl TargetKind {
    /// How many outputs a network needs for data with so many classes; at each position, where it is asked about positions.
    pub fn n_outputs(self, n_classes: usize) -> usize {
        match self {
            Self::Class | Self::Labels | Self::Positions { .. } | Self::Tokens => n_classes,
            Self::Numbers { n, .. } => n,
        }
    }
}
