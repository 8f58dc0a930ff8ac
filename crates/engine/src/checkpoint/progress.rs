//! Where a run stands.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::Score;

/// Where a run stands. All randomness is a function of the job's seed and these numbers, so they are the random state too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The job's seed.
    pub seed: u64,
    /// Steps taken.
    pub step: u64,
    /// Epochs finished.
    pub epoch: u64,
    /// Batches of the present epoch done.
    pub batch: usize,
    /// How the present epoch went so far.
    pub epoch_loss_sum: f64,
    /// See `epoch_loss_sum`.
    pub epoch_n_correct: usize,
    /// See `epoch_loss_sum`.
    pub epoch_n: usize,
    /// How often the run has diverged and gone back; each time the learning rate was halved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n_rollbacks: u32,
    /// Training samples that are left out because they spoil their batches, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<usize>,
    /// How far the swarm is, if one trained: what it makes of this is its own business.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<serde_json::Value>,
    /// Whether the model is the average of the parameters; these themselves are then the last of the vectors.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_average: bool,
    /// Vectors that the swarm remembers besides; they lie in the file as tensors.
    #[serde(skip)]
    pub swarm_vectors: Vec<Arc<Vec<f32>>>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Progress {
    /// How the present epoch went so far.
    pub fn epoch_score(&self) -> Score {
        Score { loss_sum: self.epoch_loss_sum, n_correct: self.epoch_n_correct, n: self.epoch_n, ..Score::default() }
    }

    /// The same place, without what the swarm remembers.
    pub(super) fn without_vectors(&self) -> Self {
        let &Self { seed, step, epoch, batch, epoch_loss_sum, epoch_n_correct, epoch_n, n_rollbacks, .. } = self;
        let (left_out, swarm, swarm_vectors) = (self.left_out.clone(), self.swarm.clone(), Vec::new());
        let is_average = self.is_average;
        Self {
            seed,
            step,
            epoch,
            batch,
            epoch_loss_sum,
            epoch_n_correct,
            epoch_n,
            n_rollbacks,
            left_out,
            swarm,
            is_average,
            swarm_vectors,
        }
    }

    /// Takes down how the present epoch went so far.
    pub fn set_epoch_score(&mut self, score: Score) {
        self.epoch_loss_sum = score.loss_sum;
        self.epoch_n_correct = score.n_correct;
        self.epoch_n = score.n;
    }
}
