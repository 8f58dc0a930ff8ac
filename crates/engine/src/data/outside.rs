//! Samples from files that are no part of a set.

use std::fmt::Debug;
use std::path::Path;

use super::DataError;

/// A sample from a file that is no part of the set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutsideSample {
    /// Its line or row in the file, counted from 1, where a file holds several.
    pub line: Option<u64>,
    /// Its values, laid out as those of the set are.
    pub inputs: Vec<f32>,
    /// Which of its positions is the last, where a network answers at each of them.
    pub position: Option<usize>,
}

impl OutsideSample {
    /// What a file holds as a whole.
    pub(crate) fn whole(inputs: Vec<f32>) -> Self {
        Self { inputs, ..Self::default() }
    }
}

/// Reads files that are no part of a set in memory; as raw as the set's own samples are before they are normalised.
pub(crate) trait OutsideReader: Debug + Send + Sync {
    /// The samples of a file.
    fn read(&self, path: &Path) -> Result<Vec<OutsideSample>, DataError>;
}

/// How light and dark are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// As they are.
    AsIs,
    /// Exchanged: a drawing in black on white becomes one in white on black, as in MNIST.
    Inverted,
}

impl Tone {
    /// Refuses to exchange light and dark in what has none.
    pub(crate) fn check_no_picture(self, path: &Path) -> Result<(), DataError> {
        match self {
            Self::AsIs => Ok(()),
            Self::Inverted => {
                let problem = "has no light and dark to exchange: this data set does not consist of pictures";
                Err(DataError::malformed(path, problem))
            }
        }
    }
}
