//! Things in a row, cut into parts of equal length as far as they come out even.
//!
//! There are two rules, because both decide who has which sample or sends which number, and so what a run computes.

use std::ops::Range;

/// Part `k` of `n` parts of `len` things: the first ones have one more if they do not come out even.
///
/// ```
/// use nettorrent_engine::partition::block;
/// let all: Vec<_> = (0..4).map(|k| block(k, 4, 10)).collect();
/// assert_eq!(all, [0..3, 3..6, 6..8, 8..10]);
/// assert_eq!(block(2, 3, 2), 2..2);
/// ```
pub fn block(k: usize, n: usize, len: usize) -> Range<usize> {
    let start = |k: usize| k * (len / n) + k.min(len % n);
    start(k)..start(k + 1)
}

/// Part `k` of `n` parts of `len` things: the longer ones lie evenly among the others, so that each begins at `k * len / n`.
///
/// ```
/// use nettorrent_engine::partition::even;
/// let all: Vec<_> = (0..4).map(|k| even(k, 4, 10)).collect();
/// assert_eq!(all, [0..2, 2..5, 5..7, 7..10]);
/// ```
pub fn even(k: usize, n: usize, len: usize) -> Range<usize> {
    // Quotient and remainder apart: the product of `k` and `len` may have more bits than there are.
    let start = |k: usize| k * (len / n) + k * (len % n) / n;
    start(k)..start(k + 1)
}
