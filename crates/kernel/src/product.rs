//! Matrix products over strided views.
//!
//! The right side is laid out in panels as wide as a tile, so that the inner loop reads it one vector after the other; the left side is
//! read as it lies, where the numbers of its rows lie next to each other. Blocks are as large as the caches hold: a panel of the right
//! side in the nearest one while all rows of a block of the left side go by, and those in the next.

use std::cell::RefCell;
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::tiles::{At, Tiled, WIDEST, add_products, for_each_tile, panels};
use super::transposition::transpose;
use super::vectors::{load, store};

/// A matrix that lies somewhere in a slice: how many rows and columns, and how far apart they are.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    numbers: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> Matrix<'a> {
    /// A matrix whose rows lie one after the other.
    pub fn new(numbers: &'a [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(numbers.len(), rows * columns, "a {rows} by {columns} matrix");
        Self { numbers, rows, columns, row_step: columns, column_step: 1 }
    }

    /// A matrix whose rows begin so far apart.
    pub fn strided(numbers: &'a [f32], rows: usize, columns: usize, row_step: usize) -> Self {
        assert!(numbers.len() >= span(rows, columns, row_step), "a {rows} by {columns} matrix, {row_step} apart");
        Self { numbers, rows, columns, row_step, column_step: 1 }
    }

    /// Some of its rows.
    pub fn rows(self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "{rows:?} of {} rows", self.rows);
        Self { numbers: &self.numbers[rows.start * self.row_step..], rows: rows.len(), ..self }
    }

    /// The same numbers with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row_step: self.column_step, column_step: self.row_step, ..self }
    }

    fn part(self, rows: &Range<usize>, columns: &Range<usize>) -> Self {
        let start = rows.start * self.row_step + columns.start * self.column_step;
        let numbers = self.numbers.get(start..).unwrap_or_default();
        Self { numbers, rows: rows.len(), columns: columns.len(), ..self }
    }
}

/// How many numbers rows take that begin `row_step` apart, the last without what is between it and a next one.
fn span(rows: usize, columns: usize, row_step: usize) -> usize {
    if rows == 0 { 0 } else { (rows - 1) * row_step + columns }
}

/// Where a product goes.
pub struct MatrixMut<'a> {
    numbers: &'a mut [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> MatrixMut<'a> {
    /// A matrix whose rows lie one after the other.
    pub fn new(numbers: &'a mut [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(numbers.len(), rows * columns, "a {rows} by {columns} matrix");
        Self { numbers, rows, columns, row_step: columns, column_step: 1 }
    }

    /// A matrix whose rows begin so far apart; what is between them stays as it is.
    pub fn strided(numbers: &'a mut [f32], rows: usize, columns: usize, row_step: usize) -> Self {
        assert!(row_step >= columns && numbers.len() >= span(rows, columns, row_step), "a {rows} by {columns} matrix");
        Self { numbers, rows, columns, row_step, column_step: 1 }
    }

    fn transposed(&mut self) -> MatrixMut<'_> {
        let Self { rows, columns, row_step, column_step, .. } = *self;
        MatrixMut { numbers: self.numbers, rows: columns, columns: rows, row_step: column_step, column_step: row_step }
    }

    /// Puts rows of sums where they belong, which are whole vectors, where the numbers of a row lie next to each other.
    #[inline(always)]
    fn put_vectors<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &mut self,
        simd: S,
        Terms { scale, keep }: Terms,
        at: At,
        sums: &[[S::f32s; VECTORS]; ROWS],
    ) {
        let rows = &mut self.numbers[at.row * self.row_step + at.channel..];
        let (scales, keeps) = (simd.splat_f32s(scale), simd.splat_f32s(keep));
        let scaled = |sums: &[S::f32s; VECTORS]| sums.map(|sum| simd.mul_f32s(scales, sum));
        // Two loops, since only simple ones are unrolled, and only then are sums in registers.
        if keep == 0.0 {
            for (r, sums) in sums.iter().enumerate() {
                store::<S, VECTORS, false>(simd, rows, r * self.row_step, &scaled(sums));
            }
        } else {
            for (r, sums) in sums.iter().enumerate() {
                let mut numbers = load::<S, VECTORS, false>(simd, rows, r * self.row_step);
                for (number, sum) in numbers.iter_mut().zip(scaled(sums)) {
                    *number = simd.add_f32s(simd.mul_f32s(keeps, *number), sum);
                }
                store::<S, VECTORS, false>(simd, rows, r * self.row_step, &numbers);
            }
        }
    }

    /// Puts rows of sums, each so wide, where they belong.
    #[inline(always)]
    fn put(&mut self, Terms { scale, keep }: Terms, at: At, width: usize, sums: &[[f32; 2 * WIDEST]]) {
        let start = at.row * self.row_step + at.channel * self.column_step;
        let put =
            |number: &mut f32, sum: f32| *number = if keep == 0.0 { scale * sum } else { keep * *number + scale * sum };
        if self.column_step == 1 {
            for (r, sums) in sums.iter().enumerate() {
                let row = &mut self.numbers[start + r * self.row_step..][..width];
                row.iter_mut().zip(sums).for_each(|(number, &sum)| put(number, sum));
            }
        } else {
            for c in 0..width {
                let column = self.numbers[start + c * self.column_step..].iter_mut().step_by(self.row_step);
                column.zip(sums).for_each(|(number, sums)| put(number, sums[c]));
            }
        }
    }

    fn part(&mut self, rows: &Range<usize>, columns: &Range<usize>) -> MatrixMut<'_> {
        let start = rows.start * self.row_step + columns.start * self.column_step;
        let (row_step, column_step) = (self.row_step, self.column_step);
        let numbers = &mut self.numbers[start..];
        MatrixMut { numbers, rows: rows.len(), columns: columns.len(), row_step, column_step }
    }
}

