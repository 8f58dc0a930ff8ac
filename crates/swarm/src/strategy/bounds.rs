//! How much of a change counts, where changes are told batch by batch and clipped to the median length.
//!
//! Whoever hears a change must make the same of it as all others, or replicas would drift apart. So the bound does not follow from
//! what happens to have come by then, but from the lengths of what all peers told of one batch: the same one, if all go in step, or
//! the one by whose number they may be apart before it. A change waits until these are known. Nobody waits for ever: whoever is furthest
//! behind has been told all that it needs to go on.

use std::collections::BTreeMap;

use super::clipping::{clip_factor, median_norm};

/// The lengths of what peers told, by batch and rank, as far as they are needed.
#[derive(Default)]
pub(super) struct Bounds {
    n_peers: usize,
    /// By how many batches peers may be apart.
    lag: u32,
    norms: BTreeMap<u32, Vec<Option<f64>>>,
}

impl Bounds {
    /// Nobody has told anything.
    pub(super) fn new(n_peers: usize, lag: u32) -> Self {
        Self { n_peers, lag, norms: BTreeMap::new() }
    }

    /// A peer has told of one of its batches.
    pub(super) fn told(&mut self, rank: usize, batch: u32, norm: f64) {
        self.norms.entry(batch).or_insert_with(|| vec![None; self.n_peers])[rank] = Some(norm);
    }

    /// By what a change is multiplied; `None` as long as that is not known.
    pub(super) fn factor(&self, rank: usize, batch: u32) -> Option<f32> {
        let norm = (*self.norms.get(&batch)?.get(rank)?)?;
        let told: Option<Vec<f64>> = self.norms.get(&batch.saturating_sub(self.lag))?.iter().copied().collect();
        // Where nobody told anything, nothing is known to be too long.
        Some(clip_factor(norm, median_norm(told?.into_iter()).unwrap_or(norm)))
    }

    /// Everybody's changes up to this batch have been taken.
    pub(super) fn forget_before(&mut self, batch: u32) {
        self.norms = self.norms.split_off(&batch.saturating_sub(self.lag));
    }
}

#[cfg(test)]
mod tests {
    use super::Bounds;

    #[test]
    fn a_change_waits_for_the_lengths_that_it_is_measured_by() {
        let mut bounds = Bounds::new(3, 0);
        bounds.told(0, 0, 2.0);
        bounds.told(2, 0, 50.0);
        assert_eq!(bounds.factor(0, 0), None);
        bounds.told(1, 0, 1.0);
        assert_eq!([0, 1, 2].map(|rank| bounds.factor(rank, 0)), [Some(1.0), Some(1.0), Some(0.04)]);
        assert_eq!(bounds.factor(0, 1), None);
        bounds.forget_before(1);
        assert_eq!(bounds.factor(0, 0), None);
    }

    #[test]
    fn where_peers_are_apart_an_earlier_batch_is_the_measure() {
        let mut bounds = Bounds::new(2, 2);
        bounds.told(0, 0, 1.0);
        bounds.told(1, 0, 1.0);
        bounds.told(0, 2, 4.0);
        assert_eq!(bounds.factor(0, 2), Some(0.25), "nobody has to have told of batch 2 but itself");
        bounds.told(0, 3, 4.0);
        assert_eq!(bounds.factor(0, 3), None, "batch 1 is not known");
        bounds.forget_before(2);
        assert_eq!(bounds.factor(0, 2), Some(0.25), "batch 0 is still needed");
    }
}
