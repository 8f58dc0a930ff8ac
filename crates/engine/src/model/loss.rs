//! Losses: how far a network's outputs are from the targets, and the gradient that follows.

use serde::{Deserialize, Serialize};

use super::score::Score;
use crate::data::{IGNORED, TargetKind, TargetRows};
use crate::kernel::{exp, largest, sigmoid, sum, vectorised};

/// The loss of a job: by default what suits its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossSpec {
    /// `auto`, `cross-entropy`, `squared-error`, `absolute-error` or `binary-cross-entropy`. Default: `auto`, cross-entropy for classes
    /// and tokens, squared error for numbers, binary cross-entropy where a sample has several labels.
    pub kind: LossKind,
    /// For cross-entropy: the share of the target's probability that is spread evenly over all classes while training. Default: 0.
    pub label_smoothing: f32,
}

/// Which loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// The mean distance.
    AbsoluteError,
    /// What suits the data.
    #[default]
    Auto,
    /// The cross-entropy of each output's sigmoid, summed over the outputs' mean.
    BinaryCrossEntropy,
    /// Softmax cross-entropy.
    CrossEntropy,
    /// The mean squared distance.
    SquaredError,
}

/// Why a loss is none for some data.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LossError {
    /// It needs another kind of target.
    #[error("the loss `{loss}` is not for data with {targets}; set loss.kind = \"auto\", or one of: {fitting}")]
    Unfit {
        /// The loss.
        loss: &'static str,
        /// What the data have.
        targets: &'static str,
        /// What would do.
        fitting: &'static str,
    },
    /// Smoothing is a share.
    #[error("loss.label_smoothing is {0}; it must be 0 or more and less than 1, and is for cross-entropy only")]
    Smoothing(f32),
}

/// A loss, ready to be computed. Each sample's loss is the mean over its positions or numbers, and a batch's the mean over its samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Loss {
    /// The mean distance, beside numbers with this variance.
    AbsoluteError {
        /// See [`TargetKind::Numbers`].
        variance: f32,
    },
    /// The cross-entropy of a sigmoid for each label.
    BinaryCrossEntropy,
    /// Softmax cross-entropy, while training with smoothed targets.
    CrossEntropy {
        /// The share that is spread over all classes.
        smoothing: f32,
    },
    /// The mean squared distance, beside numbers with this variance.
    SquaredError {
        /// See [`TargetKind::Numbers`].
        variance: f32,
    },
}

/// Where [`Score::metrics`] has what is measured of numbers.
const ABSOLUTE_ERROR: usize = 0;
pub(crate) const SQUARED_ERROR: usize = 1;
pub(crate) const R2: usize = 2;

impl Default for Loss {
    fn default() -> Self {
        Self::CrossEntropy { smoothing: 0.0 }
    }
}

impl LossSpec {
    /// The loss for data that ask for this.
    pub fn resolve(&self, targets: TargetKind) -> Result<Loss, LossError> {
        let smoothing = self.label_smoothing;
        let unfit = |loss, targets, fitting| Err(LossError::Unfit { loss, targets, fitting });
        let loss = match (targets, self.kind) {
            (
                TargetKind::Class | TargetKind::Positions { .. } | TargetKind::Tokens,
                LossKind::Auto | LossKind::CrossEntropy,
            ) => Loss::CrossEntropy { smoothing },
            (TargetKind::Class | TargetKind::Positions { .. } | TargetKind::Tokens, kind) => {
                return unfit(kind.name(), "classes", "cross-entropy");
            }
            (TargetKind::Labels, LossKind::Auto | LossKind::BinaryCrossEntropy) => Loss::BinaryCrossEntropy,
            (TargetKind::Labels, kind) => return unfit(kind.name(), "several labels", "binary-cross-entropy"),
            (TargetKind::Numbers { variance, .. }, LossKind::Auto | LossKind::SquaredError) => {
                Loss::SquaredError { variance }
            }
            (TargetKind::Numbers { variance, .. }, LossKind::AbsoluteError) => Loss::AbsoluteError { variance },
            (TargetKind::Numbers { .. }, kind) => {
                return unfit(kind.name(), "numbers to predict", "squared-error, absolute-error");
            }
        };
        let is_smoothing = matches!(loss, Loss::CrossEntropy { .. }) || smoothing == 0.0;
        if !(0.0..1.0).contains(&smoothing) || !is_smoothing {
            return Err(LossError::Smoothing(smoothing));
        }
        Ok(loss)
    }
}

