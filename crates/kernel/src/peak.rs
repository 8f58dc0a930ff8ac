//! What a core can do at most, as the measure for everything else here.

use pulp::{Simd, WithSimd};

/// Sums that are worked on at once: enough that none has to wait for the last.
const SUMS: usize = 12;

/// Multiplies and adds in registers, `n_rounds` times over; returns how many multiplications that were.
pub fn peak_multiplications(n_rounds: usize) -> usize {
    struct Peak(usize);
    impl WithSimd for Peak {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> usize {
            let factor = simd.splat_f32s(std::hint::black_box(0.5));
            let mut sums = [simd.splat_f32s(std::hint::black_box(1.0)); SUMS];
            for _ in 0..self.0 {
                for sum in &mut sums {
                    *sum = simd.mul_add_e_f32s(*sum, factor, factor);
                }
            }
            std::hint::black_box(sums);
            self.0 * SUMS * S::F32_LANES
        }
    }
    pulp::Arch::new().dispatch(Peak(n_rounds))
}
