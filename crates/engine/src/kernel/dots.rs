//! Products of two matrices whose rows both lie along the sum: many dot products at once, without rearranging either.
//!
//! That is what a dense layer computes on the way up, with samples as the rows of one side and outputs as the rows of the
//! other. A general product would first copy the weights into another order, which for a batch of samples costs about as much
//! as the product itself.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::vectors::load;

/// `out[i][j] = bias[j] + the dot product of left's row i and right's row j`; rows are `len` long.
pub fn dot_products(left: &[f32], right: &[f32], len: usize, bias: Option<&[f32]>, out: &mut [f32]) {
    let (n_left, n_right) = (left.len() / len, right.len() / len);
    assert!(left.len() == n_left * len && right.len() == n_right * len, "rows must be whole");
    assert_eq!(out.len(), n_left * n_right);
    assert!(bias.is_none_or(|bias| bias.len() == n_right));
    match bias {
        Some(bias) => out.chunks_exact_mut(n_right).for_each(|row| row.copy_from_slice(bias)),
        None => out.fill(0.0),
    }
    pulp::Arch::new().dispatch(DotProducts { left, right, len, n_right, out });
}

struct DotProducts<'a> {
    left: &'a [f32],
    right: &'a [f32],
    len: usize,
    n_right: usize,
    out: &'a mut [f32],
}

/// Numbers of a row that are gone through at a time, so that a tile's rows on the right stay in the first-level cache.
const BLOCK: usize = 1024;

/// Where a tile begins, and which numbers of the rows it goes through.
#[derive(Clone)]
struct Tile {
    left: usize,
    right: usize,
    numbers: Range<usize>,
}

impl WithSimd for DotProducts<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // 24 sums and what is multiplied fit 32 registers, 8 sums fit 16.
        let (most_left, most_right) = if S::F32_LANES == 8 { (2, 4) } else { (3, 8) };
        let n_left = self.left.len() / self.len;
        for start in (0..self.len).step_by(BLOCK) {
            let numbers = start..self.len.min(start + BLOCK);
            let mut right = 0;
            while right < self.n_right {
                let n = widest(self.n_right - right, most_right);
                let mut left = 0;
                while left < n_left {
                    let m = most_left.min(n_left - left);
                    self.tile_of(simd, m, n, &Tile { left, right, numbers: numbers.clone() });
                    left += m;
                }
                right += n;
            }
        }
    }
}

/// The largest of 8, 4, 2 and 1 that is neither above `n` nor above `most`.
fn widest(n: usize, most: usize) -> usize {
    [8, 4, 2, 1].into_iter().find(|&width| width <= n && width <= most).unwrap_or(1)
}

impl DotProducts<'_> {
    #[inline(always)]
    fn tile_of<S: Simd>(&mut self, simd: S, m: usize, n: usize, at: &Tile) {
        match (m, n) {
            (1, 1) => self.tile::<S, 1, 1>(simd, at),
            (1, 2) => self.tile::<S, 1, 2>(simd, at),
            (1, 4) => self.tile::<S, 1, 4>(simd, at),
            (1, _) => self.tile::<S, 1, 8>(simd, at),
            (2, 1) => self.tile::<S, 2, 1>(simd, at),
            (2, 2) => self.tile::<S, 2, 2>(simd, at),
            (2, 4) => self.tile::<S, 2, 4>(simd, at),
            (2, _) => self.tile::<S, 2, 8>(simd, at),
            (_, 1) => self.tile::<S, 3, 1>(simd, at),
            (_, 2) => self.tile::<S, 3, 2>(simd, at),
            (_, 4) => self.tile::<S, 3, 4>(simd, at),
            (_, _) => self.tile::<S, 3, 8>(simd, at),
        }
    }

    #[inline(always)]
    fn tile<S: Simd, const M: usize, const N: usize>(&mut self, simd: S, at: &Tile) {
        let row =
            |numbers: &'_ [f32], row: usize| -> *const f32 { numbers[row * self.len..][at.numbers.clone()].as_ptr() };
        let left: [*const f32; M] = std::array::from_fn(|i| row(self.left, at.left + i));
        let right: [*const f32; N] = std::array::from_fn(|j| row(self.right, at.right + j));
        let mut sums = [[simd.splat_f32s(0.0); N]; M];
        let n_whole = at.numbers.len() / S::F32_LANES * S::F32_LANES;
        for k in (0..n_whole).step_by(S::F32_LANES) {
            // SAFETY: each pointer begins a slice of `numbers.len()` numbers, and a whole vector from `k` on ends within it.
            let read = |row: *const f32| unsafe { row.add(k).cast::<S::f32s>().read_unaligned() };
            let xs: [S::f32s; M] = std::array::from_fn(|i| read(left[i]));
            for j in 0..N {
                let w = read(right[j]);
                for i in 0..M {
                    sums[i][j] = simd.mul_add_e_f32s(xs[i], w, sums[i][j]);
                }
            }
        }
        let rest = at.numbers.start + n_whole..at.numbers.end;
        for (i, sums) in sums.iter_mut().enumerate() {
            for (j, sum) in sums.iter_mut().enumerate() {
                if !rest.is_empty() {
                    let end = |numbers: &[f32], row: usize| {
                        load::<S, 1, true>(simd, &numbers[row * self.len..][rest.clone()], 0)[0]
                    };
                    let (x, w) = (end(self.left, at.left + i), end(self.right, at.right + j));
                    *sum = simd.mul_add_e_f32s(x, w, *sum);
                }
                self.out[(at.left + i) * self.n_right + at.right + j] += simd.reduce_sum_f32s(*sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::dot_products;
    use crate::rng::Rng;

    #[test]
    fn equals_the_definition() {
        let mut rng = Rng::new(4);
        for (n_left, n_right, len) in [(1, 1, 1), (2, 3, 5), (4, 8, 16), (7, 15, 33), (5, 21, 2100), (3, 10, 1024)] {
            let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.range(-1.0, 1.0)).collect() };
            let (left, right, bias) = (random(n_left * len), random(n_right * len), random(n_right));
            let mut out = vec![f32::NAN; n_left * n_right];
            for bias in [None, Some(bias.as_slice())] {
                dot_products(&left, &right, len, bias, &mut out);
                for (place, found) in out.iter().enumerate() {
                    let (i, j) = (place / n_right, place % n_right);
                    let rows = left[i * len..][..len].iter().zip(&right[j * len..][..len]);
                    let expected = bias.map_or(0.0, |bias| f64::from(bias[j]))
                        + rows.map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>();
                    assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} and not {expected} of {len}");
                }
            }
        }
    }
}
