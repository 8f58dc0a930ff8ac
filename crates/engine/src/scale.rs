//! How the updates of several peers are scaled, so that more peers do not learn worse: decided here and nowhere else.
//!
//! With the usual `global-batch`, the job's batch is that of the whole swarm. Peers that exchange after every batch take the very
//! steps that one peer would take, each with its share of the batch. Peers that take steps by themselves take as many as one peer
//! would, each with its share of the samples; the mean of their updates has the noise of the whole batch. They may not be apart for
//! long, or that mean is not what one peer would have come to: so a local phase is never longer than a small part of an epoch. Until they are
//! averaged, each has the noise of its own few samples, which long phases of many peers cannot stand at the full rate.
//!
//! An adaptive optimizer that sees only a share of the batch sees more noise, and divides by it: its steps shrink with the square
//! root of the number of peers, where noise prevails. That is given back to those who have an optimizer each.
//!
//! Updates that reach the others late are steps from where nobody is any more: the rate shrinks with the delay, and the delay is kept short
//! where it can be chosen.

use serde::{Deserialize, Serialize};

use crate::optimizer::{OptimizerKind, OptimizerSpec};

/// How many steps a peer takes by itself, unless something is said or speaks against it.
const LOCAL_STEPS: usize = 50;
/// A local phase is at most this part of an epoch.
const PHASES_PER_EPOCH: usize = 32;
/// Two peers may take about so many steps by themselves, four peers 1/√2 as many, and so on.
const MOST_LOCAL_STEPS: f64 = 75.0;
/// After so many steps by itself about half of a peer's noise is its own, and not yet averaged out.
const NOISY_STEPS: f64 = 40.0;
/// Plain gradient descent whose rate divided by the batch is far above this is as noisy as it can be and still learn well; far below it,
/// even the noise of a few samples does no harm.
const NOISY_RATE: f64 = 0.006;
/// Steps of plain gradient descent that are far longer than this lead astray if they come late.
const LONG_STEP: f64 = 0.1;
/// The rate may shrink by this share of itself because updates are late, where that can be chosen.
const MOST_LATE: f64 = 0.1;
/// A local phase is at most this part of all steps that were taken before: early on, while everything changes fast, it is short.
const PHASES_SO_FAR: usize = 128;

/// How the updates of several peers are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// A batch is shared by all peers: at equal epochs they reach what one peer reaches.
    #[default]
    GlobalBatch,
    /// A batch for each peer, and the learning rate grows in proportion to their number, after a gradual warm-up (Goyal et al.
    /// 2017).
    Linear,
    /// A batch for each peer, at one peer's learning rate: as many peers, so many times fewer steps.
    None,
}

impl Scale {
    /// Whether a batch is shared by all peers.
    pub fn shares_batch(self) -> bool {
        self == Self::GlobalBatch
    }

    /// How many samples all peers together train in one step.
    ///
    /// ```
    /// use nettorrent_engine::scale::Scale;
    /// assert_eq!(Scale::GlobalBatch.step_samples(32, 4), 32);
    /// assert_eq!(Scale::GlobalBatch.step_samples(32, 100), 100, "nobody is idle");
    /// assert_eq!(Scale::None.step_samples(32, 4), 128);
    /// ```
    pub fn step_samples(self, batch: usize, n_peers: usize) -> usize {
        match self {
            Self::GlobalBatch => batch.max(n_peers),
            Self::Linear | Self::None => batch.saturating_mul(n_peers.max(1)),
        }
    }

    /// How many steps each of `n_peers` takes by itself before an exchange, unless the job says it, in an epoch of so many, when so
    /// many have been taken since the run began.
    pub fn local_steps(self, per_epoch: usize, n_done: usize, n_peers: usize) -> usize {
        match self {
            Self::GlobalBatch => {
                let most = MOST_LOCAL_STEPS / (n_peers.max(1) as f64).sqrt();
                let so_far = n_done / PHASES_SO_FAR;
                LOCAL_STEPS.min(per_epoch / PHASES_PER_EPOCH).min(most as usize).min(so_far).max(1)
            }
            Self::Linear | Self::None => LOCAL_STEPS,
        }
    }

