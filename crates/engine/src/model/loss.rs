//! Softmax cross-entropy: how far the network's opinion is from the labels, and the gradient that follows.

use std::collections::BTreeMap;
use std::ops::AddAssign;

/// How many metrics of its own a task may have.
pub const MOST_METRICS: usize = 4;

/// What a network did on some samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// The samples' losses added up.
    pub loss_sum: f64,
    /// How many samples were classified correctly.
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

/// Scores the outputs against the labels.
pub(super) fn score(logits: &[f32], labels: &[u32], n_classes: usize) -> Score {
    let rows = logits.chunks_exact(n_classes).zip(labels);
    rows.map(|(row, &label)| score_one(row, label as usize)).fold(Score::default(), |mut total, score| {
        total += score;
        total
    })
}

/// The gradient of the batch's mean loss by the outputs.
pub(super) fn gradient(logits: &[f32], labels: &[u32], n_classes: usize, batch_len: usize, gradient: &mut [f32]) {
    let rows = logits.chunks_exact(n_classes).zip(gradient.chunks_exact_mut(n_classes)).zip(labels);
    for ((row, gradient), &label) in rows {
        let highest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        for (g, x) in gradient.iter_mut().zip(row) {
            *g = (x - highest).exp();
        }
        let total: f32 = gradient.iter().sum();
        gradient.iter_mut().for_each(|g| *g /= total * batch_len as f32);
        gradient[label as usize] -= 1.0 / batch_len as f32;
    }
}

/// The index of the largest output; the first of equals.
pub fn best_class(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best })
}

fn score_one(row: &[f32], label: usize) -> Score {
    let highest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let total: f64 = row.iter().map(|&x| (f64::from(x) - highest).exp()).sum();
    let loss = total.ln() + highest - f64::from(row[label]);
    Score { loss_sum: loss, n_correct: usize::from(best_class(row) == label), n: 1, ..Score::default() }
}
