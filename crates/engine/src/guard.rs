//! Watches the loss of a run and says when the run has diverged.
//!
//! Training is noisy, so one high loss says little. A run has diverged when a number is not finite any more; when its loss
//! stays far above the one it began with; or when it exploded, or had learnt something, and the model has been no better than
//! chance ever since. A run that never learns anything has not diverged by its loss, which stays where it was; whether steps that
//! were too long are to blame, [`collapse`](crate::collapse) tells.

use std::collections::VecDeque;
use std::fmt;

use crate::guessing::Guessing;

/// How many of the latest losses are looked at to see where the loss stays, and how many there must be.
const WINDOW: usize = 50;
const FEWEST: usize = 20;
/// How many of the first losses say where the run began.
const N_FIRST: usize = 5;
/// A loss so many times that of the start has exploded: noise does not do that, nor a rate that is a little too high.
const EXPLODED: f64 = 10.0;
/// A loss so many times that of the start is beyond what any ordinary sample has.
const ENORMOUS: f64 = 1000.0;
/// The model does better than chance when its loss is below this share of chance's. So many of the latest losses decide.
const BETTER_THAN_CHANCE: f64 = 0.9;
const LATEST: usize = 10;
/// Where it is not known what chance comes to, a loss is ordinary up to so many times that of the start.
const ORDINARY: f64 = 1.5;
/// The model has learnt something when its loss is below this share of chance's.
const LEARNT: f64 = 0.7;
/// After an explosion the loss may take so many batches to fall by another tenth until it is better than chance.
const PATIENCE: usize = 200;

/// Why a run has diverged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Divergence {
    /// The model guesses, and its parameters have grown far beyond those it began with.
    Collapsed {
        /// The mean loss of an epoch.
        loss: f64,
        /// That of guessing.
        chance: f64,
        /// How many times as large the parameters are.
        growth: f64,
    },
    /// The loss has stayed far above where it began.
    Exploded {
        /// Where it stays.
        loss: f64,
        /// Where it began.
        start: f64,
    },
    /// Something is not a finite number.
    NotFinite {
        /// The loss, a gradient or a parameter.
        what: &'static str,
        /// NaN or infinite.
        value: f64,
    },
    /// The loss exploded, or rose after the model had learnt something, and the model has been no better than chance since.
    NotRecovered {
        /// The highest loss of a batch.
        highest: f64,
        /// Where the loss is now.
        loss: f64,
        /// The loss of a model that knows nothing but how frequent the classes are.
        chance: f64,
    },
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collapsed { loss, chance, growth } => write!(
                f,
                "the model only guesses after an epoch (its loss is {loss:.3}, that of guessing {chance:.3}), and its parameters have \
                 grown to {growth:.0} times what they were"
            ),
            Self::Exploded { loss, start } => {
                write!(f, "the loss stays near {loss:.3e}, far above the {start:.3} that it began with")
            }
            Self::NotFinite { what, value } => write!(f, "{what} became {value}"),
            Self::NotRecovered { highest, loss, chance } => write!(
                f,
                "the loss went up to {highest:.3e} and has since been near {loss:.3}, no better than chance ({chance:.3})"
            ),
        }
    }
}

/// What is known of a run's losses.
#[derive(Clone, Debug)]
pub struct LossGuard {
    guessing: Guessing,
    first: Vec<f64>,
    /// The latest losses, the newest last.
    latest: VecDeque<f64>,
    explosion: Option<Explosion>,
    /// The lowest median of the latest losses so far.
    best: f64,
}

/// What is known since a loss exploded, or rose to chance again.
#[derive(Clone, Copy, Debug)]
struct Explosion {
    highest: f64,
    /// Losses since then.
    n_after: usize,
    /// Where the loss has fallen to since then, and how many losses ago.
    lowest: f64,
    n_stalled: usize,
}

