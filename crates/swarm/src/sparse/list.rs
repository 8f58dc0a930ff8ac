//! Deltas as a plain list, 32 bits each: 31 for the index and the lowest for the sign, 1 for plus.

use nettorrent_engine::kernel::vectorised;

use crate::malformed::Malformed;

pub(super) fn n_bytes(n_deltas: usize) -> usize {
    4 * n_deltas
}

/// Writes into a slice of the right length.
pub(super) fn write(marks: &[u32], body: &mut [u8]) {
    for (bytes, mark) in body.as_chunks_mut().0.iter_mut().zip(marks) {
        *bytes = mark.to_le_bytes();
    }
}

/// Reads this many deltas of a vector of `n_values`.
pub(super) fn read(body: &[u8], n_deltas: usize, n_values: usize, marks: &mut Vec<u32>) -> Result<(), Malformed> {
    if body.len() != n_bytes(n_deltas) {
        return Err(Malformed::new(format!("a list of {n_deltas} deltas in {} bytes", body.len())));
    }
    marks.extend(body.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)));
    // Not `all`: a loop that always goes to the end can be vectorised.
    let ascends = vectorised(|| {
        marks.iter().zip(marks.get(1..).unwrap_or_default()).fold(true, |ascends, (a, b)| ascends & (a >> 1 < b >> 1))
    });
    if !ascends {
        return Err(Malformed::new("deltas out of order"));
    }
    match marks.last() {
        Some(last) if (last >> 1) as usize >= n_values => {
            Err(Malformed::new(format!("a delta for element {} of {n_values}", last >> 1)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::{read, write};

    #[test]
    fn the_sign_is_the_lowest_bit() {
        let marks = [(3 << 1) | 1, 0x0102_0304 << 1];
        let mut body = [0; 8];
        write(&marks, &mut body);
        assert_eq!(body, [7, 0, 0, 0, 0x08, 0x06, 0x04, 0x02]);
        let mut back = Vec::new();
        read(&body, 2, 0x0102_0305, &mut back).unwrap();
        assert_eq!(back, marks);
        assert!(read(&body, 2, 0x0102_0304, &mut Vec::new()).is_err(), "the last index is one too large");
    }

    #[test]
    fn the_same_element_twice_is_refused() {
        let mut body = [0; 8];
        write(&[6, 7], &mut body);
        assert!(read(&body, 2, 100, &mut Vec::new()).is_err());
    }
}