/// `out = keep * out + left * right`. With `keep` zero, whatever was in `out` does not matter.
pub fn multiply(left: Matrix<'_>, right: Matrix<'_>, keep: f32, out: &mut MatrixMut<'_>) {
    multiply_scaled(1.0, left, right, keep, out);
}

/// `out = keep * out + scale * left * right`.
pub fn multiply_scaled(scale: f32, left: Matrix<'_>, right: Matrix<'_>, keep: f32, out: &mut MatrixMut<'_>) {
    assert_eq!((left.rows, right.columns), (out.rows, out.columns), "the product must fit its place");
    assert_eq!(left.columns, right.rows, "the inner sizes must agree");
    if out.rows == 0 || out.columns == 0 {
        return;
    }
    let terms = Terms { scale, keep };
    PACKED.with_borrow_mut(|packed| {
        // To be packed is what takes time: the smaller side is, where the larger one can be read as it lies.
        if right.column_step != 1 && left.rows < right.columns {
            packed.multiply(terms, right.transposed(), left.transposed(), FLIPPED_DEPTH, &mut out.transposed());
        } else {
            packed.multiply(terms, left, right, DEPTH, out);
        }
    });
}

/// `out = keep * out + scale * product`.
#[derive(Clone, Copy)]
struct Terms {
    scale: f32,
    keep: f32,
}

/// How many numbers of the inner size are summed at a time: the results are read and written as often, and a panel should stay in a
/// cache near by (measured: 256 and 384 are up to a quarter slower).
const DEPTH: usize = 512;
/// The same where results are stored column by column, which takes longer than a panel from the second-level cache.
const FLIPPED_DEPTH: usize = 2048;
/// How many rows of the left side, and columns of the right one, are gone through at a time.
const ROWS: usize = 256;
const COLUMNS: usize = 1024;
/// Up to so many rows packing the right side takes longer than it saves.
const FEW_ROWS: usize = 48;

thread_local! {
    static PACKED: RefCell<Packed> = RefCell::default();
}

/// Memory for blocks of both sides.
#[derive(Default)]
struct Packed {
    left: Vec<f32>,
    right: Vec<f32>,
}

