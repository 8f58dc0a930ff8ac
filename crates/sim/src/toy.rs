//! A toy to learn: softmax regression on points around seeded centres, small enough for a thousand peers and for a test.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::data::DataError;
use nettorrent_engine::model::{Layout, Score};
use nettorrent_engine::rng::Rng;
use nettorrent_engine::stateless::{Stateless, StatelessWorker};
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;

/// How large a toy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToySize {
    /// Numbers in a sample.
    pub n_features: usize,
    /// Classes.
    pub n_classes: usize,
    /// Samples to learn from.
    pub n_train: usize,
    /// Samples to judge by.
    pub n_test: usize,
}

impl Default for ToySize {
    fn default() -> Self {
        Self { n_features: 8, n_classes: 4, n_train: 120, n_test: 50 }
    }
}

/// Points around a centre for each class, some way off the origin, and a linear model that tells them apart.
///
/// It has all that a network has for those who exchange it: trained numbers (a matrix and a bias), then running statistics
/// (the features' mean, which is taken off the samples), and buckets that come from the end of the vector, of uneven lengths.
///
/// ```
/// use nettorrent_engine::task::Task;
/// use nettorrent_sim::Toy;
/// let toy = Toy::new(1);
/// assert_eq!((toy.n_params(), toy.n_values()), (8 * 4 + 4, 8 * 4 + 4 + 8));
/// assert!(toy.buckets().len() > 1);
/// ```
pub struct Toy {
    size: ToySize,
    train: Vec<f32>,
    labels: Vec<u32>,
    test: Vec<f32>,
    test_labels: Vec<u32>,
    layout: Layout,
}

/// How fast the running mean follows a batch's.
const MOMENTUM: f32 = 0.1;

impl Toy {
    /// A toy of the usual size.
    pub fn new(seed: u64) -> Self {
        Self::with_size(ToySize::default(), seed)
    }

    /// A toy of any size, in three buckets of about a tenth, a third and the rest.
    pub fn with_size(size: ToySize, seed: u64) -> Self {
        let ToySize { n_features, n_classes, n_train, n_test } = size;
        let mut rng = Rng::stream(seed, "toy", 0);
        let centres: Vec<f32> = (0..n_classes * n_features).map(|_| 1.2 * rng.normal()).collect();
        let mut points = |n: usize| -> (Vec<f32>, Vec<u32>) {
            let labels: Vec<u32> = (0..n).map(|_| rng.below(n_classes) as u32).collect();
            let centre = |label: &u32| &centres[*label as usize * n_features..][..n_features];
            let points = labels.iter().flat_map(centre).map(|x| x + 2.0 + rng.normal()).collect();
            (points, labels)
        };
        let ((train, labels), (test, test_labels)) = (points(n_train), points(n_test));
        let n_params = (n_features + 1) * n_classes;
        let layout = Layout::flat(n_params, n_params + n_features, Vec::new());
        let n = layout.n_values();
        let toy = Self { size, train, labels, test, test_labels, layout };
        toy.with_buckets(&[n / 10, n / 3, n - n / 10 - n / 3])
    }

    /// The same toy, its vector handed over in buckets of these lengths, counted from the end.
    ///
    /// # Panics
    /// If they are not as long as the vector together.
    #[must_use]
    pub fn with_buckets(self, lens: &[usize]) -> Self {
        assert_eq!(lens.iter().sum::<usize>(), self.n_values(), "buckets cover the vector once");
        let mut end = self.n_values();
        let bucket = |&len: &usize| {
            end -= len;
            end..end + len
        };
        let buckets = lens.iter().map(bucket).filter(|bucket| !bucket.is_empty()).collect();
        let layout = Layout::flat(self.n_params(), self.n_values(), buckets);
        Self { layout, ..self }
    }

    /// A sample with the running mean taken off, into `features`; and the model's answer to it, into `outputs`.
    fn answer(&self, values: &[f32], sample: &[f32], features: &mut [f32], outputs: &mut [f32]) {
        let ToySize { n_features, n_classes, .. } = self.size;
        let (weights, rest) = values.split_at(n_features * n_classes);
        let (bias, mean) = rest.split_at(n_classes);
        outputs.copy_from_slice(bias);
        for (k, feature) in features.iter_mut().enumerate() {
            *feature = sample[k] - mean[k];
            let row = &weights[k * n_classes..][..n_classes];
            outputs.iter_mut().zip(row).for_each(|(output, weight)| *output += *feature * weight);
        }
    }

    fn sample(&self, index: usize) -> Result<&[f32], TrainError> {
        let n_samples = self.labels.len();
        let sample = self.train.chunks_exact(self.size.n_features.max(1)).nth(index);
        sample.ok_or(TrainError::Data(DataError::NoSuchSample { index, n_samples }))
    }
}

impl Task for Toy {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        let mut rng = Rng::stream(seed, "init", 0);
        let mut values: Vec<f32> = (0..self.n_params()).map(|_| 0.1 * rng.normal()).collect();
        values.resize(self.n_values(), 0.0);
        values
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn n_test(&self) -> usize {
        self.test_labels.len()
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Ok(Box::new(StatelessWorker(self)))
    }
}

