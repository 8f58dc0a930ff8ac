//! The inner loops that take nearly all of the time, on the widest vectors the processor has.
//!
//! Instructions are chosen at run time (AVX-512, AVX2, NEON, plain), so one binary is fast everywhere. Matrix products
//! and convolutions are made of the same tiles; convolutions are computed in place, without unfolding the image into a matrix first.

mod allocator;
mod columns;
mod convolution;
mod finite;
mod functions;
mod kept_blocks;
mod peak;
mod product;
#[cfg(test)]
mod random;
mod sums;
mod tiles;
mod transposition;
mod vectors;

pub use allocator::{LineAligned, keep_memory};
pub use columns::{affine_columns, column_sums};
pub use convolution::{Before, ConvShape, correlate, correlate_transposed, pack, packed_len};
pub use finite::is_finite;
pub use functions::{exp, normal, sigmoid, tanh};
pub use peak::peak_multiplications;
pub use product::{Matrix, MatrixMut, multiply, multiply_scaled};
pub use sums::squared_norm;
pub use sums::{largest, sum};
pub use vectors::add;
pub use vectors::vectorised;
