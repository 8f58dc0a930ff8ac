//! Batch norm: every channel gets mean 0 and deviation 1 over the batch, then a scale and a shift that are learnt.

use crate::kernel::{affine_columns, column_sums};
use crate::model::layer::{Backward, BatchStatistics, Context, Init, Keeps, Layer, Mode, Scratch, Tensor};

/// Normalises the last axis over all samples and pixels of the batch.
///
/// The running mean and variance, used when testing, are not set here: a layer changes nothing. How far they are from this
/// batch's is handed out as their [delta](BatchStatistics::delta), lies in the gradient beside that of the parameters, and
/// the optimizer takes it off. So a strategy that averages gradients averages the statistics with them.
pub struct BatchNorm {
    /// Length of the last axis.
    pub channels: usize,
    /// Rows of that length in a sample.
    pub n_rows: usize,
    /// The channels' order in a checkpoint (see [`Tensor::axes`]).
    pub axes: Vec<(usize, usize)>,
}

/// How much of the running statistics one batch replaces, and what is added to a variance; both as PyTorch has them.
const MOMENTUM: f64 = 0.1;
const EPSILON: f64 = 1e-5;

/// What a channel's mean and variance are in this pass.
struct Moments {
    mean: Vec<f32>,
    inverse_deviation: Vec<f32>,
}

impl BatchNorm {
    /// Numbers per channel in the whole batch.
    fn count(&self, context: &Context<'_>) -> f64 {
        (context.batch_len * self.n_rows) as f64
    }

    fn batch_mean_and_variance(&self, context: &Context<'_>) -> impl Iterator<Item = (f64, f64)> {
        let count = self.count(context);
        let (sums, squares) = context.sums.split_at(self.channels);
        sums.iter().zip(squares).map(move |(sum, square)| {
            let mean = sum / count;
            (mean, (square / count - mean * mean).max(0.0))
        })
    }

    fn part_sums(&self, pairs: [(&[f32], &[f32]); 2]) -> [Vec<f32>; 2] {
        let [mut sums, mut products] = [vec![0.0; self.channels], vec![0.0; self.channels]];
        column_sums(pairs, &mut sums, &mut products);
        [sums, products]
    }

    fn moments(&self, context: &Context<'_>) -> Moments {
        let pairs: Vec<(f64, f64)> = match context.mode {
            Mode::Train { .. } => self.batch_mean_and_variance(context).collect(),
            Mode::Test => {
                let (means, variances) = context.buffers.split_at(self.channels);
                means.iter().zip(variances).map(|(&m, &v)| (f64::from(m), f64::from(v))).collect()
            }
        };
        Moments {
            mean: pairs.iter().map(|&(mean, _)| mean as f32).collect(),
            inverse_deviation: pairs.iter().map(|&(_, variance)| (1.0 / (variance + EPSILON).sqrt()) as f32).collect(),
        }
    }
}

impl Layer for BatchNorm {
    fn tensors(&self) -> Vec<Tensor> {
        let tensor =
            |name, value| Tensor::plain(name, &[self.channels], Init::Constant(value)).laid_out(self.axes.clone());
        vec![
            tensor("weight", 1.0),
            tensor("bias", 0.0),
            tensor("running_mean", 0.0).buffer(),
            tensor("running_var", 1.0).buffer(),
        ]
    }

    fn keeps(&self) -> Keeps {
        Keeps::INPUT
    }

    fn forward(&self, context: &Context<'_>, x: &[f32], y: &mut [f32], _: &mut Scratch) {
        let moments = self.moments(context);
        let (weight, bias) = context.params.split_at(self.channels);
        let scale: Vec<f32> = weight.iter().zip(&moments.inverse_deviation).map(|(w, d)| w * d).collect();
        let shift: Vec<f32> = bias.iter().zip(&moments.mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
        affine_columns([(x, &scale)], &shift, y);
    }

    fn input_gradient(&self, context: &Context<'_>, back: Backward<'_>, dx: &mut [f32], _: &mut Scratch) {
        // With x' = (x - mean) / deviation: dx = w / deviation * (dy - mean(dy) - x' * mean(dy * x')), which for each
        // channel is a * dy + b * x + c.
        let moments = self.moments(context);
        let count = self.count(context);
        let (sums, projections) = context.gradient_sums.split_at(self.channels);
        let mut factors = [Vec::new(), Vec::new(), Vec::new()];
        for channel in 0..self.channels {
            let inverse = f64::from(moments.inverse_deviation[channel]);
            let a = f64::from(context.params[channel]) * inverse;
            let b = -a * inverse * projections[channel] / count;
            let c = -a * sums[channel] / count - b * f64::from(moments.mean[channel]);
            [a, b, c].iter().zip(&mut factors).for_each(|(&value, factors)| factors.push(value as f32));
        }
        let [a, b, c] = factors;
        affine_columns([(back.dy, &a), (back.x, &b)], &c, dx);
    }

    fn statistics(&self) -> Option<&dyn BatchStatistics> {
        Some(self)
    }
}

impl BatchStatistics for BatchNorm {
    fn n_sums(&self) -> usize {
        2 * self.channels
    }

    fn gather(&self, _: &Context<'_>, x: &[f32], sums: &mut [f64]) {
        // A few samples' worth is added in single precision, around a value near the mean, and then to the rest in double,
        // around 0: a variance is a small difference of large sums.
        let Some(shift) = x.get(..self.channels) else { return };
        let [part_sums, part_squares] = self.part_sums([(x, shift), (x, shift)]);
        let n_rows = (x.len() / self.channels) as f64;
        let (sums, squares) = sums.split_at_mut(self.channels);
        for channel in 0..self.channels {
            let (sum, square) = (f64::from(part_sums[channel]), f64::from(part_squares[channel]));
            let shift = f64::from(shift[channel]);
            sums[channel] += sum + n_rows * shift;
            squares[channel] += square + 2.0 * shift * sum + n_rows * shift * shift;
        }
    }

    fn gather_gradient(&self, context: &Context<'_>, back: Backward<'_>, sums: &mut [f64]) {
        let moments = self.moments(context);
        let zeros = vec![0.0; self.channels];
        let [part_sums, part_products] = self.part_sums([(back.dy, &zeros), (back.x, &moments.mean)]);
        let (sums, projections) = sums.split_at_mut(self.channels);
        for channel in 0..self.channels {
            sums[channel] += f64::from(part_sums[channel]);
            projections[channel] += f64::from(part_products[channel]) * f64::from(moments.inverse_deviation[channel]);
        }
    }

    fn finish_gradient(&self, context: &Context<'_>, dw: &mut [f32]) {
        let (sums, projections) = context.gradient_sums.split_at(self.channels);
        for (dw, sum) in dw.iter_mut().zip(projections.iter().chain(sums)) {
            *dw += *sum as f32;
        }
    }

    fn delta(&self, context: &Context<'_>, delta: &mut [f32]) {
        let count = self.count(context);
        let unbiased = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        let (means, variances) = context.buffers.split_at(self.channels);
        for (channel, (mean, variance)) in self.batch_mean_and_variance(context).enumerate() {
            delta[channel] = (MOMENTUM * (f64::from(means[channel]) - mean)) as f32;
            delta[self.channels + channel] = (MOMENTUM * (f64::from(variances[channel]) - variance * unbiased)) as f32;
        }
    }
}
