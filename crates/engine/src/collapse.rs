//! A model that steps far too long have broken, though its loss never exploded.
//!
//! Such steps drive most neurons to where they answer every sample alike. What is left guesses, with a loss a little above that of
//! guessing, and nothing brings it back. From its loss alone it cannot be told from a model that has not begun to learn yet, because
//! its rate is low or its batches few; but that one's parameters are still about as large as they began, and those of a broken one
//! have grown manifold (on the digits, with rates of 0.5 to 5, 6 to 400 times; those of runs that learn, 2 to 7 times, but they do not guess).

use crate::guard::{Divergence, LossGuard};
use crate::guessing::Guessing;
use crate::kernel::squared_norm;
use crate::model::Score;

/// A model that guesses and whose parameters have grown so many times is broken.
const BROKEN: f64 = 5.0;
/// One whose parameters have grown no more than this may still begin to learn.
const UNTOUCHED: f64 = 2.0;

/// How large some parameters are together: the root of the sum of their squares.
pub fn size(params: &[f32]) -> f64 {
    squared_norm(params).sqrt()
}

/// Tells models that are broken from those that have not begun to learn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collapse {
    guessing: Guessing,
    initial_size: f64,
}

impl Collapse {
    /// For a run on samples with these labels, whose parameters were this large together when it began.
    pub fn new(guessing: Guessing, initial_size: f64) -> Self {
        Self { guessing, initial_size }
    }

    /// Says if a model that did so in an epoch, and whose parameters were this large together after it, is broken.
    pub fn judge(&self, train: &Score, size: f64) -> Result<(), Divergence> {
        if !self.guessing.explains(train) {
            return Ok(());
        }
        let growth = self.growth(size);
        if growth <= BROKEN {
            return Ok(());
        }
        Err(Divergence::Collapsed { loss: train.loss(), chance: self.guessing.loss(), growth })
    }

    /// Whether it is worth going back to these parameters: a model that has learnt something, or could still begin to.
    pub fn is_worth_keeping(&self, guard: &LossGuard, params: &[f32]) -> bool {
        guard.is_healthy() && (!guard.is_guessing() || self.growth(size(params)) <= UNTOUCHED)
    }

    /// Of what began with zeros nobody can say how much it has grown.
    fn growth(&self, size: f64) -> f64 {
        if self.initial_size > 0.0 { size / self.initial_size } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Collapse, size};
    use crate::guard::{Divergence, LossGuard};
    use crate::guessing::Guessing;
    use crate::model::Score;

    fn labels() -> Vec<u32> {
        (0..1000).map(|i| i % 10).collect()
    }

    fn score(loss: f64, n_correct: usize) -> Score {
        Score { loss_sum: 1000.0 * loss, n_correct, n: 1000, ..Score::default() }
    }

    #[test]
    fn the_size_is_the_root_of_the_sum_of_squares() {
        assert_eq!(size(&[]), 0.0);
        assert_eq!(size(&[3.0, -4.0]), 5.0);
        assert_eq!(size(&[2.0; 49]), 14.0);
        let large = vec![1.5; 100_003];
        assert_eq!(size(&large), (2.25 * 100_003.0_f64).sqrt());
    }

    #[test]
    fn the_size_of_numbers_whose_squares_are_out_of_range_is_told_too() {
        for number in [1e30_f32, 1e-30] {
            assert_eq!(size(&[number; 4]), 2.0 * f64::from(number));
        }
        assert!(!size(&[1.0, f32::NAN]).is_finite() && !size(&[f32::INFINITY; 40]).is_finite());
    }

    #[test]
    fn only_a_model_that_guesses_and_has_grown_is_broken() {
        let collapse = Collapse::new(Guessing::new(&labels()), 5.0);
        assert!(matches!(collapse.judge(&score(2.4, 100), 100.0), Err(Divergence::Collapsed { growth: 20.0, .. })));
        assert_eq!(collapse.judge(&score(2.4, 100), 10.0), Ok(()), "it has not begun");
        assert_eq!(collapse.judge(&score(2.1, 200), 100.0), Ok(()), "it learns");
        assert_eq!(collapse.judge(&Score::default(), 100.0), Ok(()), "nothing is known");
        let from_zeros = Collapse::new(Guessing::new(&labels()), 0.0);
        assert_eq!(from_zeros.judge(&score(2.4, 100), 100.0), Ok(()));
    }

    #[test]
    fn what_guesses_is_kept_only_as_long_as_it_is_as_it_began() {
        let collapse = Collapse::new(Guessing::new(&labels()), 5.0);
        let mut guard = LossGuard::new(&labels());
        assert!(collapse.is_worth_keeping(&guard, &[3.0, 4.0]));
        (0..20).for_each(|_| guard.add(2.35).unwrap());
        assert!(collapse.is_worth_keeping(&guard, &[3.0, 4.0]));
        assert!(!collapse.is_worth_keeping(&guard, &[12.0, 16.0]));
        (0..20).for_each(|_| guard.add(1.5).unwrap());
        assert!(collapse.is_worth_keeping(&guard, &[12.0, 16.0]));
    }
}
