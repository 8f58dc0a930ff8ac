//! What a job says about how samples are shared out among peers, besides the split.

use serde::{Deserialize, Serialize};

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
