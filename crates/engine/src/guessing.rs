//! What guessing comes to: how a model does that knows nothing but how frequent the classes are.

use std::collections::BTreeMap;

use crate::model::Score;

/// A loss below this share of guessing's says that something was learnt.
const BETTER: f64 = 0.98;
/// So many standard errors above guessing's accuracy may be luck.
const LUCK: f64 = 2.0;

/// How a model does that gives every sample the same answer: the classes' frequencies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guessing {
    loss: f64,
    accuracy: f64,
}

impl Guessing {
    /// For samples with these labels.
    pub fn new(labels: &[u32]) -> Self {
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        labels.iter().for_each(|&label| *counts.entry(label).or_default() += 1);
        let shares = counts.values().map(|&count| count as f64 / labels.len() as f64);
        let entropy: f64 = shares.clone().map(|share| -share * share.ln()).sum();
        // With one class there is nothing to learn; any small number serves to tell what is far above it.
        Self { loss: entropy.max(0.1), accuracy: shares.fold(0.0, f64::max) }
    }

    /// For a task whose loss is no classifier's: what guessing comes to is not known, and explains nothing.
    pub fn unknown() -> Self {
        Self { loss: f64::NAN, accuracy: 1.0 }
    }

    /// Whether it is known what guessing comes to.
    pub(crate) fn is_known(&self) -> bool {
        !self.loss.is_nan()
    }

    /// The mean loss: the entropy of the classes.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Whether a loss is no better than guessing's.
    pub(crate) fn explains_loss(&self, loss: f64) -> bool {
        loss.is_nan() || loss >= BETTER * self.loss
    }

    /// Whether a model that guesses would do as well: neither is the loss lower, nor the accuracy higher than by chance.
    pub fn explains(&self, score: &Score) -> bool {
        let error = (self.accuracy * (1.0 - self.accuracy) / score.n.max(1) as f64).sqrt();
        score.n > 0 && self.explains_loss(score.loss()) && score.accuracy() <= self.accuracy + LUCK * error
    }
}

#[cfg(test)]
mod tests {
    use super::Guessing;
    use crate::model::Score;

    fn score(loss: f64, n_correct: usize, n: usize) -> Score {
        Score { loss_sum: loss * n as f64, n_correct, n, ..Score::default() }
    }

    #[test]
    fn what_is_not_known_explains_nothing() {
        let unknown = Guessing::unknown();
        for loss in [0.0, 1.0, 1e30] {
            assert!(!unknown.explains_loss(loss) && !unknown.explains(&score(loss, 0, 10)), "{loss}");
        }
        let mut guard = crate::guard::LossGuard::beside(unknown);
        assert!((0..300).all(|k| guard.add(5000.0 - f64::from(k)).is_ok()) && guard.is_healthy());
        assert!((0..300).any(|_| guard.add(1e9).is_err()), "a loss that explodes beside its own start is found");
        // One that comes down again has recovered, and one that stays up has not.
        for (loss, is_recovered) in [(0.006, true), (1.2, true), (5.0, false)] {
            let mut guard = crate::guard::LossGuard::beside(unknown);
            let after = [2.0, 1.0, 26.0, 25.0].into_iter().chain([loss; 100]);
            assert!(after.into_iter().all(|loss| guard.add(loss).is_ok()), "{loss}");
            assert_eq!((guard.is_healthy(), guard.finish().is_ok()), (is_recovered, is_recovered), "{loss}");
        }
        let fresh = crate::guard::LossGuard::beside(unknown);
        assert!(fresh.judge_test(1e9).is_ok() && fresh.judge_test(f64::NAN).is_err());
    }

    #[test]
    fn guessing_has_the_entropy_of_the_classes_as_loss() {
        let even = Guessing::new(&(0..1000).map(|i| i % 10).collect::<Vec<u32>>());
        assert!((even.loss() - 10_f64.ln()).abs() < 1e-12);
        let uneven = Guessing::new(&[0, 0, 0, 1]).loss();
        assert!((uneven - (0.75 * (4.0_f64 / 3.0).ln() + 0.25 * 4_f64.ln())).abs() < 1e-12, "{uneven}");
    }

    #[test]
    fn only_what_is_no_better_than_guessing_is_explained_by_it() {
        let even = Guessing::new(&(0..1000).map(|i| i % 10).collect::<Vec<u32>>());
        assert!(even.explains(&score(2.31, 100, 1000)) && even.explains(&score(5.0, 118, 1000)));
        assert!(!even.explains(&score(2.31, 120, 1000)), "more are right than by chance");
        assert!(even.explains(&score(2.31, 12, 100)), "of few samples that may be luck");
        assert!(!even.explains(&score(2.2, 100, 1000)), "the loss is lower");
        assert!(even.explains(&score(f64::NAN, 100, 1000)));
        assert!(!even.explains(&Score::default()), "nothing is known");
        // Where one class is nine tenths of all, to say it is right is no achievement.
        let uneven = Guessing::new(&(0..1000).map(|i| u32::from(i % 10 == 0)).collect::<Vec<u32>>());
        assert!(uneven.explains(&score(0.33, 900, 1000)));
        assert!(!uneven.explains(&score(0.25, 900, 1000)));
    }
}
