//! Sums along a row. A plain `iter().sum()` adds one number after the other, since float addition is not associative; here many
//! sums are kept side by side, which the compiler turns into vectors.

use super::vectors::vectorised;

/// Sums that are kept side by side: two of the widest vectors, so that one addition need not wait for the last.
const LANES: usize = 32;

/// The sum of `term` over numbers that belong together: one from each of the slices, which are equally long.
///
/// To be called within [`vectorised`](super::vectorised).
#[inline(always)]
pub fn sum<const N: usize>(slices: [&[f32]; N], term: impl Fn([f32; N]) -> f32) -> f32 {
    let n = slices[0].len();
    assert!(slices.iter().all(|slice| slice.len() == n), "slices must be equally long");
    let mut lanes = [0.0; LANES];
    let whole = n / LANES * LANES;
    for start in (0..whole).step_by(LANES) {
        let parts = slices.map(|slice| <&[f32; LANES]>::try_from(&slice[start..start + LANES]).expect("as long"));
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum += term(parts.map(|part| part[lane]));
        }
    }
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(low, high)| *low += *high);
        half /= 2;
    }
    (whole..n).fold(lanes[0], |sum, i| sum + term(slices.map(|slice| slice[i])))
}

/// The largest of some numbers, without those that are none (NaN); minus infinity if there are none.
///
/// To be called within [`vectorised`](super::vectorised).
#[inline(always)]
pub fn largest(numbers: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (whole, rest) = numbers.as_chunks::<LANES>();
    for part in whole {
        lanes.iter_mut().zip(part).for_each(|(largest, &number)| *largest = larger(*largest, number));
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |largest, &number| larger(largest, number))
}

/// The square of a vector's norm. In double precision, in which no square of single precision is infinite.
pub fn squared_norm(numbers: &[f32]) -> f64 {
    vectorised(
        #[inline(always)]
        || {
            let mut lanes = [0.0; LANES];
            let (whole, rest) = numbers.as_chunks::<LANES>();
            for part in whole {
                lanes.iter_mut().zip(part).for_each(|(sum, &number)| *sum += f64::from(number) * f64::from(number));
            }
            lanes.iter().sum::<f64>() + rest.iter().map(|&number| f64::from(number) * f64::from(number)).sum::<f64>()
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{largest, squared_norm, sum};
    use crate::random::random;
    use crate::vectorised;

    #[test]
    fn equals_the_definition() {
        let mut seed = 1;
        for n in [0, 1, 31, 32, 33, 200, 1000] {
            let (a, b) = (random(n, &mut seed), random(n, &mut seed));
            let expected: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let found = vectorised(|| sum([&a, &b], |[a, b]| a * b));
            assert!((f64::from(found) - expected).abs() < 1e-5, "{found} and not {expected} for {n} numbers");
        }
    }

    #[test]
    fn the_largest_is_found_wherever_it_is() {
        for at in [0, 31, 40, 69] {
            let mut numbers = vec![-1.0; 70];
            (numbers[at], numbers[7]) = (2.0, f32::NAN);
            assert_eq!(largest(&numbers), 2.0);
        }
        assert_eq!((largest(&[]), largest(&[-3.0])), (f32::NEG_INFINITY, -3.0));
    }

    #[test]
    fn no_number_stays_none() {
        for at in [0, 40, 69] {
            let mut numbers = vec![1.0; 70];
            numbers[at] = f32::NAN;
            assert!(sum([&numbers], |[x]| x).is_nan());
        }
    }

    #[test]
    fn enormous_numbers_have_a_norm() {
        assert_eq!(squared_norm(&[3.0, -4.0]), 25.0);
        assert_eq!(squared_norm(&[2.0; 70]), 280.0);
        assert!(squared_norm(&[f32::MAX; 40]).is_finite());
    }
}
