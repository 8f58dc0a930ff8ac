//! Seeded randomness: the same seed gives the same numbers, on every machine and in every release.
//!
//! The generator is xoshiro256++ (Blackman and Vigna, 2018). It is written here, not taken from a crate, because checkpoints
//! hold its state and peers must agree on what it yields for years: that promise is ours to keep.

use serde::{Deserialize, Serialize};

/// A small, fast generator whose whole state can be saved and restored.
///
/// ```
/// use nettorrent_engine::rng::Rng;
/// let mut a = Rng::new(7);
/// let mut b = Rng::new(7);
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        Self {
            state: std::array::from_fn(|_| {
                x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
                mix(x)
            }),
        }
    }

    /// A generator for one purpose: streams of one seed with different labels have nothing to do with each other.
    pub fn stream(seed: u64, label: &str, index: u64) -> Self {
        let hash = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        Self::new(mix(seed ^ mix(hash ^ mix(index))))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `0..1`.
    pub fn uniform(&mut self) -> f32 {
        (self.next_u64() >> 40) as f32 * (1.0 / (1 << 24) as f32)
    }

    /// A number in `low..high`.
    pub fn range(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.uniform()
    }

    /// A number from the standard normal distribution.
    pub fn normal(&mut self) -> f32 {
        // Box and Muller; the second of the pair is dropped so that the state is four words and nothing else.
        let radius = (-2.0 * f64::from(1.0 - self.uniform()).ln()).sqrt();
        let angle = std::f64::consts::TAU * f64::from(self.uniform());
        (radius * angle.cos()) as f32
    }

    /// A whole number in `0..bound`, without bias. `bound` must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = bound as u64;
        // Lemire's multiplication: reject the few values that would make some results likelier.
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(bound);
            if wide as u64 >= threshold {
                return (wide >> 64) as usize;
            }
        }
    }

    /// Puts the items in random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Spreads every bit of `x` over the whole word (the finalizer of SplitMix64).
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn streams_of_one_seed_differ() {
        let first = |label, index| Rng::stream(1, label, index).next_u64();
        assert_ne!(first("data", 0), first("data", 1));
        assert_ne!(first("data", 0), first("init", 0));
        assert_eq!(first("data", 3), first("data", 3));
    }

    #[test]
    fn normal_has_the_right_moments() {
        let mut rng = Rng::new(3);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(rng.normal())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }

    #[test]
    fn below_reaches_every_value_evenly() {
        let mut rng = Rng::new(9);
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[rng.below(7)] += 1;
        }
        assert!(counts.iter().all(|&n| (9_500..10_500).contains(&n)), "{counts:?}");
    }

    #[test]
    fn the_stream_is_frozen() {
        // Checkpoints and splits depend on these values: a change here breaks runs that were saved.
        let mut rng = Rng::new(42);
        let drawn: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(drawn, [0xd076_4d4f_4476_689f, 0x519e_4174_576f_3791, 0xfbe0_7cfb_0c24_ed8c]);
    }
}
