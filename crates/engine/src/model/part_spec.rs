//! Which part of a network a peer holds, and where its numbers lie in the whole.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Which part of a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartSpec {
    /// Which of the description's layers (those of the outermost list).
    pub layers: Range<usize>,
    /// Which block of the first layer's outputs, of how many.
    pub column: usize,
    /// See `column`.
    pub columns: usize,
}

/// Numbers that follow one another both in the part's vector and in the whole network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where they begin in the part's.
    pub mine: usize,
    /// Where they begin in the whole network's.
    pub whole: usize,
    /// How many.
    pub len: usize,
}