impl Explosion {
    fn new(highest: f64) -> Self {
        Self { highest, n_after: 0, lowest: f64::INFINITY, n_stalled: 0 }
    }
}

impl LossGuard {
    /// A guard for a run on samples with these labels, before its first batch.
    pub fn new(labels: &[u32]) -> Self {
        Self::beside(Guessing::new(labels))
    }

    /// A guard for a run in which guessing would do so.
    pub fn beside(guessing: Guessing) -> Self {
        Self { guessing, first: Vec::new(), latest: VecDeque::new(), explosion: None, best: f64::INFINITY }
    }

    /// What a sample's loss is when training begins.
    pub fn start(&self) -> f64 {
        // The lowest, because a rate that is too high spoils all but the very first.
        let first = self.first.iter().copied().reduce(f64::min);
        first.map_or(self.chance(), |first| first.max(self.chance()))
    }

    /// Whether a loss is beyond what ordinary samples have, even those of a model that has learnt the contrary.
    pub(crate) fn is_enormous(&self, loss: f64) -> bool {
        loss > ENORMOUS * self.start()
    }

    /// Whether the loss has exploded and not yet come down again.
    pub(crate) fn has_exploded(&self) -> bool {
        self.explosion.is_some()
    }

    /// Whether the latest losses speak for the parameters that they were computed with.
    pub fn is_healthy(&self) -> bool {
        let is_ordinary = |loss: f64| loss <= ORDINARY * self.start() && !self.is_lost(loss);
        let is_exploding = self.latest.back().is_some_and(|&loss| self.is_exploded(loss));
        !self.has_exploded() && !is_exploding && self.latest_median().is_none_or(is_ordinary)
    }

    /// Whether the latest losses are no better than guessing's; also as long as there are none.
    pub fn is_guessing(&self) -> bool {
        self.latest_median().is_none_or(|loss| self.guessing.explains_loss(loss))
    }

    /// Takes the loss of one more batch in; says if the run has diverged.
    pub fn add(&mut self, loss: f64) -> Result<(), Divergence> {
        if !loss.is_finite() {
            return Err(Divergence::NotFinite { what: "the loss", value: loss });
        }
        if self.first.len() < N_FIRST {
            self.first.push(loss);
        }
        if self.latest.len() == WINDOW {
            self.latest.pop_front();
        }
        let previous = self.latest.back().copied().filter(|&previous| self.is_exploded(previous));
        self.latest.push_back(loss);
        let start = self.start();
        if !self.is_exploded(loss) {
            self.look_for_recovery()?;
        } else if let Some(before) = self.explosion.map(|explosion| explosion.highest).or(previous) {
            // A single batch may just be an odd one; parameters that are broken spoil the next one too.
            self.explosion = Some(Explosion::new(before.max(loss)));
        }
        if self.latest.len() >= LATEST {
            self.best = self.best.min(self.latest_median().unwrap_or(loss));
        }
        let stays = median(self.latest.iter().copied()).unwrap_or(loss);
        if self.latest.len() >= FEWEST && stays > EXPLODED * start {
            return Err(Divergence::Exploded { loss: stays, start });
        }
        if !self.has_exploded() && self.latest.len() == WINDOW && self.is_lost(stays) {
            self.explosion = Some(Explosion::new(self.latest.iter().copied().fold(loss, f64::max)));
        }
        Ok(())
    }

    /// Says if a run that ends here has diverged.
    pub fn finish(&self) -> Result<(), Divergence> {
        let highest = self.explosion.map(|explosion| explosion.highest);
        match (highest, self.latest_median()) {
            (Some(highest), Some(loss)) if !self.is_recovered(loss) => Err(match self.guessing.is_known() {
                true => Divergence::NotRecovered { highest, loss, chance: self.chance() },
                false => Divergence::Exploded { loss, start: self.start() },
            }),
            _ => Ok(()),
        }
    }

