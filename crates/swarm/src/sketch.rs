//! Sketches: a few numbers from which can be told how far long vectors are apart.
//!
//! Every number of the vector is added, with a random sign, to one of a few sums chosen at random (a count sketch; Charikar,
//! Chen and Farach-Colton 2002). Sketches with the same seed can be subtracted and averaged like the vectors themselves, and
//! a sketch is about as long as its vector: with 256 sums, to 4 %.

use nettorrent_engine::rng::mix;

/// How many sums a sketch has.
pub const N_SUMS: usize = 256;

/// The sketch of a vector.
pub fn sketch(values: &[f32], seed: u64) -> Vec<f32> {
    let mut sums = vec![0.0; N_SUMS];
    for (i, value) in values.iter().enumerate() {
        let dice = mix(seed ^ mix(i as u64));
        let sum = &mut sums[dice as usize % N_SUMS];
        *sum += if dice >> 63 == 0 { *value } else { -*value };
    }
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
