//! A batch by its place in a plan.

use std::sync::Arc;

use crate::sampling::plan::Plan;

/// A batch by its place in a plan, and how a peer counts it.
#[derive(Clone, Debug)]
pub struct BatchPlace {
    /// Who trains what.
    pub plan: Arc<Plan>,
    /// Whose batch, by its place among those who share out the samples.
    pub slot: usize,
    /// Which of its batches.
    pub batch: usize,
    /// The peer's how many-th batch it is.
    pub step: u64,
}

impl BatchPlace {
    /// Its training samples.
    pub fn samples(&self) -> &[usize] {
        self.plan.batch(self.slot, self.batch)
    }

    /// Those of the batch after it, as far as the plan says.
    pub fn next_samples(&self) -> &[usize] {
        if self.batch + 1 < self.plan.n_batches(self.slot) { self.plan.batch(self.slot, self.batch + 1) } else { &[] }
    }
}