    /// Says if the loss of an epoch's test shows that the run has diverged. Models that learn the training samples by heart may
    /// have a high one, so only one that no ordinary model has counts.
    pub fn judge_test(&self, loss: f64) -> Result<(), Divergence> {
        if !loss.is_finite() {
            return Err(Divergence::NotFinite { what: "the loss of the test", value: loss });
        }
        if self.is_enormous(loss) {
            return Err(Divergence::Exploded { loss, start: self.start() });
        }
        Ok(())
    }

    fn look_for_recovery(&mut self) -> Result<(), Divergence> {
        let (Some(loss), Some(mut explosion)) = (self.latest_median(), self.explosion) else { return Ok(()) };
        explosion.n_after += 1;
        explosion.n_stalled += 1;
        if explosion.n_after >= LATEST && loss < 0.9 * explosion.lowest {
            explosion.lowest = loss;
            explosion.n_stalled = 0;
        }
        let has_recovered = explosion.n_after >= LATEST && self.is_recovered(loss);
        self.explosion = (!has_recovered).then_some(explosion);
        if !has_recovered && explosion.n_stalled >= PATIENCE {
            return self.finish();
        }
        Ok(())
    }

    fn is_exploded(&self, loss: f64) -> bool {
        loss > EXPLODED * self.start()
    }

    /// Whether the model had learnt something and, going by this loss, has lost it all.
    fn is_lost(&self, loss: f64) -> bool {
        self.best < LEARNT * self.chance() && self.guessing.explains_loss(loss)
    }

    /// Whether a model with this loss has recovered from an explosion.
    fn is_recovered(&self, loss: f64) -> bool {
        match self.guessing.is_known() {
            true => loss < BETTER_THAN_CHANCE * self.chance(),
            false => loss <= ORDINARY * self.start(),
        }
    }

    /// The loss of a model that knows nothing but how frequent the classes are.
    fn chance(&self) -> f64 {
        self.guessing.loss()
    }

    /// The median of the last few losses.
    fn latest_median(&self) -> Option<f64> {
        median(self.latest.iter().rev().take(LATEST).copied())
    }
}

