//! An optimizer's state as a row of numbers that peers can exchange and average, as they do with parameters.
//!
//! The row holds what the rule remembers, one vector after the other, and for the Adams the number of steps: it says how far their
//! means are from zero, where they began, so means that are averaged need the mean of it.

use std::ops::Range;
use std::sync::Arc;

use super::{Optimizer, OptimizerKind, OptimizerSpec};

impl OptimizerSpec {
    /// How many numbers the state has for so many parameters; none for a rule that remembers nothing.
    pub fn n_state(&self, n_params: usize) -> usize {
        self.state_names().len() * n_params + usize::from(self.counts_steps())
    }

    fn counts_steps(&self) -> bool {
        self.custom.is_some() || matches!(self.kind, OptimizerKind::Adam | OptimizerKind::Adamw)
    }
}

impl Optimizer {
    /// Some of the numbers of its state.
    pub fn numbers(&self, place: Range<usize>) -> Vec<f32> {
        let mut numbers = Vec::with_capacity(place.len());
        for (k, vector) in self.vectors.iter().enumerate() {
            numbers.extend_from_slice(&vector[within(&place, k * self.n_params, self.n_params)]);
        }
        numbers.resize(place.len(), self.n_steps as f32);
        numbers
    }

    /// Replaces some of the numbers of its state by others, for example by means over peers. Squares stay squares and steps whole
    /// numbers, however others were rounded.
    pub fn set_numbers(&mut self, place: Range<usize>, numbers: &[f32]) {
        let mut rest = numbers;
        let names = self.spec.state_names();
        for (k, (vector, name)) in self.vectors.iter_mut().zip(names).enumerate() {
            let within = within(&place, k * self.n_params, self.n_params);
            let (new, others) = rest.split_at(within.len());
            rest = others;
            let is_square = matches!(*name, "exp_avg_sq" | "square_avg" | "sum");
            let least = if is_square { 0.0 } else { f32::MIN };
            Arc::make_mut(vector)[within].iter_mut().zip(new).for_each(|(old, new)| *old = new.max(least));
        }
        if let [n_steps] = rest {
            self.n_steps = n_steps.round().max(0.0) as u64;
        }
    }

    /// For how many parameters it is.
    pub fn n_params(&self) -> usize {
        self.n_params
    }

    /// Whether all that it remembers are numbers.
    pub fn is_finite(&self) -> bool {
        self.vectors.iter().all(|vector| crate::kernel::is_finite(vector))
    }
}

/// Where a place of the row lies in the vector that begins at `start`.
fn within(place: &Range<usize>, start: usize, len: usize) -> Range<usize> {
    let at = |k: usize| k.clamp(start, start + len) - start;
    at(place.start)..at(place.end)
}

#[cfg(test)]
mod tests {
    use super::super::{Optimizer, OptimizerKind, OptimizerSpec};

    fn adam() -> OptimizerSpec {
        OptimizerSpec { kind: OptimizerKind::Adam, ..OptimizerSpec::default() }
    }

    fn after(spec: &OptimizerSpec, gradients: &[[f32; 3]]) -> Optimizer {
        let mut optimizer = Optimizer::new(spec.clone(), 3);
        gradients.iter().for_each(|gradient| optimizer.step_alone(0.1, &mut [0.0; 3], gradient));
        optimizer
    }

    #[test]
    fn what_is_taken_out_in_pieces_can_be_put_back() {
        for spec in [
            adam(),
            OptimizerSpec { momentum: 0.5, ..OptimizerSpec::default() },
            OptimizerSpec { kind: OptimizerKind::Rmsprop, momentum: 0.5, ..OptimizerSpec::default() },
            OptimizerSpec { kind: OptimizerKind::Adagrad, ..OptimizerSpec::default() },
        ] {
            let trained = after(&spec, &[[1.0, -2.0, 3.0], [0.5, 0.25, -1.0]]);
            let n = spec.n_state(3);
            for cut in 0..=n {
                let mut other = after(&spec, &[[0.0; 3]; 2]);
                other.set_numbers(0..cut, &trained.numbers(0..cut));
                other.set_numbers(cut..n, &trained.numbers(cut..n));
                assert_eq!(other, trained, "{:?} cut at {cut}", spec.kind);
            }
        }
        assert_eq!(OptimizerSpec::default().n_state(3), 0);
    }

    #[test]
    fn steps_are_averaged_as_whole_numbers_and_squares_stay_squares() {
        let (one, three) = (after(&adam(), &[[1.0; 3]]), after(&adam(), &[[3.0; 3]; 4]));
        let n = adam().n_state(3);
        let mean: Vec<f32> =
            one.numbers(0..n).iter().zip(three.numbers(0..n)).map(|(a, b)| 0.5 * a + 0.5 * b + 1e-6).collect();
        let mut averaged = one.clone();
        averaged.set_numbers(0..n, &mean);
        assert_eq!(averaged.state().0, 3, "of 1 and 4 the mean is 2.5");
        averaged.set_numbers(3..6, &[-1e-9, 0.5, -0.0]);
        assert_eq!(averaged.numbers(3..6), [0.0, 0.5, 0.0]);
        // The next step is a number: nothing is divided by the root of less than nothing.
        let mut values = [0.0; 3];
        averaged.step_alone(0.1, &mut values, &[0.1; 3]);
        assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
    }
}