impl LossKind {
    fn name(self) -> &'static str {
        match self {
            Self::AbsoluteError => "absolute-error",
            Self::Auto => "auto",
            Self::BinaryCrossEntropy => "binary-cross-entropy",
            Self::CrossEntropy => "cross-entropy",
            Self::SquaredError => "squared-error",
        }
    }
}

impl Loss {
    /// What is measured beside the loss, in the order of [`Score::metrics`], for data that ask for this.
    pub fn metrics(&self, targets: TargetKind) -> &'static [&'static str] {
        match (self, targets) {
            (Self::AbsoluteError { .. } | Self::SquaredError { .. }, _) => &["absolute_error", "squared_error", "r2"],
            (Self::BinaryCrossEntropy, _) | (_, TargetKind::Positions { .. } | TargetKind::Tokens) => &["accuracy"],
            (Self::CrossEntropy { .. }, _) => &[],
        }
    }

    /// Scores outputs against the targets of `n` samples.
    pub(super) fn score(&self, outputs: &[f32], targets: TargetRows<'_>, n: usize) -> Score {
        let mut total = Score::default();
        let len = outputs.len() / n.max(1);
        for sample in 0..n {
            let outputs = &outputs[sample * len..(sample + 1) * len];
            total += match (self, targets.of(sample..sample + 1, n)) {
                (Self::CrossEntropy { .. }, TargetRows::Classes(classes)) => classified(outputs, classes),
                (Self::BinaryCrossEntropy, TargetRows::Numbers(numbers)) => labelled(outputs, numbers),
                (Self::AbsoluteError { variance }, TargetRows::Numbers(numbers)) => {
                    measured(outputs, numbers, *variance, f64::abs)
                }
                (Self::SquaredError { variance }, TargetRows::Numbers(numbers)) => {
                    measured(outputs, numbers, *variance, |off| off * off)
                }
                _ => unreachable!("a loss is made for its targets"),
            };
        }
        total
    }

    /// Writes the gradient of the batch's mean loss by the outputs of `n` samples of a batch of `batch_len`.
    pub(super) fn gradient(
        &self,
        outputs: &[f32],
        targets: TargetRows<'_>,
        n: usize,
        batch_len: usize,
        gradient: &mut [f32],
    ) {
        let len = outputs.len() / n.max(1);
        for sample in 0..n {
            let range = sample * len..(sample + 1) * len;
            let (outputs, gradient) = (&outputs[range.clone()], &mut gradient[range]);
            match (self, targets.of(sample..sample + 1, n)) {
                (Self::CrossEntropy { smoothing }, TargetRows::Classes(classes)) => {
                    softmax_gradient(outputs, classes, *smoothing, batch_len, gradient);
                }
                (_, TargetRows::Numbers(numbers)) => {
                    let share = 1.0 / (batch_len * len) as f32;
                    let both = outputs.iter().zip(numbers);
                    let slope = |(&output, &number): (&f32, &f32)| match self {
                        Self::AbsoluteError { .. } if output == number => 0.0,
                        Self::AbsoluteError { .. } => (output - number).signum(),
                        Self::SquaredError { .. } => 2.0 * (output - number),
                        Self::BinaryCrossEntropy | Self::CrossEntropy { .. } => sigmoid(output) - number,
                    };
                    gradient.iter_mut().zip(both).for_each(|(gradient, pair)| *gradient = share * slope(pair));
                }
                (_, TargetRows::Classes(_)) => unreachable!("a loss is made for its targets"),
            }
        }
    }

    /// Whether outputs of this many numbers a sample, whose last axis has `n_classes`, can be compared with these targets.
    pub(super) fn fits(&self, targets: TargetRows<'_>, n: usize, len: usize, n_classes: usize) -> bool {
        match (self, targets) {
            (Self::CrossEntropy { .. }, TargetRows::Classes(classes)) => {
                classes.len() * n_classes == n * len
                    && classes.iter().all(|&class| (class as usize) < n_classes || class == IGNORED)
            }
            (Self::CrossEntropy { .. }, TargetRows::Numbers(_)) | (_, TargetRows::Classes(_)) => false,
            (_, TargetRows::Numbers(numbers)) => numbers.len() == n * len,
        }
    }
}

/// The index of the largest output; the first of equals.
pub fn best_class(row: &[f32]) -> usize {
    row.iter().enumerate().fold(0, |best, (i, x)| if *x > row[best] { i } else { best })
}

