//! What a curriculum follows: how samples are shared out, batched and cut into rounds.

use serde::{Deserialize, Serialize};

use super::batches::BatchRule;
use super::rounds::{RoundLength, RoundRule};
use super::split::SplitRule;

/// How samples are shared out and in which order they are trained. Peers that train together need the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Who gets what.
    pub split: SplitRule,
    /// How often that is decided anew.
    pub resplit: Resplit,
    /// How samples become batches.
    pub batches: BatchRule,
    /// How batches become rounds.
    pub rounds: RoundRule,
    /// In the first epochs peers exchange after every batch, however long rounds are later.
    pub dense_epochs: u64,
    /// How many samples nobody trains, because peers are judged by them.
    pub n_held_out: usize,
    /// Where all randomness comes from.
    pub seed: u64,
}

impl Rules {
    /// Those of a job in which all go on in step, one batch a round.
    pub fn new(split: SplitRule, resplit: Resplit, batches: BatchRule, seed: u64) -> Self {
        Self { split, resplit, batches, rounds: RoundRule::alone(), dense_epochs: 0, n_held_out: 0, seed }
    }

    /// Whether all members work on one order of the samples, so that any sample can be anybody's.
    pub(super) fn has_common_order(&self) -> bool {
        self.split == SplitRule::Random && self.resplit == Resplit::Epoch
    }

    pub(super) fn rounds_of(&self, epoch: u64) -> RoundRule {
        let length = if epoch < self.dense_epochs { RoundLength::Batches(1) } else { self.rounds.length };
        RoundRule { length, ..self.rounds }
    }
}

/// How often samples are shared out anew while the members stay the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resplit {
    /// For every epoch: a member sees other samples each time.
    #[default]
    Epoch,
    /// Once: as long as nobody comes or goes, a member sees only its own samples.
    Run,
}
