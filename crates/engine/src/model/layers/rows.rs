//! Sums over the rows of a matrix: gradients of biases.

use crate::kernel::{Before, vectorised};

/// `sums (+)= the sum of the rows`.
pub(super) fn add_rows(rows: &[f32], before: Before, sums: &mut [f32]) {
    if before == Before::Lost {
        sums.fill(0.0);
    }
    vectorised(|| {
        for row in rows.chunks_exact(sums.len()) {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum += value;
            }
        }
    });
}
