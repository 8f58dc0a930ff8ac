//! One pass over the residual: what is beyond the threshold goes out as a delta, the rest stays.

use nettorrent_engine::kernel::vectorised;

use super::deltas::{Deltas, is_threshold};

/// How many numbers are compared before deltas are taken out of them: they and the update stay in the nearest cache.
const TILE: usize = 2048;

/// How many comparisons make one word.
const WORD: usize = 64;

/// What a pass over the residual found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// How many elements have a delta.
    pub n_emitted: usize,
    /// How many elements of the residual are infinite or not a number. They have no delta and stay as they are.
    pub n_not_finite: usize,
}

impl Deltas {
    /// Takes one ±τ out of each element of the residual that is beyond it, even if it is beyond a multiple of it: these
    /// deltas replace what was here. `tau` has to be finite and positive.
    pub fn scan(&mut self, residual: &mut [f32], tau: f32) -> Scanned {
        let threshold = Threshold::new(tau);
        self.pass(residual, tau, |_, tile, is_beyond| {
            vectorised(|| {
                tile.iter().zip(is_beyond).for_each(|(x, is_beyond)| *is_beyond = threshold.is_exceeded_by(*x));
            });
        })
    }

    /// Adds the update to the residual first, in the same pass over memory. Both have to be of one length.
    pub fn scan_with(&mut self, residual: &mut [f32], update: &[f32], tau: f32) -> Scanned {
        assert_eq!(residual.len(), update.len(), "an update is as long as its residual");
        let threshold = Threshold::new(tau);
        self.pass(residual, tau, |at, tile, is_beyond| {
            let update = &update[at..];
            vectorised(|| {
                for ((x, update), is_beyond) in tile.iter_mut().zip(update).zip(is_beyond) {
                    *x += update;
                    *is_beyond = threshold.is_exceeded_by(*x);
                }
            });
        })
    }

    /// `compare(at, tile, is_beyond)` says for each number of a tile, which begins at `at`, whether it is beyond τ.
    #[inline(always)]
    fn pass(&mut self, residual: &mut [f32], tau: f32, compare: impl Fn(usize, &mut [f32], &mut [u8])) -> Scanned {
        self.reset(residual.len(), tau);
        let mut n_not_finite = 0;
        let mut is_beyond = [0; TILE];
        for (i, tile) in residual.chunks_mut(TILE).enumerate() {
            compare(TILE * i, tile, &mut is_beyond[..tile.len()]);
            is_beyond[tile.len()..].fill(0);
            n_not_finite += self.take(TILE * i, tile, &is_beyond);
        }
        Scanned { n_emitted: self.marks.len(), n_not_finite }
    }

    /// Takes the deltas out of a tile, and says how many numbers are none.
    fn take(&mut self, at: usize, tile: &mut [f32], is_beyond: &[u8; TILE]) -> usize {
        let mut n_not_finite = 0;
        for (numbers, (i, flags)) in tile.chunks_mut(WORD).zip(is_beyond.as_chunks().0.iter().enumerate()) {
            // Most words are zero; the loop's condition is the only branch.
            let mut word = word_of(flags);
            while word != 0 {
                let j = word.trailing_zeros() as usize;
                word &= word - 1;
                let x = numbers[j];
                if !x.is_finite() {
                    n_not_finite += 1;
                    continue;
                }
                // Signs are as good as random, so nothing branches on them.
                numbers[j] = x - self.tau.copysign(x);
                self.marks.push((((at + WORD * i + j) as u32) << 1) | (!x.to_bits() >> 31));
            }
        }
        n_not_finite
    }
}

/// A threshold to compare numbers with.
#[derive(Clone, Copy)]
struct Threshold(i32);

impl Threshold {
    fn new(tau: f32) -> Self {
        assert!(is_threshold(tau), "a threshold of {tau}");
        Self(tau.to_bits().cast_signed())
    }

    /// 1 if the number is beyond ±τ. Without their sign, the bits of numbers are in the order of the numbers, and what is no
    /// number is above all of them: so this compares integers, and finds what is not finite as well.
    #[inline(always)]
    fn is_exceeded_by(self, x: f32) -> u8 {
        u8::from(x.abs().to_bits().cast_signed() > self.0)
    }
}

/// Bit i is byte i; all bytes are 0 or 1.
#[inline(always)]
fn word_of(flags: &[u8; WORD]) -> u64 {
    let mut word = 0;
    for (i, &flags) in flags.as_chunks().0.iter().enumerate() {
        // The product moves each of eight bytes to its own bit of the highest byte; nothing is carried there.
        let bits = u64::from_le_bytes(flags).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        word |= bits << (8 * i);
    }
    word
}

#[cfg(test)]
mod tests {
    use super::Scanned;
    use crate::sparse::{Deltas, round_tau};
    use nettorrent_engine::rng::Rng;