    /// The learning rate of `n_peers` together where `rate` is that of one. For `linear`, when `done` of `warmup` epochs are done,
    /// the rate is on a straight line from one peer's to that of all; from then on it is that of all.
    ///
    /// ```
    /// use nettorrent_engine::scale::Scale;
    /// assert_eq!(Scale::Linear.rate(0.1, 5, 1.0, 2.0), 0.3);
    /// assert_eq!(Scale::Linear.rate(0.1, 5, 7.0, 2.0), 0.5);
    /// assert_eq!(Scale::GlobalBatch.rate(0.1, 5, 7.0, 2.0), 0.1);
    /// ```
    pub fn rate(self, rate: f32, n_peers: usize, done: f64, warmup: f64) -> f32 {
        match self {
            Self::GlobalBatch | Self::None => rate,
            Self::Linear => {
                let share = if done < warmup { done / warmup } else { 1.0 };
                (f64::from(rate) * (1.0 + n_peers.saturating_sub(1) as f64 * share)) as f32
            }
        }
    }

    /// By what the rate is multiplied where each of `n_peers` has an optimizer of its own, which sees its own samples only.
    pub fn own_optimizer_gain(self, optimizer: &OptimizerSpec, n_peers: usize) -> f32 {
        match (self, optimizer.kind) {
            (Self::GlobalBatch, OptimizerKind::Adam | OptimizerKind::Adamw) => (n_peers.max(1) as f32).sqrt(),
            _ => 1.0,
        }
    }

    /// By what the rate is multiplied where each of `n_peers` takes so many steps by itself before they are averaged: until then it has
    /// the noise of its own few samples. Where they never are, that is without end.
    ///
    /// How much that matters is a share that [`noise`] knows.
    pub fn local_gain(self, n_peers: usize, n_steps: f64, noise: f64) -> f32 {
        if !self.shares_batch() || n_steps <= 1.0 {
            return 1.0;
        }
        let others = n_peers.saturating_sub(1) as f64;
        let own = 1.0 - (1.0 + NOISY_STEPS) / (n_steps + NOISY_STEPS);
        (1.0 / (1.0 + noise * others * own)) as f32
    }

    /// The rate of peers whose updates reach the others `delay` rounds late: alone nobody is late, and the more there are, the more
    /// of each step is. Short steps may be late.
    pub fn delayed(self, rate: f32, n_peers: usize, delay: f64, optimizer: &OptimizerSpec) -> f32 {
        let late = delay * harm_of_delay(rate, n_peers, optimizer);
        if self.shares_batch() { (f64::from(rate) / (1.0 + late)) as f32 } else { rate }
    }

    /// How many rounds late the updates of peers may be at this rate, where that can be chosen.
    pub fn most_delay(self, rate: f32, n_peers: usize, optimizer: &OptimizerSpec) -> f64 {
        if self.shares_batch() { MOST_LATE / harm_of_delay(rate, n_peers, optimizer) } else { f64::INFINITY }
    }
}

/// How much of a round's delay matters: nothing alone, and nothing where steps are short.
fn harm_of_delay(rate: f32, n_peers: usize, optimizer: &OptimizerSpec) -> f64 {
    (1.0 - 1.0 / n_peers.max(1) as f64) * beyond(whole_step(optimizer, rate), LONG_STEP)
}

/// How noisy the steps of one peer with the whole batch are, from 0 to 1.
///
/// The noise of gradient descent grows with its rate, with what momentum makes of it, and shrinks with the batch.
pub fn noise(optimizer: &OptimizerSpec, rate: f32, batch: usize) -> f64 {
    beyond(whole_step(optimizer, rate) / batch.max(1) as f64, NOISY_RATE)
}

/// What a gradient is multiplied with until momentum has made all of it that it does. The steps of adaptive optimizers do not grow with
/// the gradient: theirs count as long.
fn whole_step(optimizer: &OptimizerSpec, rate: f32) -> f64 {
    match optimizer.kind {
        OptimizerKind::Sgd => f64::from(rate) / f64::from(1.0 - optimizer.momentum).max(f64::EPSILON),
        _ => f64::INFINITY,
    }
}

