//! Deltas put onto a replica.

use super::deltas::{Deltas, index, signed};

impl Deltas {
    /// `values[i] += ±τ` for each delta. The slice has to be of the length that the deltas are for.
    pub fn add_to(&self, values: &mut [f32]) {
        self.add_times(1.0, values);
    }

    /// The same with `±factor·τ`.
    pub fn add_times(&self, factor: f32, values: &mut [f32]) {
        assert_eq!(values.len(), self.n_values, "deltas are for a vector of one length");
        // No element comes twice, so the processor can have many of these on their way from memory at once.
        let step = factor * self.tau;
        for &mark in &self.marks {
            values[index(mark)] += signed(mark, step);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sparse::Deltas;
    use nettorrent_engine::rng::Rng;

    #[test]
    fn applying_is_one_plain_addition() {
        let mut rng = Rng::new(2);
        let mut residual: Vec<f32> = (0..1000).map(|_| rng.normal()).collect();
        let values: Vec<f32> = (0..1000).map(|_| 10.0 * rng.normal()).collect();
        let mut deltas = Deltas::new();
        deltas.scan(&mut residual, 0.7);
        let mut added = values.clone();
        deltas.add_to(&mut added);
        let mut expected = values.clone();
        for (i, delta) in deltas.iter() {
            expected[i] += delta;
        }
        assert_eq!(added, expected);
        deltas.add_times(-1.0, &mut added);
        assert!(added.iter().zip(&values).all(|(back, value)| (back - value).abs() < 1e-5));
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn another_length_is_our_own_mistake() {
        let mut deltas = Deltas::new();
        deltas.scan(&mut [1.0, 2.0], 0.5);
        deltas.add_to(&mut [0.0; 3]);
    }
}
