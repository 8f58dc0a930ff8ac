//! Sketches: a few numbers from which can be told how far long vectors are apart.
//!
//! Every number of the vector is added, with a random sign, to one of a few sums (a count sketch; Charikar, Chen and Farach-Colton
//! 2002). Numbers are taken a block at a time: one of four rows of sums is drawn for the block, and a number's place in the block is its
//! place in the row. Sketches with the same seed can be subtracted and averaged like the vectors themselves, and a sketch is about as
//! long as its vector: with 256 sums, to 4 %.

use nettorrent_engine::kernel::vectorised;
use nettorrent_engine::rng::mix;

/// How many sums a sketch has.
pub const N_SUMS: usize = 256;
/// How many numbers one draw serves: a bit for each one's sign.
const BLOCK: usize = u64::BITS as usize;

/// The sketch of a vector.
pub fn sketch(values: &[f32], seed: u64) -> Vec<f32> {
    let mut sums = vec![0.0; N_SUMS];
    let (rows, _) = sums.as_chunks_mut::<BLOCK>();
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    let mut last = [0.0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    vectorised(
        #[inline(always)]
        || {
            for (number, block) in blocks.iter().chain([&last]).enumerate() {
                let signs = mix(seed ^ mix(number as u64));
                let row = mix(signs) as usize % rows.len();
                for (place, (sum, value)) in rows[row].iter_mut().zip(block).enumerate() {
                    let sign = (signs >> place) as u32 & 1;
                    *sum += f32::from_bits(value.to_bits() ^ sign << 31);
                }
            }
        },
    );
    sums
}

/// How far vectors are apart, by their sketches: the root of their mean square distance from their mean, as a share of that
/// mean's length.
pub fn spread(sketches: &[Vec<f32>]) -> f64 {
    let n = sketches.len().max(1) as f64;
    let mean: Vec<f64> =
        (0..N_SUMS).map(|k| sketches.iter().map(|sketch| f64::from(sketch[k])).sum::<f64>() / n).collect();
    let length = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|number| number * number).sum::<f64>();
    let apart = |sketch: &Vec<f32>| length(&mut sketch.iter().zip(&mean).map(|(&own, mean)| f64::from(own) - mean));
    let square = sketches.iter().map(apart).sum::<f64>() / n;
    (square / length(&mut mean.iter().copied()).max(f64::MIN_POSITIVE)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::{sketch, spread};
    use nettorrent_engine::rng::Rng;

    #[test]
    fn it_tells_how_far_vectors_are_apart() {
        let mut rng = Rng::new(3);
        let base: Vec<f32> = (0..20_000).map(|_| rng.range(-1.0, 1.0)).collect();
        let mut moved = |by: f32| -> Vec<f32> { base.iter().map(|value| value + by * rng.range(-1.0, 1.0)).collect() };
        // Noise a tenth as long as the vector: each is that far from the others' mean.
        let near: Vec<Vec<f32>> = (0..4).map(|_| sketch(&moved(0.1), 7)).collect();
        let expected = 0.1 * (3.0_f64 / 4.0).sqrt();
        assert!((spread(&near) / expected - 1.0).abs() < 0.15, "{}", spread(&near));
        let same = vec![sketch(&base, 7); 3];
        assert!(spread(&same) < 1e-6);
    }
}
