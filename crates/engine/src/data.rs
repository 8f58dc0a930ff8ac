//! Data sets: where samples come from, how they are shared out among peers and grouped into batches.

use std::path::PathBuf;

/// A number of samples, ready to be trained on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The samples one after the other, each laid out as [`Dataset::shape`] says (images: rows, columns, channels).
    pub inputs: Vec<f32>,
    /// The class of each sample.
    pub labels: Vec<u32>,
}

impl Batch {
    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// Labelled samples that can be asked for by index.
pub trait Dataset: Send + Sync {
    /// The shape of one sample: `[height, width, channels]`, `[steps, features]` or `[features]`.
    fn shape(&self) -> &[usize];
    /// The names of the classes; a label is an index into them.
    fn classes(&self) -> &[String];
    /// The label of every sample, known without reading the samples.
    fn labels(&self) -> &[u32];
    /// Reads the samples with these indices, in this order.
    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError>;

    /// How many samples there are.
    fn len(&self) -> usize {
        self.labels().len()
    }

    /// Whether there is no sample.
    fn is_empty(&self) -> bool {
        self.labels().is_empty()
    }
}

/// What is wrong with a data file, and where.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The operating system would not let us read it.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file was read but is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do about it.
        problem: String,
    },
}