/// From 0, far below a bound, over a half at it, to 1.
fn beyond(number: f64, bound: f64) -> f64 {
    1.0 / (1.0 + (bound / number).powi(2))
}

#[cfg(test)]
mod tests {
    use super::{Scale, noise};
    use crate::optimizer::{OptimizerKind, OptimizerSpec};

    #[test]
    fn many_peers_take_larger_steps_once_they_are_warm() {
        let rates = [0.0, 0.5, 1.0, 2.0, 9.0].map(|done| Scale::Linear.rate(0.5, 9, done, 2.0));
        assert_eq!(rates, [0.5, 1.5, 2.5, 4.5, 4.5]);
        assert_eq!(Scale::Linear.rate(0.5, 9, 0.0, 0.0), 4.5, "no warm-up");
        for done in [0.0, 0.3, 5.0] {
            for n_peers in [0, 1] {
                assert_eq!(Scale::Linear.rate(0.1, n_peers, done, 1.0), 0.1, "one peer is no swarm");
            }
            assert_eq!(Scale::None.rate(0.1, 9, done, 1.0), 0.1);
        }
    }

    #[test]
    fn one_peer_is_never_scaled() {
        let adam = OptimizerSpec { kind: OptimizerKind::Adam, ..OptimizerSpec::default() };
        for scale in [Scale::GlobalBatch, Scale::Linear, Scale::None] {
            assert_eq!(scale.step_samples(32, 1), 32);
            assert_eq!(scale.own_optimizer_gain(&adam, 1), 1.0);
            assert_eq!((scale.delayed(0.1, 1, 7.0, &adam), scale.local_gain(1, 50.0, 1.0)), (0.1, 1.0));
            assert_eq!((scale.local_gain(8, 1.0, 1.0), scale.local_gain(8, 50.0, 0.0)), (1.0, 1.0));
        }
    }

    #[test]
    fn steps_are_noisy_where_the_rate_is_high_for_the_batch() {
        let sgd = OptimizerSpec { momentum: 0.9, ..OptimizerSpec::default() };
        let adam = OptimizerSpec { kind: OptimizerKind::Adam, ..OptimizerSpec::default() };
        assert!(noise(&sgd, 0.05, 32) > 0.8);
        assert!(noise(&OptimizerSpec { momentum: 0.5, ..sgd.clone() }, 0.01, 64) < 0.01);
        assert_eq!((noise(&sgd, 0.0, 32), noise(&adam, 0.001, 32)), (0.0, 1.0));
        let (short, long) =
            (Scale::GlobalBatch.delayed(0.001, 4, 4.0, &sgd), Scale::GlobalBatch.delayed(0.1, 4, 4.0, &sgd));
        assert!(short > 0.0009 && long < 0.03, "{short}, {long}");
        let most_delay = |rate| Scale::GlobalBatch.most_delay(rate, 4, &sgd);
        assert!(most_delay(0.001) > 10.0 && most_delay(0.1) < 0.5, "{}, {}", most_delay(0.001), most_delay(0.1));
        let gains = [0.0, 0.1, 0.5, 1.0].map(|noise| Scale::GlobalBatch.local_gain(8, 20.0, noise));
        assert!(gains.is_sorted_by(|a, b| a > b), "{gains:?}");
        assert_eq!(Scale::GlobalBatch.local_gain(8, f64::INFINITY, 1.0), 0.125, "where nothing is averaged");
    }

    #[test]
    fn local_phases_are_short_parts_of_an_epoch() {
        let late = usize::MAX;
        assert_eq!(Scale::GlobalBatch.local_steps(10_000, late, 2), 50);
        assert_eq!(Scale::GlobalBatch.local_steps(10_000, late, 9), 25);
        assert_eq!(Scale::GlobalBatch.local_steps(320, late, 2), 10);
        assert_eq!(Scale::GlobalBatch.local_steps(3, late, 2), 1);
        assert_eq!([0, 127, 256, 1280].map(|n_done| Scale::GlobalBatch.local_steps(10_000, n_done, 2)), [1, 1, 2, 10]);
        assert_eq!(Scale::None.local_steps(3, 0, 9), 50);
    }
}
