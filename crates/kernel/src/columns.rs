//! Passes over rows of channels that treat every channel (column) by itself: sums down the columns, scales along them.

use pulp::{Simd, WithSimd};

use super::vectors::{load, store, vectorised};

/// `sums += the sum of (a - its shift)` and `products += the sum of (a - its shift) * (b - its shift)`, column by column, for
/// two pairs of rows and shift.
///
/// With `a` and `b` the same and the shift near the mean this is what a mean and a variance need, without the loss of digits
/// that plain sums would bring; with a gradient as `a` it is what batch norm's backward pass needs.
pub fn column_sums(pairs: [(&[f32], &[f32]); 2], sums: &mut [f32], products: &mut [f32]) {
    let [(a, a_shift), (b, b_shift)] = pairs;
    let n_columns = a_shift.len();
    assert_eq!(a.len(), b.len());
    assert_eq!(a.len() % n_columns, 0, "rows must be whole");
    assert!([b_shift.len(), sums.len(), products.len()].iter().all(|&len| len == n_columns));
    pulp::Arch::new().dispatch(ColumnSums { a, b, a_shift, b_shift, sums, products });
}

struct ColumnSums<'a> {
    a: &'a [f32],
    b: &'a [f32],
    a_shift: &'a [f32],
    b_shift: &'a [f32],
    sums: &'a mut [f32],
    products: &'a mut [f32],
}

/// Rows that are summed side by side, so that one addition need not wait for the last.
const ROWS: usize = 4;

impl WithSimd for ColumnSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let n_columns = self.a_shift.len();
        for column in (0..n_columns).step_by(S::F32_LANES) {
            if n_columns - column >= S::F32_LANES {
                self.columns::<S, false>(simd, column);
            } else {
                self.columns::<S, true>(simd, column);
            }
        }
    }
}

impl ColumnSums<'_> {
    /// One vector of columns; a `PARTIAL` one ends with the row.
    #[inline(always)]
    fn columns<S: Simd, const PARTIAL: bool>(&mut self, simd: S, column: usize) {
        let n_columns = self.a_shift.len();
        let at = |numbers: &[f32], place: usize| load::<S, 1, PARTIAL>(simd, numbers, place)[0];
        let (a_shift, b_shift) = (at(self.a_shift, column), at(self.b_shift, column));
        let mut sums = [simd.splat_f32s(0.0); ROWS];
        let mut products = sums;
        let n_rows = self.a.len() / n_columns;
        let mut add = |lane: usize, row: usize| {
            let a = simd.sub_f32s(at(self.a, row * n_columns + column), a_shift);
            let b = simd.sub_f32s(at(self.b, row * n_columns + column), b_shift);
            sums[lane] = simd.add_f32s(sums[lane], a);
            products[lane] = simd.mul_add_e_f32s(a, b, products[lane]);
        };
        for group in 0..n_rows / ROWS {
            (0..ROWS).for_each(|lane| add(lane, group * ROWS + lane));
        }
        (n_rows / ROWS * ROWS..n_rows).for_each(|row| add(0, row));
        for (parts, total) in [(sums, &mut *self.sums), (products, &mut *self.products)] {
            let total_now = parts.iter().fold(at(total, column), |total, &part| simd.add_f32s(total, part));
            store::<S, 1, PARTIAL>(simd, total, column, &[total_now]);
        }
    }
}

/// `out = shift + the sum of factor * rows` over some (rows, factor) pairs, column by column.
pub fn affine_columns<const N: usize>(terms: [(&[f32], &[f32]); N], shift: &[f32], out: &mut [f32]) {
    // Few channels make short loops: several rows are treated as one, with the factors repeated.
    let repeat = 128_usize.div_ceil(shift.len());
    let factors = terms.map(|(_, factors)| factors.repeat(repeat));
    let shift = shift.repeat(repeat);
    let rows = terms.map(|(rows, _)| rows);
    assert!(rows.iter().all(|rows| rows.len() == out.len()));
    vectorised(
        #[inline(always)]
        || {
            for (i, out) in out.chunks_mut(shift.len()).enumerate() {
                let at = i * shift.len();
                let rows: [&[f32]; N] = std::array::from_fn(|term| &rows[term][at..at + out.len()]);
                let factors: [&[f32]; N] = std::array::from_fn(|term| &factors[term][..out.len()]);
                let shift = &shift[..out.len()];
                for (j, out) in out.iter_mut().enumerate() {
                    *out = (0..N).fold(shift[j], |sum, term| sum + factors[term][j] * rows[term][j]);
                }
            }
        },
    );
}

#[cfg(test)]
mod tests {
    use super::{affine_columns, column_sums};
    use crate::random::random;

    #[test]
    fn both_equal_their_definitions() {
        let mut seed = 2;
        for (n_rows, n_columns) in [(1, 1), (7, 3), (9, 16), (5, 40), (30, 130)] {
            let mut random = |n: usize| random(n, &mut seed);
            let (a, b) = (random(n_rows * n_columns), random(n_rows * n_columns));
            let (shift, factor) = (random(n_columns), random(n_columns));
            let (mut sums, mut products) = (shift.clone(), factor.clone());
            column_sums([(&a, &factor), (&b, &shift)], &mut sums, &mut products);
            let mut out = vec![0.0; a.len()];
            affine_columns([(&a, &factor), (&b, &shift)], &factor, &mut out);
            for column in 0..n_columns {
                let places = (0..n_rows).map(|row| row * n_columns + column);
                let sum: f32 = places.clone().map(|i| a[i] - factor[column]).sum();
                let product: f32 = places.clone().map(|i| (a[i] - factor[column]) * (b[i] - shift[column])).sum();
                assert!((sums[column] - shift[column] - sum).abs() < 1e-4);
                assert!((products[column] - factor[column] - product).abs() < 1e-4);
                for i in places {
                    let expected = a[i] * factor[column] + b[i] * shift[column] + factor[column];
                    assert!((out[i] - expected).abs() < 1e-5);
                }
            }
        }
    }
}
