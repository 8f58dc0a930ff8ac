//! Answers that were computed lately, found again by what was asked: thousands of peers in one process ask the same.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The answers that were computed last, so many at most. Only pure functions may be asked: it must not matter who has computed an answer.
pub(crate) struct Recent<Q, A, const MOST: usize> {
    known: Mutex<VecDeque<(Q, A)>>,
}

impl<Q, A, const MOST: usize> Default for Recent<Q, A, MOST> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<Q: PartialEq, A: Clone, const MOST: usize> Recent<Q, A, MOST> {
    /// The answer to a question, computed if nobody asked it lately.
    pub(crate) fn get(&self, question: Q, compute: impl FnOnce(&Q) -> A) -> A {
        // Held while it is computed: others who ask wait for it rather than compute it too.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, answer)) = known.iter().rev().find(|(other, _)| *other == question) {
            return answer.clone();
        }
        let answer = compute(&question);
        if known.len() == MOST {
            known.pop_front();
        }
        known.push_back((question, answer.clone()));
        answer
    }
}

impl<T: PartialEq + Clone, const MOST: usize> Recent<T, T, MOST> {
    /// The same as this, and where somebody had it lately, sharing what lies behind it.
    pub(crate) fn shared(&self, own: T) -> T {
        self.get(own, T::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;
    use crate::shared::Shared;

    #[test]
    fn what_was_asked_lately_is_not_computed_again() {
        const MOST: usize = 5;
        let (recent, mut n_computed) = (Recent::<usize, usize, MOST>::default(), 0);
        let mut ask = |question: usize| {
            let answer = recent.get(question, |question| {
                n_computed += 1;
                2 * question
            });
            assert_eq!(answer, 2 * question);
        };
        (0..MOST).chain(0..MOST).for_each(&mut ask);
        // One more, and the first is forgotten.
        [MOST, MOST, MOST - 1, 0].into_iter().for_each(&mut ask);
        assert_eq!(n_computed, MOST + 2);
    }

    #[test]
    fn who_has_the_same_shares_it() {
        let recent: Recent<Shared<u32>, Shared<u32>, 2> = Recent::default();
        let (first, second) = (recent.shared(vec![1, 2].into()), recent.shared(vec![1, 2].into()));
        assert!(std::ptr::eq(first.as_slice(), second.as_slice()));
    }
}
