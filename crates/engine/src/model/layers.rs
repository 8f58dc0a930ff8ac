//! The layers, one a file.

mod activation;
mod batch_norm;
mod conv;
mod dense;
mod depthwise;
mod dropout;
mod embedding;
mod layer_norm;
mod pool;
mod recurrent;
mod window;

pub use activation::{Activation, ActivationKind};
pub use batch_norm::BatchNorm;
pub use conv::Conv;
pub use dense::Dense;
pub use depthwise::Depthwise;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use layer_norm::LayerNorm;
pub use pool::{GlobalPool, Pool, PoolKind};
pub use recurrent::{LastStep, Recurrent};
pub use window::Window;

use crate::kernel::{Before, vectorised};

/// `sums (+)= the sum of the rows`.
fn add_rows(rows: &[f32], before: Before, sums: &mut [f32]) {
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