/// The middle one of some numbers, or the upper of the two in the middle.
fn median(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::{Divergence, LossGuard, PATIENCE};
    use crate::rng::Rng;

    fn guard() -> LossGuard {
        LossGuard::new(&(0..1000).map(|i| i % 10).collect::<Vec<u32>>())
    }

    /// Feeds losses until the run has diverged; says after how many, and why.
    fn feed(guard: &mut LossGuard, losses: impl IntoIterator<Item = f64>) -> Option<(usize, Divergence)> {
        losses.into_iter().enumerate().find_map(|(i, loss)| guard.add(loss).err().map(|why| (i, why)))
    }

    #[test]
    fn numbers_that_are_not_finite_are_told_at_once() {
        for value in [f64::NAN, f64::INFINITY] {
            let Err(Divergence::NotFinite { what: "the loss", value: told }) = guard().add(value) else {
                panic!("{value}")
            };
            assert_eq!(told.to_bits(), value.to_bits());
            assert!(guard().judge_test(value).is_err());
        }
    }

    #[test]
    fn noisy_training_is_no_divergence() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let mut guard = guard();
            // From chance down to almost nothing, each loss up to twice as high as it should be, and now and then one that is
            // a hundred times as high.
            let losses = (0..3000).map(|i| {
                let noise = f64::from(rng.range(0.5, 2.0)) * if rng.below(300) == 0 { 100.0 } else { 1.0 };
                (2.6 * (-f64::from(i) / 300.0).exp() + 0.01) * noise
            });
            assert_eq!(feed(&mut guard, losses), None, "seed {seed}");
            assert_eq!(guard.finish(), Ok(()), "seed {seed}");
        }
    }

    #[test]
    fn a_run_that_never_learns_has_not_diverged() {
        let mut guard = guard();
        let mut rng = Rng::new(1);
        assert_eq!(feed(&mut guard, (0..5000).map(|_| f64::from(rng.range(2.2, 2.6)))), None);
        assert!(guard.is_healthy() && guard.finish().is_ok());
    }

    #[test]
    fn a_rate_that_is_a_little_too_high_at_first_is_forgiven() {
        let mut guard = guard();
        let losses = [2.4, 60.0, 45.0, 20.0, 9.0, 5.0].into_iter().chain((0..100).map(|i| 2.3 - f64::from(i) * 0.01));
        assert_eq!(feed(&mut guard, losses), None);
        assert!(!guard.has_exploded(), "it has come down again");
        assert_eq!(guard.finish(), Ok(()));
    }

    #[test]
    fn a_loss_that_stays_high_has_exploded() {
        let mut guard = guard();
        let (after, why) = feed(&mut guard, [2.4].into_iter().chain([1e5; 100])).unwrap();
        assert_eq!(after, 19, "as soon as there are enough");
        assert_eq!(why, Divergence::Exploded { loss: 1e5, start: 2.4 });
        // After many good batches it takes half a window of bad ones.
        let mut guard = self::guard();
        assert_eq!(feed(&mut guard, [0.5; 300]), None);
        assert_eq!(feed(&mut guard, [50.0; 100]).unwrap().0, 24);
        assert!(!guard.is_healthy());
    }

    #[test]
    fn chance_after_an_explosion_is_divergence() {
        for before in [2.4, 0.5] {
            let mut guard = guard();
            assert_eq!(feed(&mut guard, [before; 40]), None);
            assert_eq!(feed(&mut guard, [1e6, 1e5]), None);
            assert!(guard.has_exploded() && !guard.is_healthy());
            let (after, why) = feed(&mut guard, [2.31; 1000]).unwrap();
            assert!((PATIENCE..PATIENCE + 20).contains(&after), "{after}");
            assert!(matches!(why, Divergence::NotRecovered { highest: 1e6, loss: 2.31, .. }), "{why}");
        }
    }

    #[test]
    fn a_run_must_not_end_at_chance_after_an_explosion() {
        let mut guard = guard();
        assert_eq!(feed(&mut guard, [2.4, 900.0, 800.0, 2.3, 2.3, 2.3]), None);
        assert!(matches!(guard.finish(), Err(Divergence::NotRecovered { highest: 900.0, .. })));
        assert_eq!(feed(&mut guard, [1.0; 15]), None);
        assert_eq!(guard.finish(), Ok(()));
    }

    #[test]
    fn to_lose_what_was_learnt_is_divergence() {
        let mut guard = guard();
        assert_eq!(feed(&mut guard, [2.3, 1.9, 1.5].into_iter().chain([0.6; 100])), None);
        assert_eq!(feed(&mut guard, [2.4; 12]), None);
        assert!(!guard.is_healthy(), "not a state to go back to");
        let (after, why) = feed(&mut guard, [2.4; 1000]).unwrap();
        assert!((PATIENCE..PATIENCE + 60).contains(&after), "{after}");
        assert!(matches!(why, Divergence::NotRecovered { highest: 2.4, loss: 2.4, .. }), "{why}");
    }

    #[test]
    fn a_long_way_down_is_given_its_time() {
        let mut guard = guard();
        let down = (0..2000).map(|i| 2e4 * (-f64::from(i) / 200.0).exp());
        assert_eq!(feed(&mut guard, [2e4; 5].into_iter().chain([3e5; 5]).chain(down)), None);
        assert!(guard.is_enormous(3e7) && !guard.is_enormous(1e7), "beside where it began");
    }

    #[test]
    fn only_an_enormous_loss_of_a_test_counts() {
        let mut guard = guard();
        assert_eq!(feed(&mut guard, [0.1; 50]), None);
        assert_eq!(guard.judge_test(40.0), Ok(()));
        assert!(guard.judge_test(1e4).is_err());
    }
}
