//! The exponential function and what is made of it, without branches or calls, so that loops over them become vectors.
//!
//! All are to be called within [`vectorised`](super::vectorised). What is no number (NaN) stays none.

/// e^x, to within 2 units in the last place; 0 and infinity beyond the ends.
///
/// x is cut into a whole number of halvings or doublings n and a rest between -ln 2 / 2 and ln 2 / 2, whose exponential is a
/// polynomial (Cephes' `expf`).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Adding this number rounds to a whole one, which is then found in the last bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has so few digits that its products with n are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    // Not `clamp`, which is for numbers only.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let rest = x - n * LN_2[0] - n * LN_2[1];
    let terms = [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 0.5];
    let e = polynomial(terms, rest) * rest * rest + rest + 1.0;
    // In two factors, since 2^n itself may be too large or small for a normal number.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let power = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    let half = n >> 1;
    e * power(half) * power(n.wrapping_sub(half))
}

/// 1 / (1 + e^-x).
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent: near 0, where the exponential would lose digits, a polynomial (Cephes' `tanhf`).
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let square = x * x;
    let terms = [-5.704_988_6e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];
    let near = polynomial(terms, square) * square * x + x;
    let far = 1.0 - 2.0 / (exp(2.0 * x.abs()) + 1.0);
    if x.abs() < 0.625 { near } else { far.copysign(x) }
}

/// The normal distribution: the probability below x, to within 1.2e-7, and the density at x.
///
/// Near 0 the probability is a polynomial, and further out the rational approximation 7.1.26 of Abramowitz and Stegun.
#[inline(always)]
pub fn normal(x: f32) -> (f32, f32) {
    const DENSITY_AT_0: f32 = 0.398_942_3;
    let square = x * x;
    let terms = [-5.715_637e-6, 1.059_343_85e-4, -1.175_156_6e-3, 9.965_835e-3, -6.648_826_6e-2, 0.398_942_1];
    let near = 0.5 + x * polynomial(terms, square);
    let t = 1.0 / (1.0 + 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2 * x.abs());
    let e = exp(-0.5 * square);
    let terms = [1.061_405_4, -1.453_152, 1.421_413_8, -0.284_496_74, 0.254_829_6];
    let tail = 0.5 * polynomial(terms, t) * t * e;
    let far = if x < 0.0 { tail } else { 1.0 - tail };
    (if x.abs() < 1.5 { near } else { far }, DENSITY_AT_0 * e)
}

/// The coefficient of the highest power comes first.
#[inline(always)]
fn polynomial<const N: usize>(terms: [f32; N], x: f32) -> f32 {
    terms.iter().fold(0.0, |sum, term| sum * x + term)
}

#[cfg(test)]
mod tests {
    use super::{exp, normal, sigmoid, tanh};

    /// Numbers from -range to range, evenly spread.
    fn numbers(range: f32) -> impl Iterator<Item = f32> {
        (-100_000..=100_000_i32).map(move |i| range * i as f32 / 1e5)
    }

    /// The largest error as a share of what is expected; below the least normal number nothing is.
    fn largest_error(range: f32, found: impl Fn(f32) -> f32, expected: impl Fn(f64) -> f64) -> f64 {
        let error = |x: f32| {
            let expected = expected(f64::from(x));
            (f64::from(found(x)) - expected).abs() / expected.abs().max(f64::from(f32::MIN_POSITIVE))
        };
        numbers(range).map(error).fold(0.0, f64::max)
    }

    #[test]
    fn errors_are_a_few_units_in_the_last_place() {
        let unit = f64::from(f32::EPSILON);
        assert!(largest_error(87.3, exp, f64::exp) < unit);
        assert!(largest_error(20.0, tanh, f64::tanh) < 2.0 * unit);
        assert!(largest_error(0.01, tanh, f64::tanh) < unit);
        assert!(largest_error(80.0, sigmoid, |x| 1.0 / (1.0 + (-x).exp())) < 2.0 * unit);
    }

    /// Simpson's rule from where nothing is left up to x.
    fn normal_cdf(x: f64) -> f64 {
        let density = |x: f64| (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let (n, low) = (400, -9.0);
        let step = (x - low) / f64::from(n);
        let weight = |i: i32| match i {
            0 | 400 => 1.0,
            _ => f64::from(2 + 2 * (i % 2)),
        };
        (0..=n).map(|i| weight(i) * density(low + f64::from(i) * step)).sum::<f64>() * step / 3.0
    }

    #[test]
    fn the_normal_distribution() {
        for x in (-500..=500).map(|i| i as f32 / 80.0) {
            let (below, density) = normal(x);
            let error = (f64::from(below) - normal_cdf(f64::from(x))).abs();
            assert!(error < 1.2e-7, "{below} below {x} is {error} off");
            let expected = (-0.5 * f64::from(x).powi(2)).exp() * 0.398_942_280_401_432_7;
            assert!((f64::from(density) - expected).abs() < 1e-7, "{density} at {x}");
        }
        assert_eq!(normal(f32::INFINITY), (1.0, 0.0));
        assert_eq!(normal(f32::NEG_INFINITY), (0.0, 0.0));
    }

    #[test]
    fn beyond_the_ends() {
        for (x, expected) in [(88.8, f32::INFINITY), (1e30, f32::INFINITY), (-1e30, 0.0), (0.0, 1.0), (-0.0, 1.0)] {
            assert_eq!(exp(x), expected, "e^{x}");
        }
        assert!((exp(88.72) / 88.72_f32.exp() - 1.0).abs() < 1e-6 && exp(-100.0) > 0.0);
        assert_eq!((exp(f32::INFINITY), exp(f32::NEG_INFINITY)), (f32::INFINITY, 0.0));
        assert_eq!((tanh(f32::INFINITY), tanh(f32::NEG_INFINITY), tanh(-50.0)), (1.0, -1.0, -1.0));
        assert_eq!((sigmoid(f32::INFINITY), sigmoid(f32::NEG_INFINITY)), (1.0, 0.0));
        for function in [exp, tanh, sigmoid, |x| normal(x).0, |x| normal(x).1] {
            assert!(function(f32::NAN).is_nan() && function(-f32::NAN).is_nan());
        }
    }
}
