//! Deltas as two bits for every element: 1 for plus, 2 for minus, 0 for none. The first element has the lowest bits.

use crate::malformed::Malformed;

/// The lower bit of each pair.
const LOWER: u64 = 0x5555_5555_5555_5555;

pub(super) fn n_bytes(n_values: usize) -> usize {
    n_values.div_ceil(4)
}

/// Writes into a slice of zeros of the right length.
pub(super) fn write(marks: &[u32], body: &mut [u8]) {
    for mark in marks {
        let index = mark >> 1;
        let pair = 2 - (mark & 1) as u8;
        body[(index / 4) as usize] |= pair << (2 * (index % 4));
    }
}

/// Reads this many deltas of a vector of `n_values`.
pub(super) fn read(body: &[u8], n_deltas: usize, n_values: usize, marks: &mut Vec<u32>) -> Result<(), Malformed> {
    if body.len() != n_bytes(n_values) {
        return Err(Malformed::new(format!("a bitmap of {n_values} elements in {} bytes", body.len())));
    }
    // The count has to be right before anything is allocated for it.
    let (mut n_set, mut has_both) = (0, false);
    for (_, word) in words(body) {
        n_set += word.count_ones() as usize;
        has_both |= word & (word >> 1) & LOWER != 0;
    }
    if has_both || n_set != n_deltas {
        return Err(Malformed::new(format!("a bitmap of {n_set} deltas for {n_deltas}")));
    }
    marks.reserve(n_deltas);
    for (at, mut word) in words(body) {
        while word != 0 {
            let bit = word.trailing_zeros();
            word &= word - 1;
            // Pairs are two bits, and marks count by two: the place of a pair is its mark without the sign.
            marks.push(at + (bit ^ 1));
        }
    }
    match marks.last() {
        Some(last) if (last >> 1) as usize >= n_values => Err(Malformed::new("a delta behind the last element")),
        _ => Ok(()),
    }
}

/// The pairs as words, each with the mark of its first element; zeros fill the last one up.
fn words(body: &[u8]) -> impl Iterator<Item = (u32, u64)> {
    body.chunks(8).enumerate().map(|(i, chunk)| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (64 * i as u32, u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::{n_bytes, read, write};

    #[test]
    fn pairs_are_as_written_down() {
        let marks = [1, 2 << 1, (5 << 1) | 1];
        let mut body = vec![0; n_bytes(6)];
        write(&marks, &mut body);
        assert_eq!(body, [0b0010_0001, 0b0000_0100]);
        let mut back = Vec::new();
        read(&body, 3, 6, &mut back).unwrap();
        assert_eq!(back, marks);
    }

    #[test]
    fn bitmaps_that_contradict_themselves_are_refused() {
        for (body, n_deltas, n_values, why) in [
            (&[0b0000_0011][..], 2, 4, "both signs"),
            (&[0b0000_0001], 2, 4, "fewer than announced"),
            (&[0b0000_0101], 1, 4, "more than announced"),
            (&[0b0100_0000], 1, 3, "behind the end"),
            (&[0b0000_0001, 0], 1, 4, "too long"),
            (&[0b0000_0001], 1, 5, "too short"),
        ] {
            assert!(read(body, n_deltas, n_values, &mut Vec::new()).is_err(), "{why}");
        }
    }
}
