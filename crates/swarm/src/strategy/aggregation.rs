//! Aggregation: how contributions that lie at one place become one vector.

use serde::{Deserialize, Serialize};

use super::Trained;

/// How contributions are weighed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// All alike.
    #[default]
    Average,
    /// By how many samples were trained.
    Samples,
    /// By the mean loss.
    Weighted,
    /// By where the mean loss lies between the least and the greatest.
    WeightedMinmax,
}

/// What one peer hands in.
pub struct Contribution<'a> {
    /// How its turn went.
    pub trained: Trained,
    /// Its vector, in as many parts as the result has.
    pub parts: Vec<&'a [f32]>,
}

impl Aggregation {
    /// Makes one vector of them, into numbers that are zero.
    pub fn aggregate(self, contributions: &[Contribution<'_>], result: &mut [Vec<f32>]) {
        let turns: Vec<Trained> = contributions.iter().map(|contribution| contribution.trained).collect();
        for (contribution, share) in contributions.iter().zip(self.shares(&turns)) {
            for (result, part) in result.iter_mut().zip(&contribution.parts) {
                result.iter_mut().zip(*part).for_each(|(result, number)| *result += share * number);
            }
        }
    }

    /// How much each contribution counts; together 1.
    fn shares(self, turns: &[Trained]) -> Vec<f32> {
        let losses = turns.iter().map(|turn| turn.mean_loss);
        let least = losses.clone().fold(f64::INFINITY, f64::min);
        let greatest = losses.fold(0.0, f64::max);
        let weight = |turn: &Trained| match self {
            Self::Average => 1.0,
            Self::Samples => turn.n_samples as f64,
            Self::Weighted => turn.mean_loss,
            Self::WeightedMinmax => (turn.mean_loss - least) / (greatest - least),
        };
        let weights: Vec<f64> = turns.iter().map(weight).collect();
        let total: f64 = weights.iter().sum();
        if !(total > 0.0 && total.is_finite()) {
            // All losses are equal, or nothing: then nobody counts more than another.
            return vec![1.0 / turns.len() as f32; turns.len()];
        }
        weights.iter().map(|weight| (weight / total) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Aggregation;
    use crate::strategy::Trained;

    fn turns() -> Vec<Trained> {
        [(1.0, 10), (3.0, 30), (2.0, 40)].map(|(mean_loss, n_samples)| Trained { n_samples, mean_loss }).to_vec()
    }

    #[test]
    fn contributions_are_weighed_as_described() {
        let expect = |aggregation: Aggregation, expected: [f32; 3]| {
            let shares = aggregation.shares(&turns());
            assert!(shares.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{aggregation:?}: {shares:?}");
        };
        expect(Aggregation::Average, [1.0 / 3.0; 3]);
        expect(Aggregation::Samples, [0.125, 0.375, 0.5]);
        expect(Aggregation::Weighted, [1.0 / 6.0, 0.5, 1.0 / 3.0]);
        expect(Aggregation::WeightedMinmax, [0.0, 2.0 / 3.0, 1.0 / 3.0]);
    }

    #[test]
    fn equal_losses_count_alike() {
        let equal = vec![Trained { mean_loss: 0.0, n_samples: 1 }; 4];
        for aggregation in [Aggregation::Weighted, Aggregation::WeightedMinmax] {
            assert_eq!(aggregation.shares(&equal), [0.25; 4]);
        }
    }
}
