//! Tiles: a few rows times a few vectors of channels, whose sums stay in registers while everything that goes into them is multiplied.

use pulp::{Simd, WithSimd};

use super::vectors::load;

/// The lanes of the widest vectors there are; slices that hold whole vectors are sized for them.
pub(super) const WIDEST: usize = 16;

/// A computation cut into tiles: some rows times some channels, whose sums stay in registers.
pub(super) trait Tiled {
    /// How often all rows are to be gone through; how many rows there are; how many channels.
    fn extent(&self) -> (usize, usize, usize);

    /// Computes `ROWS` rows from `row` on and `VECTORS` vectors of channels from `channel` on. A `PARTIAL` tile ends with
    /// the channels, in mid-vector.
    fn tile<S: Simd, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(&mut self, simd: S, at: At);
}

/// Where a tile begins.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub pass: usize,
    pub row: usize,
    pub channel: usize,
}

/// Goes through all tiles, the channels outermost so that their part of the filter stays in the cache.
#[inline(always)]
pub(super) fn for_each_tile<S: Simd>(simd: S, kernel: &mut impl Tiled) {
    let n_channels = kernel.extent().2;
    let mut channel = 0;
    while channel < n_channels {
        let left = n_channels - channel;
        if left >= 2 * S::F32_LANES {
            panel::<S, 2, false>(simd, kernel, channel);
            channel += 2 * S::F32_LANES;
        } else if left >= S::F32_LANES {
            panel::<S, 1, false>(simd, kernel, channel);
            channel += S::F32_LANES;
        } else {
            panel::<S, 1, true>(simd, kernel, channel);
            channel += left;
        }
    }
}

/// The panels that packed weights of so many channels are cut into, as [`for_each_tile`] goes through them: the first channel of each, and
/// how many it has room for.
pub(super) fn panels(n_channels: usize) -> impl Iterator<Item = (usize, usize)> {
    struct Lanes;
    impl WithSimd for Lanes {
        type Output = usize;
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }
    let lanes = pulp::Arch::new().dispatch(Lanes);
    let mut next = 0;
    std::iter::from_fn(move || {
        let channel = next;
        let width = if n_channels.saturating_sub(channel) >= 2 * lanes { 2 * lanes } else { lanes };
        next += width;
        (channel < n_channels).then_some((channel, width))
    })
}

/// All tiles of a few channels.
#[inline(always)]
fn panel<S: Simd, const VECTORS: usize, const PARTIAL: bool>(simd: S, kernel: &mut impl Tiled, channel: usize) {
    let (n_passes, n_rows, _) = kernel.extent();
    for pass in 0..n_passes {
        for (row, n_rows) in tiles(n_rows, most_rows::<S>(VECTORS)) {
            let at = At { pass, row, channel };
            /// A tile of so many rows, if registers may hold them: others are not even compiled.
            macro_rules! tile_of {
                ($($rows:literal)*) => {
                    match n_rows {
                        $($rows if const { $rows <= most_rows::<S>(VECTORS) } => kernel.tile::<S, $rows, VECTORS, PARTIAL>(simd, at),)*
                        _ => unreachable!("tiles have at most {} rows", most_rows::<S>(VECTORS)),
                    }
                };
            }
            tile_of!(1 2 3 4 5 6 7 8 9 10 11 12 13);
        }
    }
}

/// The most rows that a tile may have so that all of its sums stay in registers.
///
/// From 14 rows on the compiler no longer unrolls the loop over them, and the sums would live in memory (measured: five
/// times slower); 13 rows of two vectors keep 26 of the 32 registers busy, which is enough.
const fn most_rows<S: Simd>(n_vectors: usize) -> usize {
    match (S::F32_LANES, n_vectors) {
        // 32 registers of 16 lanes, or of 4 (NEON).
        (16 | 4, _) => 13,
        // 16 registers of 8 lanes.
        (8, 1) => 8,
        (8, _) => 6,
        // No vectors at all.
        _ => 4,
    }
}

/// Cuts `n` rows into as few tiles of at most `most` rows as possible, all nearly the same size.
fn tiles(n: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    let n_tiles = n.div_ceil(most);
    (0..n_tiles).map(move |i| (i * n / n_tiles, (i + 1) * n / n_tiles - i * n / n_tiles))
}

/// Adds `depth` products to a tile's sums: of the numbers of its rows, which begin `row_step` apart in `lefts`, and as many rows of
/// weights, `step` apart. Returns the weights behind those.
#[inline(always)]
pub(super) fn add_products<'a, S: Simd, const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(
    simd: S,
    sums: &mut [[S::f32s; VECTORS]; ROWS],
    lefts: &[f32],
    row_step: usize,
    mut weights: &'a [f32],
    step: usize,
    depth: usize,
) -> &'a [f32] {
    assert!(lefts.len() >= (ROWS - 1) * row_step + depth, "the rows must be whole");
    // Every third row has a pointer of its own and the two after it are reached by one and two steps from there: so many pointers
    // fit the integer registers, and no address needs a sum of its own.
    let mut thirds: [*const f32; 5] = std::array::from_fn(|i| lefts.as_ptr().wrapping_add(3 * i * row_step));
    for _ in 0..depth {
        let now = load::<S, VECTORS, PARTIAL>(simd, weights, 0);
        weights = weights.get(step..).unwrap_or_default();
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the row is r < ROWS and the number below `depth`: `lefts` holds them all.
            let left = simd.splat_f32s(unsafe { *thirds[r / 3].wrapping_add(r % 3 * row_step) });
            for (sum, weight) in sums.iter_mut().zip(now) {
                *sum = simd.mul_add_e_f32s(left, weight, *sum);
            }
        }
        thirds = thirds.map(|third| third.wrapping_add(1));
    }
    weights
}
