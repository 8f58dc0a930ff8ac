//! How good a network is on a data set.

use crate::data::{Batch, Dataset, TargetKind};
use crate::model::{Network, R2, SQUARED_ERROR, Score, Workspace};
use crate::train_error::TrainError;

/// Scores a network on some samples of a data set. After each batch `watch` is shown the batch, the outputs and the score so far; it
/// ends the evaluation with `false`.
pub fn evaluate(
    network: &Network,
    values: &[f32],
    data: &dyn Dataset,
    samples: impl IntoIterator<Item = usize>,
    batch_size: usize,
    workspace: &mut Workspace,
    mut watch: impl FnMut(&Batch, &[f32], Score) -> bool,
) -> Result<Score, TrainError> {
    check_fit(network, data)?;
    let mut total = Score::default();
    let samples: Vec<usize> = samples.into_iter().collect();
    let mut batches = samples.chunks(batch_size.max(1)).peekable();
    while let Some(indices) = batches.next() {
        data.prefetch(batches.peek().copied().unwrap_or_default());
        let batch = workspace.install(|| data.batch(indices))?;
        let (logits, score) = network.predict(values, &batch, workspace);
        total += score;
        if !watch(&batch, &logits, total) {
            break;
        }
    }
    Ok(beside(total, data.target()))
}

/// The score of samples that are asked for this: R² is told beside the variance of the data that they are of, and not beside that of the
/// training part.
pub fn beside(mut score: Score, targets: TargetKind) -> Score {
    if let TargetKind::Numbers { variance, .. } = targets {
        score.metrics[R2] = score.n as f64 - score.metrics[SQUARED_ERROR] / f64::from(variance);
    }
    score
}

/// Whether a network can take a data set's samples.
pub fn check_fit(network: &Network, data: &dyn Dataset) -> Result<(), TrainError> {
    if network.input() != data.shape() {
        return Err(TrainError::Mismatch(format!(
            "the model takes samples of shape {:?} and the data have {:?}; use another model, or set data.size or \
             data.frames so that they agree",
            network.input(),
            data.shape()
        )));
    }
    if data.is_empty() {
        return Err(TrainError::Mismatch("the data set has no samples".into()));
    }
    let (n_outputs, n_asked) = (network.n_classes(), data.n_outputs());
    let n_positions = network.output_len() / n_outputs.max(1);
    let mismatch = |problem: String| Err(TrainError::Mismatch(problem));
    match data.target() {
        TargetKind::Class if n_positions > 1 => mismatch(format!(
            "the model's output is {:?}, but each sample has one class; end it with one row of scores, one per class: add \"flatten\" and a \
             dense layer",
            network.output()
        )),
        TargetKind::Class | TargetKind::Positions { .. } | TargetKind::Tokens if n_outputs < n_asked => {
            mismatch(format!(
                "the model tells {n_outputs} classes apart and the data have {n_asked}; give the model's last layer as many outputs"
            ))
        }
        TargetKind::Tokens if n_positions != data.shape()[0] => mismatch(format!(
            "the model's output is {:?}, but each of the {} positions of a sample asks for the next token; end it with a dense layer over \
             every position",
            network.output(),
            data.shape()[0]
        )),
        TargetKind::Positions { n } if n_positions != n => mismatch(format!(
            "the model's output is {:?}, but each of the {n} positions of a sample asks for its class; use a model that keeps positions, as \
             unet-small does, and ends with a convolution or a dense layer over every position",
            network.output()
        )),
        TargetKind::Numbers { n, n_positions, .. } if network.output_len() != n * n_positions => mismatch(format!(
            "the model has {} outputs and the data ask for {} numbers a sample, {n} at each of {n_positions} positions; give the model's \
             last layer as many outputs",
            network.output_len(),
            n * n_positions
        )),
        TargetKind::Labels if network.output_len() != n_asked => mismatch(format!(
            "the model has {} outputs and the data ask for {n_asked}; give the model's last layer as many outputs",
            network.output_len()
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::beside;
    use crate::data::TargetKind;
    use crate::model::Score;

    #[test]
    fn r2_is_told_beside_the_variance_of_the_samples() {
        let score = Score { n: 2, metrics: [1.0, 1.0, 1.5, 0.0], ..Score::default() };
        let numbers = TargetKind::Numbers { n: 1, n_positions: 1, variance: 0.25 };
        assert_eq!(beside(score, numbers).metrics, [1.0, 1.0, -2.0, 0.0]);
        assert_eq!(beside(score, TargetKind::Labels), score);
    }
}