impl Packed {
    fn multiply(&mut self, terms: Terms, left: Matrix<'_>, right: Matrix<'_>, depth: usize, out: &mut MatrixMut<'_>) {
        let packs = right.column_step != 1 || left.rows > FEW_ROWS;
        for columns in blocks(right.columns, COLUMNS) {
            for (number, depth) in blocks(left.columns, depth).enumerate() {
                let keep = if number == 0 { terms.keep } else { 1.0 };
                let right = right.part(&depth, &columns);
                let right =
                    if packs { Right::Packed(pack_right(&right, &mut self.right)) } else { Right::Plain(right) };
                for rows in blocks(left.rows, ROWS) {
                    let left = pack_left(left.part(&rows, &depth), &mut self.left);
                    let (terms, out) = (Terms { keep, ..terms }, out.part(&rows, &columns));
                    pulp::Arch::new().dispatch(Product { terms, left, right, out });
                }
            }
        }
    }
}

/// Cuts `n` into as few blocks of at most `most` as possible, all nearly the same size; where there is nothing, one that is empty.
fn blocks(n: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let n_blocks = n.div_ceil(most).max(1);
    (0..n_blocks).map(move |i| i * n / n_blocks..(i + 1) * n / n_blocks)
}

/// A block of the left side with the numbers of a row next to each other.
fn pack_left<'a>(left: Matrix<'a>, packed: &'a mut Vec<f32>) -> Matrix<'a> {
    if left.column_step == 1 {
        return left;
    }
    packed.resize(packed.len().max(left.rows * left.columns), 0.0);
    let packed = &mut packed[..left.rows * left.columns];
    let (rows, columns) = (left.rows, left.columns);
    transpose(left.numbers, (columns, rows, left.column_step), packed, columns);
    Matrix::new(packed, left.rows, left.columns)
}

/// A block of the right side, panel by panel: for a few columns at a time, all rows one after the other.
fn pack_right<'a>(right: &Matrix<'_>, packed: &'a mut Vec<f32>) -> &'a [f32] {
    let len = right.rows * right.columns.next_multiple_of(WIDEST);
    packed.resize(packed.len().max(len), 0.0);
    let packed = &mut packed[..len];
    for (column, width) in panels(right.columns) {
        let panel = &mut packed[column * right.rows..][..width * right.rows];
        let n = width.min(right.columns - column);
        if n < width {
            panel.fill(0.0);
        }
        let columns = right.part(&(0..right.rows), &(column..column + n));
        if right.column_step == 1 {
            for (k, to) in panel.chunks_exact_mut(width).enumerate() {
                let from = &columns.numbers[k * right.row_step..][..n];
                // Of a length that the compiler knows: calls would take most of the time.
                match (<&mut [f32; 2 * WIDEST]>::try_from(&mut *to), <&[f32; 2 * WIDEST]>::try_from(from)) {
                    (Ok(to), Ok(from)) => *to = *from,
                    _ => to[..n].copy_from_slice(from),
                }
            }
        } else {
            transpose(columns.numbers, (n, columns.rows, columns.column_step), panel, width);
        }
    }
    packed
}

/// A block of the right side.
#[derive(Clone, Copy)]
enum Right<'a> {
    Packed(&'a [f32]),
    /// As it lies, the numbers of a row next to each other.
    Plain(Matrix<'a>),
}

/// The product of two blocks.
struct Product<'a> {
    terms: Terms,
    left: Matrix<'a>,
    right: Right<'a>,
    out: MatrixMut<'a>,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for_each_tile(simd, &mut self);
    }
}

impl Tiled for Product<'_> {
    fn extent(&self) -> (usize, usize, usize) {
        (1, self.out.rows, self.out.columns)
    }

    #[inline(always)]
    fn tile<S: Simd, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(&mut self, simd: S, at: At) {
        let (depth, row_step) = (self.left.columns, self.left.row_step);
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        let (weights, step) = match self.right {
            Right::Packed(numbers) => (&numbers[at.channel * depth..], VECTORS * S::F32_LANES),
            Right::Plain(right) => (&right.numbers[at.channel..], right.row_step),
        };
        let lefts = &self.left.numbers[at.row * row_step..];
        add_products::<S, ROWS, VECTORS, PARTIAL>(simd, &mut sums, lefts, row_step, weights, step, depth);
        if !PARTIAL && self.out.column_step == 1 {
            return self.out.put_vectors(simd, self.terms, at, &sums);
        }
        // Loops must be simple to be unrolled, and only then are sums in registers: so all of them are stored before anything else.
        let mut lanes = [[0.0; 2 * WIDEST]; ROWS];
        for (lanes, sums) in lanes.iter_mut().zip(&sums) {
            store::<S, VECTORS, false>(simd, lanes, 0, sums);
        }
        let width = (VECTORS * S::F32_LANES).min(self.out.columns - at.channel);
        self.out.put(self.terms, at, width, &lanes);
    }
}

