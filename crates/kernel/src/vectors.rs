//! Vectors from slices and back, whole ones and ones that end in the middle.

use pulp::Simd;

/// Runs `pass` compiled for the widest vectors of this processor; for simple loops that the compiler can vectorise itself.
///
/// A pass that is more than one loop needs `#[inline(always)]`: else the compiler may leave it a function of its own, which is
/// compiled for the narrowest vectors.
#[inline(always)]
pub fn vectorised<R>(pass: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(pass)
}

/// Adds numbers to others.
pub fn add(sums: &mut [f32], others: &[f32]) {
    vectorised(|| sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other));
}

/// Loads vectors from `at` on. A partial one may pick up numbers of the next row in its last lanes; they are never stored.
#[inline(always)]
pub(super) fn load<S: Simd, const VECTORS: usize, const PARTIAL: bool>(
    simd: S,
    numbers: &[f32],
    at: usize,
) -> [S::f32s; VECTORS] {
    if PARTIAL {
        return [simd.partial_load_f32s(&numbers[at..]); VECTORS];
    }
    let numbers = &numbers[at..at + VECTORS * S::F32_LANES];
    // SAFETY: the slice just taken holds VECTORS vectors; the load is unaligned.
    std::array::from_fn(|v| unsafe { numbers.as_ptr().cast::<S::f32s>().add(v).read_unaligned() })
}

/// Stores vectors from `at` on. A partial one ends with the slice.
#[inline(always)]
pub(super) fn store<S: Simd, const VECTORS: usize, const PARTIAL: bool>(
    simd: S,
    numbers: &mut [f32],
    at: usize,
    values: &[S::f32s; VECTORS],
) {
    if PARTIAL {
        simd.partial_store_f32s(&mut numbers[at..], values[0]);
        return;
    }
    let numbers = &mut numbers[at..at + VECTORS * S::F32_LANES];
    for (v, value) in values.iter().enumerate() {
        // SAFETY: the slice just taken holds VECTORS vectors; the store is unaligned.
        unsafe { numbers.as_mut_ptr().cast::<S::f32s>().add(v).write_unaligned(*value) };
    }
}
