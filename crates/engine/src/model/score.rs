//! How a network did on some samples.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// How many metrics of its own a task may have.
pub const MOST_METRICS: usize = 4;

/// What a network did on some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The samples' losses added up.
    pub loss_sum: f64,
    /// How many samples were classified correctly; 0 where samples have no one class.
    pub n_correct: usize,
    /// How many samples there were.
    pub n: usize,
    /// What else the task measures, added up over the samples, in the order in which [`crate::task::Task::metrics`] names it.
    pub metrics: [f64; MOST_METRICS],
}

impl Score {
    /// The mean loss of a sample.
    pub fn loss(&self) -> f64 {
        self.loss_sum / self.n.max(1) as f64
    }

    /// The share that was classified correctly.
    pub fn accuracy(&self) -> f64 {
        self.n_correct as f64 / self.n.max(1) as f64
    }

    /// The mean of each metric, by these names; without those that are infinite or none.
    pub fn named_metrics(&self, names: &[String]) -> BTreeMap<String, f64> {
        let means = self.metrics.iter().map(|sum| sum / self.n.max(1) as f64);
        let named = names.iter().cloned().zip(means).filter(|(_, mean)| mean.is_finite() && self.n > 0);
        named.collect()
    }
}

impl AddAssign for Score {
    fn add_assign(&mut self, other: Self) {
        self.loss_sum += other.loss_sum;
        self.n_correct += other.n_correct;
        self.n += other.n;
        self.metrics.iter_mut().zip(other.metrics).for_each(|(sum, other)| *sum += other);
    }
}
