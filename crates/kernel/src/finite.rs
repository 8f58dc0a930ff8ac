//! Whether all of some numbers are numbers.

use super::vectors::vectorised;

/// Whether no number is infinite or none (NaN). It looks at every one, for that is quicker than to stop at the first.
pub fn is_finite(numbers: &[f32]) -> bool {
    vectorised(|| numbers.iter().fold(true, |all, number| all & number.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::is_finite;

    #[test]
    fn numbers_that_are_not_finite_are_seen_wherever_they_are() {
        assert!(is_finite(&[]) && is_finite(&[0.0, -0.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45]));
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for at in [0, 1, 30, 66] {
                let mut numbers = vec![1.0; 67];
                numbers[at] = bad;
                assert!(!is_finite(&numbers), "{bad} at {at}");
            }
        }
    }
}
