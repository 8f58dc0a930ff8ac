//! Matrix products over strided views, on the `gemm` project's single-precision kernels.

use gemm_f32::gemm::f32::get_gemm_fn;

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
    pub fn rows(self, rows: std::ops::Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "{rows:?} of {} rows", self.rows);
        Self { numbers: &self.numbers[rows.start * self.row_step..], rows: rows.len(), ..self }
    }

    /// The same numbers with rows and columns exchanged.
    pub fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, row_step: self.column_step, column_step: self.row_step, ..self }
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
}

impl<'a> MatrixMut<'a> {
    /// A matrix whose rows lie one after the other.
    pub fn new(numbers: &'a mut [f32], rows: usize, columns: usize) -> Self {
        assert_eq!(numbers.len(), rows * columns, "a {rows} by {columns} matrix");
        Self { numbers, rows, columns, row_step: columns }
    }

    /// A matrix whose rows begin so far apart; what is between them stays as it is.
    pub fn strided(numbers: &'a mut [f32], rows: usize, columns: usize, row_step: usize) -> Self {
        assert!(row_step >= columns && numbers.len() >= span(rows, columns, row_step), "a {rows} by {columns} matrix");
        Self { numbers, rows, columns, row_step }
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
    // SAFETY: `Matrix` and `MatrixMut` hold rows and columns for the steps given, and the sizes agree.
    unsafe {
        get_gemm_fn()(
            out.rows,
            out.columns,
            left.columns,
            out.numbers.as_mut_ptr(),
            1,
            out.row_step as isize,
            keep != 0.0,
            left.numbers.as_ptr(),
            left.column_step as isize,
            left.row_step as isize,
            right.numbers.as_ptr(),
            right.column_step as isize,
            right.row_step as isize,
            keep,
            scale,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}
