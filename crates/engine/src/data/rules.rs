//! What a sampler follows: how samples are shared out, batched and cut into rounds.

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
    /// What is otherwise in the first epochs.
    pub warmup: WarmupRule,
    /// How many samples nobody trains, because peers are judged by them.
    pub n_held_out: usize,
    /// Where all randomness comes from.
    pub seed: u64,
}

impl Rules {
    /// Those of a job in which all go on in step, one batch a round.
    pub fn new(split: SplitRule, resplit: Resplit, batches: BatchRule, seed: u64) -> Self {
        Self { split, resplit, batches, rounds: RoundRule::alone(), warmup: WarmupRule::default(), n_held_out: 0, seed }
    }

    /// Whether in an epoch all members work on one order of the samples, so that any sample can be anybody's.
    pub(super) fn has_common_order(&self, epoch: u64) -> bool {
        match self.warmup.at(epoch) {
            Some(Warmup::AllData | Warmup::OnePeer) => true,
            Some(Warmup::Dense) | None => self.split == SplitRule::Random && self.resplit == Resplit::Epoch,
        }
    }

    /// Whether in an epoch the work is dealt out again and again, by how fast members are.
    pub(super) fn follows_speed(&self, epoch: u64) -> bool {
        self.has_common_order(epoch) && self.rounds.redeal > 0 && self.warmup.at(epoch) != Some(Warmup::OnePeer)
    }

    /// How many of so many members train in an epoch; if not all, the first ones.
    pub(super) fn n_trainers(&self, epoch: u64, n_members: usize) -> usize {
        if self.warmup.at(epoch) == Some(Warmup::OnePeer) { n_members.min(1) } else { n_members }
    }

    pub(super) fn rounds_of(&self, epoch: u64) -> RoundRule {
        let length = match self.warmup.at(epoch) {
            Some(Warmup::Dense) => RoundLength::Batches(1),
            Some(Warmup::OnePeer) => RoundLength::Epoch,
            Some(Warmup::AllData) | None => self.rounds.length,
        };
        RoundRule { length, ..self.rounds }
    }
}

/// How a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WarmupRule {
    /// In which way.
    pub kind: Warmup,
    /// For how many epochs.
    pub epochs: u64,
}

impl WarmupRule {
    /// What is otherwise in an epoch, if anything is.
    pub fn at(self, epoch: u64) -> Option<Warmup> {
        (epoch < self.epochs).then_some(self.kind)
    }
}

/// What may be otherwise in the first epochs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Warmup {
    /// Samples are dealt out from one common order of all of them, whatever the split: every member sees every class.
    AllData,
    /// Members average their gradients after every batch, whatever the strategy.
    #[default]
    Dense,
    /// The first member alone trains, and the others take its parameters over at the end of each epoch.
    OnePeer,
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
