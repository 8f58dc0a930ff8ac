//! The exponential moving average of the parameters, which is tested and saved as the model while training goes on with the parameters.
//!
//! It follows them where all peers with the same past have the same: after each round. So all have the same average, and nobody sends it
//! but to those who are behind, with the rest of the state.

use std::sync::Arc;

use nettorrent_engine::kernel::vectorised;

/// A mean of the parameters of before, in which older ones count less and less.
pub(crate) struct Average {
    /// How much of it stays with each step.
    decay: f32,
    values: Arc<Vec<f32>>,
}

impl Average {
    /// One that goes on from this vector.
    pub(super) fn new(decay: f32, values: Arc<Vec<f32>>) -> Self {
        Self { decay, values }
    }

    pub(super) fn values(&self) -> &Arc<Vec<f32>> {
        &self.values
    }

    /// Begins anew.
    pub(super) fn set(&mut self, values: Arc<Vec<f32>>) {
        self.values = values;
    }

    /// Takes in the parameters after `n_steps` more steps, the last of which was the run's `step`th. In the beginning less of it stays:
    /// else it would long be that of parameters that had learnt nothing.
    pub(super) fn follow(&mut self, values: &[f32], step: u64, n_steps: u32) {
        let decay = f64::from(self.decay).min((1.0 + step as f64) / (10.0 + step as f64));
        // Multiplied one by one, so that it is the same number on every machine.
        let stays = (0..n_steps).fold(1.0, |stays, _| stays * decay) as f32;
        let comes = 1.0 - stays;
        let mean = Arc::make_mut(&mut self.values);
        vectorised(
            #[inline(always)]
            || mean.iter_mut().zip(values).for_each(|(mean, value)| *mean = stays * *mean + comes * value),
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Average;

    #[test]
    fn older_parameters_count_less() {
        let mut average = Average::new(0.5, Arc::new(vec![0.0, 8.0]));
        average.follow(&[4.0, 0.0], 1000, 1);
        assert_eq!(**average.values(), [2.0, 4.0]);
        average.follow(&[6.0, 8.0], 1002, 2);
        assert_eq!(**average.values(), [5.0, 7.0], "two steps are as much as one and one");
        average.follow(&[0.0, 0.0], 1002, 0);
        assert_eq!(**average.values(), [5.0, 7.0], "without a step nothing changes");
    }

    #[test]
    fn the_beginning_is_forgotten_soon() {
        let mut average = Average::new(0.999, Arc::new(vec![100.0]));
        (1..=50).for_each(|step| average.follow(&[1.0], step, 1));
        assert!((average.values()[0] - 1.0).abs() < 1e-3, "{:?}", average.values());
    }
}
