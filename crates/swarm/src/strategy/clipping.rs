//! Clipping: a contribution that is longer than most is made as long as the median one.
//!
//! It bounds what one peer can do in one exchange, whatever numbers it sends, and needs no more of the others than how long
//! their contributions are; so it is for those too who never see all contributions at once. It does not look at directions: who
//! sends the opposite of what it learnt, or a little of something else in every round, is heard with the weight of any other.
//! He, Karimireddy and Jaggi (2022), "Byzantine-robust decentralized learning via ClippedGossip"; Karimireddy, He and Jaggi
//! (2021), "Learning from history for Byzantine robust optimization".

/// The square of the distance between two vectors.
pub(crate) fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |(&a, &b): (&f32, &f32)| (f64::from(a) - f64::from(b)) * (f64::from(a) - f64::from(b));
    a.iter().zip(b).map(square).sum()
}

/// The median of these lengths, of two in the middle the lesser. Who has nothing to say has no say in how long others may
/// speak, so zeros do not count; `None` if there are no others.
pub(crate) fn median_norm(norms: impl Iterator<Item = f64>) -> Option<f64> {
    let mut norms: Vec<f64> = norms.filter(|&norm| norm > 0.0).collect();
    norms.sort_unstable_by(f64::total_cmp);
    norms.get(norms.len().saturating_sub(1) / 2).copied()
}

/// By what a contribution of this length is multiplied, so that it is no longer than the bound.
pub(crate) fn clip_factor(norm: f64, bound: f64) -> f32 {
    if norm <= bound { 1.0 } else { (bound / norm) as f32 }
}

#[cfg(test)]
mod tests {
    use super::{clip_factor, median_norm, squared_distance};

    #[test]
    fn whoever_is_longer_than_most_is_clipped_to_the_median() {
        assert_eq!(median_norm([3.0, 1.0, 100.0, 0.0, 2.0].into_iter()), Some(2.0));
        assert_eq!(median_norm([7.0].into_iter()), Some(7.0));
        assert_eq!(median_norm([0.0, 0.0].into_iter()), None);
        assert_eq!(clip_factor(2.0, 2.0), 1.0);
        assert_eq!(clip_factor(100.0, 2.0), 0.02);
        assert_eq!(clip_factor(0.0, 0.0), 1.0);
    }

    #[test]
    fn enormous_numbers_have_a_distance() {
        assert_eq!(squared_distance(&[3.0, 1.0], &[0.0, 5.0]), 25.0);
        assert!(squared_distance(&[f32::MAX; 4], &[f32::MIN; 4]).is_finite());
    }
}
