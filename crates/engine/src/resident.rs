//! What of a peer's state a worker has on its device already, so that it need not be brought there again.

use std::sync::{Arc, Weak};

use crate::optimizer::Optimizer;

/// A state as a call began or ended with it. It is recognised for as long as nobody changes it: whoever does moves it to another place.
#[derive(Clone, Default)]
pub struct Resident {
    values: Weak<Vec<f32>>,
    optimizer: Option<(u64, Vec<Weak<Vec<f32>>>)>,
}

impl Resident {
    /// These values, and the state of this optimizer.
    pub fn new(values: &Arc<Vec<f32>>, optimizer: Option<&Optimizer>) -> Self {
        Self { values: Arc::downgrade(values), optimizer: optimizer.map(Optimizer::marks) }
    }

    /// Whether these are the values.
    pub fn has_values(&self, values: &Arc<Vec<f32>>) -> bool {
        Weak::ptr_eq(&self.values, &Arc::downgrade(values))
    }

    /// Whether this is the optimizer's state.
    pub fn has_optimizer(&self, optimizer: &Optimizer) -> bool {
        let Some((n_steps, vectors)) = &self.optimizer else { return false };
        let (n_now, now) = optimizer.marks();
        *n_steps == n_now && vectors.len() == now.len() && vectors.iter().zip(&now).all(|(old, new)| old.ptr_eq(new))
    }

    /// From now on, other values count.
    pub fn set_values(&mut self, other: &Self) {
        self.values = other.values.clone();
    }

    /// From now on, no values are known.
    pub fn forget_values(&mut self) {
        self.values = Weak::new();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Resident;
    use crate::optimizer::{Optimizer, OptimizerSpec};

    #[test]
    fn a_state_is_recognised_until_it_changes() {
        let mut optimizer = Optimizer::new(OptimizerSpec { momentum: 0.5, ..OptimizerSpec::default() }, 2);
        let mut values = Arc::new(vec![1.0, 2.0]);
        let resident = Resident::new(&values, Some(&optimizer));
        assert!(resident.has_values(&values) && resident.has_optimizer(&optimizer));
        assert!(!resident.has_values(&Arc::new(vec![1.0, 2.0])) && !Resident::default().has_values(&values));

        Arc::make_mut(&mut values)[0] = 3.0;
        assert!(!resident.has_values(&values) && resident.has_optimizer(&optimizer));
        optimizer.state_mut().1[0][0] = 1.0;
        assert!(!resident.has_optimizer(&optimizer));
    }

    #[test]
    fn one_that_took_another_step_is_another() {
        let mut optimizer = Optimizer::new(OptimizerSpec::default(), 2);
        let resident = Resident::new(&Arc::default(), Some(&optimizer));
        assert!(resident.has_optimizer(&optimizer));
        *optimizer.state_mut().0 += 1;
        assert!(!resident.has_optimizer(&optimizer));
        assert!(!Resident::new(&Arc::default(), None).has_optimizer(&optimizer));
    }
}
