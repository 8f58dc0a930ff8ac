//! A hash of many numbers, by which peers find out whether they hold the same.

use nettorrent_engine::rng::mix;

/// How many numbers are hashed side by side: a processor multiplies several at a time.
const N_LANES: usize = 8;
/// An odd number with many ones and zeros, so that a product is different whenever a factor is.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The hash of these numbers, bit by bit: two vectors of which exactly one number is different never have the same, and any two others
/// hardly ever. It is no defence against those who want to deceive.
pub fn fingerprint(values: &[f32]) -> u64 {
    let mut lanes: [u64; N_LANES] = std::array::from_fn(|lane| mix(lane as u64));
    let (groups, rest) = values.as_chunks::<N_LANES>();
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane = step(*lane, *value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = step(*lane, *value);
    }
    lanes.iter().fold(mix(values.len() as u64), |hash, lane| mix(hash ^ lane))
}

/// Different numbers lead from one lane to different ones, and so do different lanes with one number.
fn step(lane: u64, value: f32) -> u64 {
    (lane ^ u64::from(value.to_bits())).wrapping_mul(FACTOR).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::fingerprint;

    #[test]
    fn every_bit_of_every_number_counts() {
        let values: Vec<f32> = (0..37).map(|k| k as f32 * 0.25 - 3.0).collect();
        let mut seen = BTreeSet::from([fingerprint(&values)]);
        for at in 0..values.len() {
            for bit in 0..32 {
                let mut flipped = values.clone();
                flipped[at] = f32::from_bits(flipped[at].to_bits() ^ 1 << bit);
                assert!(seen.insert(fingerprint(&flipped)), "bit {bit} of number {at}");
            }
        }
        assert!(seen.insert(fingerprint(&values[..36])), "the length counts");
        let mut swapped = values.clone();
        swapped.swap(3, 11);
        assert!(seen.insert(fingerprint(&swapped)), "the order counts");
    }
}
