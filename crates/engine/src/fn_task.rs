//! A task from a function of one sample: the shortest way to train something of one's own.

use std::ops::Range;
use std::sync::Arc;

use crate::model::{Layout, MOST_METRICS, Score};
use crate::stateless::{Stateless, StatelessWorker};
use crate::task::{GradientSink, Task, Worker};
use crate::train_error::TrainError;

/// A sample, by its index in its set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Of the training set.
    Train(usize),
    /// Of the test set.
    Test(usize),
}

/// A task from a function of one sample.
///
/// `sample(values, which, gradient)` says how well the model with these values does on a sample and, if there is a gradient, adds to
/// it that of the sample's loss.
///
/// ```
/// use nettorrent_engine::fn_task::{FnTask, Sample};
/// use nettorrent_engine::model::{Layout, Score};
/// // Finds the mean of the numbers 0 to 9.
/// let task = FnTask::new(Layout::of_tensors([("mean", [1].as_slice())]), vec![0; 10], 1, |values, which, gradient| {
///     let (Sample::Train(k) | Sample::Test(k)) = which;
///     let off = values[0] - k as f32;
///     if let Some(gradient) = gradient {
///         gradient[0] += off;
///     }
///     Score { loss_sum: f64::from(off * off / 2.0), n_correct: usize::from(off.abs() < 0.5), n: 1, ..Score::default() }
/// });
/// ```
pub struct FnTask<F> {
    layout: Layout,
    labels: Vec<u32>,
    n_test: usize,
    metrics: Vec<String>,
    sample: F,
}

impl<F: Fn(&[f32], Sample, Option<&mut [f32]>) -> Score + Send + Sync + 'static> FnTask<F> {
    /// A task whose training samples have these labels. All values begin at 0.
    pub fn new(layout: Layout, labels: Vec<u32>, n_test: usize, sample: F) -> Self {
        Self { layout, labels, n_test, metrics: Vec::new(), sample }
    }

    /// The same with metrics of its own, by these names: [`Score::metrics`] has one after the other.
    ///
    /// # Panics
    /// If there are more than [`MOST_METRICS`].
    #[must_use]
    pub fn with_metrics<const N: usize>(self, names: [&str; N]) -> Self {
        assert!(N <= MOST_METRICS, "a task has at most {MOST_METRICS} metrics");
        Self { metrics: names.map(str::to_owned).to_vec(), ..self }
    }

    fn score_of(&self, values: &[f32], samples: impl Iterator<Item = Sample>) -> Score {
        let mut sum = Score::default();
        samples.for_each(|which| sum += (self.sample)(values, which, None));
        sum
    }
}

impl<F: Fn(&[f32], Sample, Option<&mut [f32]>) -> Score + Send + Sync + 'static> Task for FnTask<F> {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, _: u64) -> Vec<f32> {
        vec![0.0; self.layout.n_values()]
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn n_test(&self) -> usize {
        self.n_test
    }

    fn metrics(&self) -> &[String] {
        &self.metrics
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl<F: Fn(&[f32], Sample, Option<&mut [f32]>) -> Score + Send + Sync + 'static> Stateless for FnTask<F> {
    fn gradient(
        &self,
        values: &[f32],
        samples: &[usize],
        _: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let (mut gradient, mut sum) = (vec![0.0; self.n_values()], Score::default());
        for &k in samples {
            sum += (self.sample)(values, Sample::Train(k), Some(&mut gradient));
        }
        let share = 1.0 / samples.len().max(1) as f32;
        gradient.iter_mut().for_each(|number| *number *= share);
        self.buckets().iter().enumerate().for_each(|(k, bucket)| sink(k, &gradient[bucket.clone()]));
        Ok(sum)
    }

    fn score(&self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        Ok(self.score_of(values, samples.iter().map(|&k| Sample::Train(k))))
    }

    fn test(&self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        Ok(self.score_of(values, samples.map(Sample::Test)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{FnTask, Sample};
    use crate::model::{Layout, Score};
    use crate::task::Task;

    #[test]
    fn a_gradient_is_the_mean_over_its_samples() {
        let layout = Layout::of_tensors([("w", [2].as_slice())]);
        let task = FnTask::new(layout, vec![0, 1, 0], 2, |values, which, gradient| {
            let (Sample::Train(k) | Sample::Test(k)) = which;
            if let Some(gradient) = gradient {
                gradient[0] += k as f32;
                gradient[1] += values[1];
            }
            Score { loss_sum: k as f64, n_correct: usize::from(which == Sample::Test(1)), n: 1, ..Score::default() }
        });
        let mut worker = Arc::new(task).worker(1).unwrap();
        let mut gradient = Vec::new();
        let score =
            worker.gradient(&[0.0, 3.0], &[1, 2], 0, &mut |_, bucket| gradient.extend_from_slice(bucket)).unwrap();
        assert_eq!(
            (gradient, score),
            (vec![1.5, 3.0], Score { loss_sum: 3.0, n_correct: 0, n: 2, ..Score::default() })
        );
        assert_eq!(worker.score(&[0.0; 2], &[2]).unwrap().loss(), 2.0);
        assert_eq!(worker.test(&[0.0; 2], 0..2).unwrap().n_correct, 1);
    }
    #[test]
    fn metrics_of_its_own_are_means_over_samples() {
        let layout = Layout::of_tensors([("w", [1].as_slice())]);
        let task = FnTask::new(layout, vec![0; 4], 4, |_, which, _| {
            let (Sample::Train(k) | Sample::Test(k)) = which;
            Score { n: 1, metrics: [k as f64, f64::NAN, 7.0, 0.0], ..Score::default() }
        });
        let task = Arc::new(task.with_metrics(["mean index", "nothing"]));
        let mut worker = task.clone().worker(1).unwrap();
        let mut score = worker.test(&[0.0], 0..3).unwrap();
        score += worker.test(&[0.0], 3..4).unwrap();
        let named: Vec<(String, f64)> = score.named_metrics(task.metrics()).into_iter().collect();
        assert_eq!(named, [("mean index".to_owned(), 1.5)], "what is no number and what has no name are left out");
        assert!(Score::default().named_metrics(task.metrics()).is_empty(), "nothing is made up");
    }
}
