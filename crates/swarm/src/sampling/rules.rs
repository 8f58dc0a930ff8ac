//! What a sampler follows: how samples are shared out, batched and cut into rounds.

use nettorrent_engine::data::batches::BatchRule;
use nettorrent_engine::data::split::SplitRule;
use nettorrent_engine::job::{Resplit, Warmup, WarmupRule};

use super::rounds::{RoundLength, RoundRule};

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
