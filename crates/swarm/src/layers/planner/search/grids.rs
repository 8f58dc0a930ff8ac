//! The grids of peers that may hold a group.

use std::ops::Range;

use crate::layers::planner::profile::{most_columns, most_rows};
use crate::layers::planner::question::Question;

/// Which grids are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grids {
    /// Single peers only.
    Single,
    /// All.
    All,
}

/// The grids worth trying for some layers.
pub(super) fn grids(question: &Question<'_>, layers: &Range<usize>, n_slots: usize) -> Vec<(usize, usize)> {
    let n_rows = most_rows(question.spec, layers, question.batch);
    // Blocks of samples are those of the whole batch, even where only one is allowed.
    let rows = block_counts(question.batch, n_slots.min(n_rows));
    let columns = match most_columns(question.spec, layers) {
        1 => vec![1],
        n_outputs => block_counts(n_outputs, n_slots),
    };
    let grids = rows.iter().flat_map(|rows| columns.iter().map(|columns| (*rows, *columns)));
    grids.filter(|(rows, columns)| rows * columns <= n_slots).collect()
}

/// The numbers of blocks worth trying: each makes the largest block smaller than the one before does.
pub(super) fn block_counts(n: usize, most: usize) -> Vec<usize> {
    thinned((1..=n.min(most)).filter(|k| *k == 1 || n.div_ceil(*k) < n.div_ceil(*k - 1)))
}

/// All small numbers, and of the large ones every so many.
pub(super) fn thinned(numbers: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = Vec::new();
    for number in numbers {
        if number <= 8 || kept.last().is_none_or(|last| 5 * number >= 6 * last) {
            kept.push(number);
        }
    }
    kept
}