/// One sample with a class, or with one for each of its positions.
fn classified(outputs: &[f32], classes: &[u32]) -> Score {
    let n_classes = outputs.len() / classes.len();
    let asked = || outputs.chunks_exact(n_classes).zip(classes).filter(|(_, class)| **class != IGNORED);
    let n_asked = asked().count();
    let (mut loss, mut n_right) = (0.0, 0);
    for (row, &class) in asked() {
        loss += cross_entropy(row, class as usize);
        n_right += usize::from(best_class(row) == class as usize);
    }
    let mean = |sum: f64| sum / n_asked.max(1) as f64;
    let mut score = Score { loss_sum: mean(loss), n: 1, ..Score::default() };
    match classes {
        [_] => score.n_correct = n_right,
        _ => score.metrics[0] = mean(n_right as f64),
    }
    score
}

fn cross_entropy(row: &[f32], class: usize) -> f64 {
    let (highest, total) = vectorised(
        #[inline(always)]
        || {
            let highest = largest(row);
            (highest, sum([row], |[x]| exp(x - highest)))
        },
    );
    f64::from(total).ln() + f64::from(highest) - f64::from(row[class])
}

fn softmax_gradient(outputs: &[f32], classes: &[u32], smoothing: f32, batch_len: usize, gradient: &mut [f32]) {
    let n_classes = outputs.len() / classes.len();
    let n_asked = classes.iter().filter(|class| **class != IGNORED).count();
    let share = 1.0 / (batch_len * n_asked.max(1)) as f32;
    let even = share * smoothing / n_classes as f32;
    let rows = outputs.chunks_exact(n_classes).zip(gradient.chunks_exact_mut(n_classes)).zip(classes);
    for ((row, gradient), &class) in rows {
        if class == IGNORED {
            gradient.fill(0.0);
            continue;
        }
        vectorised(
            #[inline(always)]
            || {
                let highest = largest(row);
                gradient.iter_mut().zip(row).for_each(|(g, x)| *g = exp(x - highest));
                let scale = share / sum([gradient], |[g]| g);
                gradient.iter_mut().for_each(|g| *g = *g * scale - even);
            },
        );
        gradient[class as usize] -= share - even * n_classes as f32;
    }
}

/// One sample with a 0 or 1 for each label.
fn labelled(outputs: &[f32], labels: &[f32]) -> Score {
    let (mut loss, mut n_right) = (0.0, 0);
    for (&output, &label) in outputs.iter().zip(labels) {
        let output = f64::from(output);
        loss += output.max(0.0) - output * f64::from(label) + (-output.abs()).exp().ln_1p();
        n_right += usize::from((output > 0.0) == (label > 0.5));
    }
    let n = outputs.len().max(1) as f64;
    let mut score = Score { loss_sum: loss / n, n: 1, ..Score::default() };
    score.metrics[0] = n_right as f64 / n;
    score
}

/// One sample with numbers.
fn measured(outputs: &[f32], numbers: &[f32], variance: f32, loss: impl Fn(f64) -> f64) -> Score {
    let n = outputs.len().max(1) as f64;
    let mut score = Score { n: 1, ..Score::default() };
    for (&output, &number) in outputs.iter().zip(numbers) {
        let off = f64::from(output) - f64::from(number);
        score.loss_sum += loss(off) / n;
        score.metrics[ABSOLUTE_ERROR] += off.abs() / n;
        score.metrics[SQUARED_ERROR] += off * off / n;
    }
    score.metrics[R2] = 1.0 - score.metrics[SQUARED_ERROR] / f64::from(variance);
    score
}

#[cfg(test)]
mod tests {
    use super::{Loss, LossError, LossKind, LossSpec};
    use crate::data::{IGNORED, TargetKind, TargetRows};

    const NUMBERS: TargetKind = TargetKind::Numbers { n: 2, n_positions: 1, variance: 2.0 };

    fn resolved(kind: LossKind, label_smoothing: f32, targets: TargetKind) -> Result<Loss, LossError> {
        LossSpec { kind, label_smoothing }.resolve(targets)
    }

