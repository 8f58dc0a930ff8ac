//! Rounds: how much peers train between two exchanges, and in which steps.

use nettorrent_engine::data::batches::BatchRule;
use nettorrent_engine::scale::Scale;

/// How much a peer trains before an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundLength {
    /// As many batches as peers may train by themselves without learning worse.
    Auto,
    /// This many batches.
    Batches(u32),
    /// All that it has to train in an epoch.
    Epoch,
    /// This many samples, in as many batches as that takes.
    Samples(u32),
}

/// How an epoch is cut into rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundRule {
    /// How long a round is.
    pub length: RoundLength,
    /// What a batch means for several peers.
    pub scale: Scale,
    /// After how many rounds the work may be dealt out anew, by how fast members are; 0: never, all have equal shares.
    pub redeal: u32,
    /// How many samples a member could train in the time of what else it does in a round in which it trains any.
    pub overhead: usize,
}

impl RoundRule {
    /// The rule of a process that trains alone.
    pub fn alone() -> Self {
        Self { length: RoundLength::Batches(1), scale: Scale::default(), redeal: 0, overhead: 0 }
    }

    /// How many steps each of `n_members` takes in a round of an epoch that has `per_epoch` of them, with so many samples each, when
    /// so many have been taken since the run began.
    pub fn steps(&self, per_epoch: usize, n_done: usize, own_samples: f64, n_members: usize) -> usize {
        let per_epoch = per_epoch.max(1);
        match self.length {
            RoundLength::Samples(n) => ((f64::from(n) / own_samples).round() as usize).clamp(1, per_epoch),
            RoundLength::Epoch => per_epoch,
            RoundLength::Batches(n) => (n as usize).clamp(1, per_epoch),
            RoundLength::Auto => self.scale.local_steps(per_epoch, n_done, n_members).min(per_epoch),
        }
    }

    /// After how many steps of an epoch each of its rounds ends.
    pub fn round_ends(&self, epoch: u64, per_epoch: usize, own_samples: f64, n_members: usize) -> Vec<usize> {
        let before = (epoch as usize).saturating_mul(per_epoch);
        let (mut ends, mut end) = (Vec::new(), 0);
        while end < per_epoch {
            end += self.steps(per_epoch, before.saturating_add(end), own_samples, n_members);
            end = end.min(per_epoch);
            ends.push(end);
        }
        ends
    }

    /// How many samples one member's share of a step has, in the mean over `n_members`.
    pub fn own_samples(&self, batches: &BatchRule, n_members: usize) -> f64 {
        self.scale.step_samples(batches.batch_size, n_members) as f64 / n_members.max(1) as f64
    }
}