impl Stateless for Toy {
    fn gradient(
        &self,
        values: &[f32],
        indices: &[usize],
        _: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let ToySize { n_features, n_classes, .. } = self.size;
        let (mut features, mut outputs) = (vec![0.0; n_features], vec![0.0; n_classes]);
        let mut score = Score::default();
        let mut gradient = vec![0.0; self.n_values()];
        let share = 1.0 / indices.len().max(1) as f32;
        for &index in indices {
            let (sample, label) = (self.sample(index)?, self.labels[index] as usize);
            self.answer(values, sample, &mut features, &mut outputs);
            score += judge(&mut outputs, label);
            outputs[label] -= 1.0;
            outputs.iter_mut().for_each(|error| *error *= share);
            let (weights, rest) = gradient.split_at_mut(n_features * n_classes);
            let (bias, mean) = rest.split_at_mut(n_classes);
            for (row, feature) in weights.chunks_exact_mut(n_classes).zip(&features) {
                row.iter_mut().zip(&outputs).for_each(|(weight, error)| *weight += feature * error);
            }
            bias.iter_mut().zip(&outputs).for_each(|(bias, error)| *bias += error);
            // A feature is how far the sample is from the running mean: minus that is how far the mean drifts from it.
            mean.iter_mut().zip(&features).for_each(|(mean, feature)| *mean -= MOMENTUM * share * feature);
        }
        for (k, bucket) in self.buckets().iter().enumerate() {
            sink(k, &gradient[bucket.clone()]);
        }
        Ok(score)
    }

    fn score(&self, values: &[f32], indices: &[usize]) -> Result<Score, TrainError> {
        let ToySize { n_features, n_classes, .. } = self.size;
        let (mut features, mut outputs) = (vec![0.0; n_features], vec![0.0; n_classes]);
        let mut score = Score::default();
        for &index in indices {
            self.answer(values, self.sample(index)?, &mut features, &mut outputs);
            score += judge(&mut outputs, self.labels[index] as usize);
        }
        Ok(score)
    }

    fn test(&self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        let ToySize { n_features, n_classes, .. } = self.size;
        let (mut features, mut outputs) = (vec![0.0; n_features], vec![0.0; n_classes]);
        let mut score = Score::default();
        for index in samples {
            self.answer(values, &self.test[index * n_features..][..n_features], &mut features, &mut outputs);
            score += judge(&mut outputs, self.test_labels[index] as usize);
        }
        Ok(score)
    }
}

/// Turns outputs into shares that add up to 1, and says how well they name the class.
fn judge(outputs: &mut [f32], label: usize) -> Score {
    let highest = outputs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let behind = outputs[label] - highest;
    outputs.iter_mut().for_each(|output| *output = (*output - highest).exp());
    let total: f32 = outputs.iter().sum();
    outputs.iter_mut().for_each(|output| *output /= total);
    // This way the loss of an answer that is no number is none either.
    let loss_sum = f64::from(total).ln() - f64::from(behind);
    Score { loss_sum, n_correct: usize::from(behind == 0.0), n: 1, ..Score::default() }
}

#[cfg(test)]
mod tests {
    use super::{Toy, ToySize};
    use nettorrent_engine::stateless::Stateless;
    use nettorrent_engine::task::Task;

    #[test]
    fn buckets_cover_the_vector_from_its_end() {
        for n_features in [1, 2, 8, 100] {
            let toy = Toy::with_size(ToySize { n_features, n_classes: 2, n_train: 3, n_test: 1 }, 1);
            let mut covered: Vec<usize> = toy.buckets().iter().cloned().rev().flatten().collect();
            covered.dedup();
            assert!(covered.iter().copied().eq(0..toy.n_values()), "{:?}", toy.buckets());
        }
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let toy = Toy::new(3);
        let (mut values, indices) = (toy.init(1), [5, 6, 7]);
        let mut gradient = vec![0.0; toy.n_values()];
        let mut put = |k: usize, bucket: &[f32]| gradient[toy.buckets()[k].clone()].copy_from_slice(bucket);
        toy.gradient(&values, &indices, 0, &mut put).unwrap();
        let loss_at = |values: &[f32]| toy.score(values, &indices).unwrap().loss();
        for k in 0..toy.n_params() {
            let (before, step) = (values[k], 0.01);
            values[k] = before + step;
            let above = loss_at(&values);
            values[k] = before - step;
            let below = loss_at(&values);
            values[k] = before;
            let slope = (above - below) / f64::from(2.0 * step);
            assert!((slope - f64::from(gradient[k])).abs() < 1e-3, "{k}: {slope} is not {}", gradient[k]);
        }
    }

    #[test]
    fn a_sample_that_is_not_there_is_an_error() {
        let toy = Toy::new(3);
        let n_train = toy.labels().len();
        assert!(toy.gradient(&toy.init(1), &[n_train], 0, &mut |_, _| {}).is_err());
    }
}
