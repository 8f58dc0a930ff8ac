//! Data sets: where samples come from, how they are split and grouped into batches.
//!
//! A reader turns files into a [`Dataset`]; [`source::open`] chooses the reader. A [`split`] cuts a set into
//! parts, and [`batches`] say in which order samples are trained. Both deal in indices and never touch a sample.

mod ahead;
mod all_cores;
mod answers;
mod arrays;
pub mod augment;
pub mod batches;
pub mod cifar;
mod columns;
pub mod csv;
pub mod decoders;
pub mod digits;
mod error;
mod files;
mod folders;
pub mod format;
mod holdout;
pub mod idx;
pub mod images;
pub mod in_memory;
pub mod info;
pub mod jsonl;
mod known;
pub mod mfcc;
mod names;
mod normalisation;
pub mod npy;
mod origins;
mod outside;
mod outside_table;
mod parquet;
mod parts;
mod picture;
mod pictures;
mod preparation;
mod shards;
pub mod source;
mod spec;
pub mod split;
mod subset;
mod table;
mod targets;
mod text;
pub mod wav;
mod zstd_pages;

use std::path::Path;

pub use all_cores::on_all_cores;
pub use error::DataError;
pub use outside::{OutsideSample, Tone};
pub use targets::{IGNORED, TargetKind, TargetRows, Targets};
pub use text::codec::TextCodec;
pub use text::tokens::Tokens;

/// A number of samples, ready to be trained on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// How many samples there are.
    pub n: usize,
    /// The samples one after the other, each laid out as [`Dataset::shape`] says (images: rows, columns, channels).
    pub inputs: Vec<f32>,
    /// What a network should say about them.
    pub targets: Targets,
}

impl Batch {
    /// Samples with a class each.
    pub fn labelled(inputs: Vec<f32>, labels: Vec<u32>) -> Self {
        Self { n: labels.len(), inputs, targets: Targets::Classes(labels) }
    }

    /// The samples' classes, or those of their positions; none where the targets are numbers.
    pub fn classes(&self) -> &[u32] {
        match &self.targets {
            Targets::Classes(classes) => classes,
            Targets::Numbers(_) => &[],
        }
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }
}

/// Which part of a data set is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// The samples to learn from.
    Train,
    /// The samples to judge by, never learned from.
    Test,
}

/// Samples that can be asked for by index, with what a network should say about them.
pub trait Dataset: Send + Sync {
    /// The shape of one sample: `[height, width, channels]`, `[steps, features]`, `[tokens]` or `[features]`.
    fn shape(&self) -> &[usize];
    /// The names of the classes; a label is an index into them.
    fn classes(&self) -> &[String];
    /// The label of every sample, known without reading the samples; 0 for all where samples have no one class.
    fn labels(&self) -> &[u32];
    /// What a network is asked about the samples.
    fn target(&self) -> TargetKind {
        TargetKind::Class
    }
    /// How text becomes the samples' tokens and tokens text; none where samples are no text.
    fn tokenizer(&self) -> Option<&TextCodec> {
        None
    }
    /// Reads the samples with these indices, in this order.
    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError>;

    /// Says which samples will be asked for after those of the next batch, so that what takes long may be done meanwhile. It changes no
    /// batch, only how soon it is there.
    fn prefetch(&self, indices: &[usize]) {
        let _ = indices;
    }

    /// What a network should say about the samples with these indices.
    fn targets(&self, indices: &[usize]) -> Result<Targets, DataError> {
        check_indices(indices, self.len())?;
        match self.target() {
            TargetKind::Class => Ok(Targets::Classes(indices.iter().map(|&index| self.labels()[index]).collect())),
            TargetKind::Labels | TargetKind::Numbers { .. } | TargetKind::Positions { .. } | TargetKind::Tokens => {
                Ok(self.batch(indices)?.targets)
            }
        }
    }

    /// Where a sample comes from, for people: its file, and the line where the file holds many. None where that is not known.
    fn origin(&self, index: usize) -> Option<String> {
        let _ = index;
        None
    }

    /// Reads a file that is no part of the set, prepared as the set's own samples are: a picture, a recording, a table with a
    /// sample in each row, or a text to be continued.
    fn read_samples(&self, path: &Path, tone: Tone) -> Result<Vec<OutsideSample>, DataError> {
        let _ = tone;
        Err(DataError::malformed(path, "cannot be read as a sample of this data set"))
    }

    /// Brings numbers that a network predicts to the units that the data have in their files.
    fn restore(&self, numbers: &mut [f32]) {
        let _ = numbers;
    }

    /// How many outputs a network needs for it; at each position, where it is asked about positions.
    fn n_outputs(&self) -> usize {
        self.target().n_outputs(self.classes().len())
    }

    /// How many samples there are.
    fn len(&self) -> usize {
        self.labels().len()
    }

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.labels().is_empty()
    }
}

/// Fails if an index is not below `n_samples`.
pub(crate) fn check_indices(indices: &[usize], n_samples: usize) -> Result<(), DataError> {
    match indices.iter().find(|&&index| index >= n_samples) {
        Some(&index) => Err(DataError::NoSuchSample { index, n_samples }),
        None => Ok(()),
    }
}
