//! Whether all of some numbers are numbers.

use super::vectors::vectorised;

/// Whether no number is infinite or none (NaN). It looks at every one, for that is quicker than to stop at the first.
pub fn is_finite(numbers: &[f32]) -> bool {
    // The largest of the bits without their signs: unlike a chain of conditions, that is taken of whole vectors.
    let bits = |number: &f32| number.to_bits() & (u32::MAX >> 1);
    vectorised(|| numbers.iter().map(bits).fold(0, u32::max)) < f32::INFINITY.to_bits()
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