    #[test]
    fn the_data_choose_the_loss_unless_the_job_does() {
        let auto = |targets| resolved(LossKind::Auto, 0.0, targets).unwrap();
        assert_eq!(auto(TargetKind::Class), Loss::CrossEntropy { smoothing: 0.0 });
        for each_position in [TargetKind::Tokens, TargetKind::Positions { n: 4 }] {
            assert_eq!(auto(each_position), Loss::CrossEntropy { smoothing: 0.0 });
            assert_eq!(auto(each_position).metrics(each_position), ["accuracy"]);
        }
        assert_eq!(auto(TargetKind::Labels), Loss::BinaryCrossEntropy);
        assert_eq!(auto(NUMBERS), Loss::SquaredError { variance: 2.0 });
        assert_eq!(resolved(LossKind::AbsoluteError, 0.0, NUMBERS), Ok(Loss::AbsoluteError { variance: 2.0 }));
        let error = resolved(LossKind::SquaredError, 0.0, TargetKind::Class).unwrap_err().to_string();
        assert!(error.contains("`squared-error` is not for data with classes") && error.contains("cross-entropy"));
        assert_eq!(resolved(LossKind::Auto, 1.0, TargetKind::Class), Err(LossError::Smoothing(1.0)));
        assert_eq!(resolved(LossKind::Auto, 0.1, NUMBERS), Err(LossError::Smoothing(0.1)));
    }

    /// The gradient of the batch's mean loss against differences of the losses.
    fn compare(loss: Loss, outputs: &[f32], targets: TargetRows<'_>, n: usize) {
        let mean = |outputs: &[f32]| loss.score(outputs, targets, n).loss();
        let mut gradient = vec![f32::NAN; outputs.len()];
        loss.gradient(outputs, targets, n, n, &mut gradient);
        for (place, &found) in gradient.iter().enumerate() {
            let moved = |step: f32| {
                let mut moved = outputs.to_vec();
                moved[place] += step;
                mean(&moved)
            };
            let expected = (moved(0.01) - moved(-0.01)) / 0.02;
            assert!((f64::from(found) - expected).abs() < 1e-4, "{loss:?}: {found} and not {expected} at {place}");
        }
    }

    const OUTPUTS: [f32; 8] = [0.5, -1.5, 2.0, 0.1, -0.7, 1.2, 3.0, -2.0];

    #[test]
    fn gradients_are_those_of_the_losses() {
        let numbers = TargetRows::Numbers(&[1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
        for loss in
            [Loss::AbsoluteError { variance: 1.0 }, Loss::BinaryCrossEntropy, Loss::SquaredError { variance: 1.0 }]
        {
            compare(loss, &OUTPUTS, numbers, 4);
        }
        let plain = Loss::CrossEntropy { smoothing: 0.0 };
        compare(plain, &OUTPUTS, TargetRows::Classes(&[3, 1]), 2);
        // Two samples of two positions, of which one is not asked for.
        compare(plain, &OUTPUTS, TargetRows::Classes(&[1, IGNORED, 0, 1]), 2);
    }

    #[test]
    fn smoothed_labels_pull_towards_all_classes() {
        let gradient = |smoothing| {
            let mut gradient = [f32::NAN; 4];
            Loss::CrossEntropy { smoothing }.gradient(&[0.0; 4], TargetRows::Classes(&[2]), 1, 1, &mut gradient);
            gradient
        };
        assert_eq!(gradient(0.0), [0.25, 0.25, -0.75, 0.25]);
        let smoothed = gradient(0.4);
        let expected = [0.15, 0.15, -0.45, 0.15];
        assert!(smoothed.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{smoothed:?}");
    }

    #[test]
    fn what_is_measured_beside_the_loss() {
        let tokens = Loss::default().score(&OUTPUTS, TargetRows::Classes(&[0, 1, IGNORED, 0]), 2);
        // The first sample has one position of two right, the second its only one.
        assert_eq!((tokens.n, tokens.n_correct, tokens.metrics[0]), (2, 0, 1.5));
        let numbers = Loss::SquaredError { variance: 2.0 }.score(&[1.0, 3.0], TargetRows::Numbers(&[2.0, 3.0]), 1);
        assert_eq!((numbers.loss(), numbers.metrics), (0.5, [0.5, 0.5, 0.75, 0.0]));
        let labels = Loss::BinaryCrossEntropy.score(&[2.0, 2.0], TargetRows::Numbers(&[1.0, 0.0]), 1);
        assert_eq!(labels.metrics[0], 0.5);
        assert!((labels.loss() - (0.126_928 + 2.126_928) / 2.0).abs() < 1e-5, "{}", labels.loss());
    }
}