    /// The rule as it is written in the books, one number at a time.
    fn plainly(residual: &mut [f32], update: &[f32], tau: f32) -> Vec<(usize, f32)> {
        let mut emitted = Vec::new();
        for (i, (residual, update)) in residual.iter_mut().zip(update).enumerate() {
            *residual += update;
            if *residual > tau {
                emitted.push((i, tau));
                *residual -= tau;
            } else if *residual < -tau {
                emitted.push((i, -tau));
                *residual += tau;
            }
        }
        emitted
    }

    fn normal(n: usize, scale: f32, rng: &mut Rng) -> Vec<f32> {
        (0..n).map(|_| scale * rng.normal()).collect()
    }

    fn bits(numbers: &[f32]) -> Vec<u32> {
        numbers.iter().map(|x| x.to_bits()).collect()
    }

    #[test]
    fn every_bit_is_as_by_the_plain_rule() {
        let mut rng = Rng::new(1);
        for n in [0, 1, 2, 63, 64, 65, 127, 2047, 2048, 2049, 5000] {
            for tau in [1e-30, 0.1, 1.0, 3.0, 1e30] {
                let (mut residual, update) = (normal(n, 1.0, &mut rng), normal(n, 1.0, &mut rng));
                let (mut expected, mut apart) = (residual.clone(), residual.clone());
                let emitted = plainly(&mut expected, &update, tau);

                let mut deltas = Deltas::new();
                let scanned = deltas.scan_with(&mut residual, &update, tau);
                assert_eq!(bits(&residual), bits(&expected), "n {n}, tau {tau}");
                assert_eq!(deltas.iter().collect::<Vec<_>>(), emitted);
                assert_eq!(scanned, Scanned { n_emitted: emitted.len(), n_not_finite: 0 });

                apart.iter_mut().zip(&update).for_each(|(residual, update)| *residual += update);
                let fused = deltas.clone();
                assert_eq!(deltas.scan(&mut apart, tau), scanned);
                assert_eq!(bits(&apart), bits(&expected));
                assert_eq!(deltas, fused);
            }
        }
    }

    #[test]
    fn the_threshold_itself_stays() {
        let tau = 0.3_f32;
        let mut residual = [tau, -tau, tau.next_up(), -tau.next_up(), 0.0, -0.0, f32::MIN_POSITIVE / 2.0];
        let mut deltas = Deltas::new();
        deltas.scan(&mut residual, tau);
        assert_eq!(deltas.iter().collect::<Vec<_>>(), [(2, tau), (3, -tau)]);
        assert_eq!(residual[5].to_bits(), (-0.0_f32).to_bits());
    }

    #[test]
    fn what_is_not_finite_is_counted_and_left_alone() {
        let mut residual = vec![0.0; 100];
        (residual[3], residual[70], residual[71], residual[99]) = (f32::NAN, f32::INFINITY, 2.0, f32::NEG_INFINITY);
        let before = bits(&residual);
        let mut deltas = Deltas::new();
        assert_eq!(deltas.scan(&mut residual, 1.0), Scanned { n_emitted: 1, n_not_finite: 3 });
        residual[71] = 2.0;
        assert_eq!(bits(&residual), before);
    }

    #[test]
    fn up_to_twice_the_threshold_every_tau_is_exact() {
        let mut rng = Rng::new(4);
        for _ in 0..100_000 {
            let tau = rng.range(0.5, 2.0);
            let before = tau * rng.range(1.0, 2.0);
            let mut after = [before];
            Deltas::new().scan(&mut after, tau);
            if before > tau {
                assert_eq!(f64::from(after[0]) + f64::from(tau), f64::from(before), "{before} less {tau}");
            }
        }
    }

    #[test]
    fn up_to_4096_times_a_rounded_tau_is_exact() {
        let mut rng = Rng::new(5);
        for _ in 0..100_000 {
            let tau = round_tau(rng.range(0.5, 2.0));
            let before = tau * 4096.0_f32.powf(rng.uniform());
            let mut after = [before];
            let n_emitted = Deltas::new().scan(&mut after, tau).n_emitted;
            let taken = f64::from(tau) * n_emitted as f64;
            assert_eq!(f64::from(after[0]) + taken, f64::from(before), "{before} less {tau}");
        }
    }

    /// Updates of 2^-20 times small integers add up without rounding; then the whole history has to.
    #[test]
    fn what_was_applied_and_what_is_left_is_what_was_put_in() {
        let mut rng = Rng::new(6);
        let n = 3000;
        let (mut residual, mut put_in, mut applied) = (vec![0.0_f32; n], vec![0.0_f64; n], vec![0.0_f64; n]);
        let mut deltas = Deltas::new();
        for batch in 0..200 {
            let update: Vec<f32> = (0..n).map(|_| (rng.below(2001) as f32 - 1000.0) / (1 << 20) as f32).collect();
            put_in.iter_mut().zip(&update).for_each(|(sum, update)| *sum += f64::from(*update));
            // A threshold on the same grid keeps the residual on it.
            deltas.scan_with(&mut residual, &update, (900 + batch) as f32 / (1 << 20) as f32);
            deltas.iter().for_each(|(i, delta)| applied[i] += f64::from(delta));
        }
        for i in 0..n {
            assert_eq!(applied[i] + f64::from(residual[i]), put_in[i]);
        }
    }
}