#[cfg(test)]
mod tests {
    use super::{Matrix, MatrixMut, multiply_scaled};
    use crate::random::random;

    /// Rows and columns of a matrix that may be transposed and have gaps between its rows.
    fn matrix(numbers: &[f32], rows: usize, columns: usize, is_transposed: bool) -> Matrix<'_> {
        let step = if is_transposed { rows } else { columns } + 3;
        if is_transposed {
            Matrix::strided(numbers, columns, rows, step).transposed()
        } else {
            Matrix::strided(numbers, rows, columns, step)
        }
    }

    #[test]
    fn products_are_as_defined_however_matrices_lie() {
        let mut seed = 1;
        let sizes =
            [(1, 1, 1), (1, 70, 40), (3, 5, 7), (13, 16, 32), (14, 400, 33), (60, 9, 65), (530, 3, 20), (5, 2, 1100)];
        for (rows, depth, columns) in sizes {
            for kind in 0..8 {
                let (left_flipped, right_flipped, keep) =
                    (kind & 1 > 0, kind & 2 > 0, if kind & 4 > 0 { 0.5 } else { 0.0 });
                let mut side = |rows, columns| random((rows + 3) * (columns + 3) + 3 * (rows + columns), &mut seed);
                let (left, right, before) = (side(rows, depth), side(depth, columns), side(rows, columns));
                let (l, r) = (matrix(&left, rows, depth, left_flipped), matrix(&right, depth, columns, right_flipped));
                let mut found = before.clone();
                let step = columns + 2;
                multiply_scaled(0.25, l, r, keep, &mut MatrixMut::strided(&mut found, rows, columns, step));
                let at = |m: &Matrix<'_>, i: usize, k: usize| f64::from(m.numbers[i * m.row_step + k * m.column_step]);
                for (place, (&found, &before)) in found.iter().zip(&before).enumerate() {
                    let (i, j) = (place / step, place % step);
                    if i >= rows || j >= columns {
                        assert_eq!(found, before, "what is between the rows stays");
                        continue;
                    }
                    let sum: f64 = (0..depth).map(|k| at(&l, i, k) * at(&r, k, j)).sum();
                    let expected = 0.25 * sum + f64::from(keep) * f64::from(before);
                    assert!(
                        (f64::from(found) - expected).abs() < 1e-4,
                        "{rows}x{depth}x{columns}, {kind}: {found} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_transposed_column_is_a_row() {
        for (rows, columns) in [(2, 40), (64, 40), (64, 7)] {
            let (left, right): (Vec<f32>, Vec<f32>) =
                ((0..rows).map(|i| i as f32).collect(), (0..columns).map(|j| j as f32).collect());
            let mut out = vec![f32::NAN; rows * columns];
            let weights = Matrix::new(&right, columns, 1).transposed();
            multiply_scaled(
                1.0,
                Matrix::new(&left, rows, 1),
                weights,
                0.0,
                &mut MatrixMut::new(&mut out, rows, columns),
            );
            assert!(out.iter().enumerate().all(|(at, &found)| found == (at / columns * (at % columns)) as f32));
        }
    }

    #[test]
    fn what_is_lost_does_not_matter() {
        let (left, right) = ([1.0, 2.0], [3.0, 4.0]);
        let mut out = [f32::NAN];
        multiply_scaled(
            1.0,
            Matrix::new(&left, 1, 2),
            Matrix::new(&right, 2, 1),
            0.0,
            &mut MatrixMut::new(&mut out, 1, 1),
        );
        assert_eq!(out, [11.0]);
        let empty = |rows, columns| Matrix::new(&[], rows, columns);
        multiply_scaled(1.0, empty(1, 0), empty(0, 1), 0.5, &mut MatrixMut::new(&mut out, 1, 1));
        assert_eq!(out, [5.5], "an empty sum is zero");
        multiply_scaled(1.0, empty(0, 3), Matrix::new(&[1.0; 6], 3, 2), 0.0, &mut MatrixMut::new(&mut [], 0, 2));
    }
}
