//! Whether two means differ by more than chance: Welch's t-test, for samples of unequal sizes and variances.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::compare::Spread;

/// The two-sided p-value of equal means; none where a sample has no variance to estimate, because it is one number.
pub(crate) fn p_value(one: &Spread, other: &Spread) -> Option<f64> {
    let squared_error = |spread: &Spread| Some((spread.deviation?.powi(2) / spread.n as f64, spread.n as f64 - 1.0));
    let ((a, a_freedom), (b, b_freedom)) = (squared_error(one)?, squared_error(other)?);
    let difference = (one.mean - other.mean).abs();
    if a + b == 0.0 {
        return Some(if difference == 0.0 { 1.0 } else { 0.0 });
    }
    let freedom = (a + b).powi(2) / (a * a / a_freedom + b * b / b_freedom);
    let distribution = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(2.0 * distribution.sf(difference / (a + b).sqrt()))
}

#[cfg(test)]
mod tests {
    use super::p_value;
    use crate::compare::Spread;

    fn p(numbers: [&[f64]; 2]) -> Option<f64> {
        let [one, other] = numbers.map(|numbers| Spread::of(numbers.iter().copied()).unwrap());
        p_value(&one, &other)
    }

    #[test]
    fn p_values() {
        // scipy.stats.ttest_ind(a, b, equal_var=False)
        let known = [
            (
                [&[27.5, 21.0, 19.0, 23.6, 17.0, 17.9][..], &[27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8][..]],
                0.174_933_550_710,
            ),
            ([&[97.4, 97.6, 97.5][..], &[97.9, 98.1, 98.0][..]], 0.003_602_232_609),
        ];
        for (numbers, expected) in known {
            let found = p(numbers).unwrap();
            assert!((found - expected).abs() < 1e-6, "{found} for {expected}");
        }
        assert_eq!(p([&[1.0, 1.0], &[1.0, 1.0]]), Some(1.0));
        assert_eq!(p([&[1.0, 1.0], &[2.0, 2.0]]), Some(0.0));
        assert_eq!(p([&[1.0], &[2.0, 3.0]]), None);
    }
}
