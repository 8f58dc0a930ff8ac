//! The grids of peers that may hold a stage.

use std::ops::Range;

use crate::planner::profile::{most_batch_shards, most_tensor_shards};
use crate::planner::question::Question;

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
    let n_rows = most_batch_shards(question.spec, layers, question.batch);
    // Blocks of samples are those of the whole batch, even where only one is allowed.
    let batch_shards = block_counts(question.batch, n_slots.min(n_rows));
    let tensor_shards = match most_tensor_shards(question.spec, layers) {
        1 => vec![1],
        n_outputs => block_counts(n_outputs, n_slots),
    };
    let grids = batch_shards
        .iter()
        .flat_map(|batch_shards| tensor_shards.iter().map(|tensor_shards| (*batch_shards, *tensor_shards)));
    grids.filter(|(batch_shards, tensor_shards)| batch_shards * tensor_shards <= n_slots).collect()
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
