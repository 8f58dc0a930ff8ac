//! Rows and columns exchanged.

/// So many numbers are exchanged at a time: a vector of every processor.
const QUAD: usize = 4;
/// So many numbers of a row are written one after the other: a cache line.
const LINE: usize = 16;

/// Writes rows that begin `row_step` apart with rows and columns exchanged, so that what was a column begins every `step` numbers.
///
/// # Panics
/// If the rows or the columns do not fit their places.
pub(super) fn transpose(
    numbers: &[f32],
    (rows, columns, row_step): (usize, usize, usize),
    out: &mut [f32],
    step: usize,
) {
    if rows == 0 || columns == 0 {
        return;
    }
    assert!(numbers.len() >= (rows - 1) * row_step + columns, "{rows} rows of {columns} numbers, {row_step} apart");
    assert!(out.len() >= (columns - 1) * step + rows, "{columns} columns of {rows} numbers, {step} apart");
    let (whole_rows, whole_columns) = (rows / QUAD * QUAD, columns / QUAD * QUAD);
    for first in (0..whole_rows).step_by(LINE) {
        for column in (0..whole_columns).step_by(QUAD) {
            for row in (first..whole_rows.min(first + LINE)).step_by(QUAD) {
                let (from, to) = (numbers[row * row_step + column..].as_ptr(), out[column * step + row..].as_mut_ptr());
                // SAFETY: the rows from this one to three below, and the columns up to three further, are whole, and both slices hold
                // all rows and columns.
                unsafe { exchange(from, row_step, to, step) };
            }
        }
    }
    // What is left at the edges.
    for row in 0..rows {
        let first = if row < whole_rows { whole_columns } else { 0 };
        for column in first..columns {
            out[column * step + row] = numbers[row * row_step + column];
        }
    }
}

/// Exchanges rows and columns of four by four numbers. As loops these take the compiler four times as long, also on wide vectors.
///
/// # Safety
/// Four numbers can be read from each of the places that are so far apart, and written to each of the others.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn exchange(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
    use std::arch::x86_64::{_MM_TRANSPOSE4_PS, _mm_loadu_ps, _mm_storeu_ps};
    // SAFETY: as the caller says; every such processor has these instructions.
    unsafe {
        let [mut a, mut b, mut c, mut d] = [0, 1, 2, 3].map(|row| _mm_loadu_ps(from.add(row * from_step)));
        _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
        [a, b, c, d].into_iter().enumerate().for_each(|(row, numbers)| _mm_storeu_ps(to.add(row * to_step), numbers));
    }
}

/// The same for other processors.
///
/// # Safety
/// Four numbers can be read from each of the places that are so far apart, and written to each of the others.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn exchange(from: *const f32, from_step: usize, to: *mut f32, to_step: usize) {
    // SAFETY: as the caller says.
    let rows: [[f32; QUAD]; QUAD] =
        std::array::from_fn(|row| unsafe { from.add(row * from_step).cast::<[f32; QUAD]>().read_unaligned() });
    for column in 0..QUAD {
        // SAFETY: as the caller says.
        unsafe { to.add(column * to_step).cast::<[f32; QUAD]>().write_unaligned(rows.map(|row| row[column])) };
    }
}

#[cfg(test)]
mod tests {
    use super::transpose;

    #[test]
    fn each_number_is_where_its_row_and_column_meet() {
        for (rows, columns, row_step, step) in
            [(0, 3, 3, 1), (3, 0, 1, 3), (1, 1, 1, 1), (4, 4, 4, 4), (5, 7, 9, 6), (32, 784, 784, 32), (35, 18, 20, 40)]
        {
            let numbers: Vec<f32> = (0..rows * row_step).map(|i| i as f32).collect();
            let mut out = vec![-1.0; columns * step];
            transpose(&numbers, (rows, columns, row_step), &mut out, step);
            for (at, &found) in out.iter().enumerate() {
                let (column, row) = (at / step, at % step);
                let expected = if row < rows { numbers[row * row_step + column] } else { -1.0 };
                assert_eq!(found, expected, "{rows} by {columns}, row {row}, column {column}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "40 apart")]
    fn what_has_no_room_is_refused() {
        transpose(&[0.0; 72], (9, 8, 8), &mut [0.0; 7 * 40], 40);
    }
}
