//! How good a network is on a data set.

use crate::data::{Batch, Dataset};
use crate::model::{Network, Score, Workspace};
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
    for indices in samples.chunks(batch_size.max(1)) {
        let batch = workspace.install(|| data.batch(indices))?;
        let (logits, score) = network.predict(values, &batch, workspace);
        total += score;
        if !watch(&batch, &logits, total) {
            break;
        }
    }
    Ok(total)
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
    if network.n_classes() < data.classes().len() {
        return Err(TrainError::Mismatch(format!(
            "the model tells {} classes apart and the data have {}; give the model's last layer as many outputs",
            network.n_classes(),
            data.classes().len()
        )));
    }
    Ok(())
}
