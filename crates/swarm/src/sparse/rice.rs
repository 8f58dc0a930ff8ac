//! Golomb–Rice codes: each delta as the gap to the one before, in as many bits as gaps of a random set need, within 4 %.
//!
//! A gap d = index − previous index − 1 is written as ⌊d/2^k⌋ ones, a zero, the lowest k bits of d, and the sign, 1 for
//! plus. With one element in a thousand, k is 9 and a delta takes 12.6 bits, where no code can do with less than 12.4.

use std::f64::consts::{LN_2, SQRT_2};

use nettorrent_engine::kernel::vectorised;

use super::bits::{BitReader, BitWriter, MOST_BITS};
use crate::malformed::Malformed;

/// The largest k.
pub(super) const MOST_K: u32 = 31;

/// How many ones of a long run are written at once; together with a rest of 33 bits they fit one word.
const RUN: u32 = 20;

/// k = round(log2(ln 2/density)): the best one for gaps of a random set. Only products and comparisons, so that every machine
/// comes to the same.
pub(super) fn best_k(n_deltas: usize, n_values: usize) -> u32 {
    let scaled = LN_2 * n_values as f64 / n_deltas as f64;
    let mut bound = SQRT_2;
    let mut k = 0;
    while scaled >= bound && k < MOST_K {
        bound *= 2.0;
        k += 1;
    }
    k
}

/// How many bits the deltas take, exactly.
pub(super) fn n_bits(marks: &[u32], k: u32) -> u64 {
    let first = marks.first().map_or(0, |mark| u64::from(mark >> 1 >> k));
    let n_ones: u64 = vectorised(|| {
        marks
            .iter()
            .zip(marks.get(1..).unwrap_or_default())
            .map(|(a, b)| u64::from(((b >> 1) - (a >> 1) - 1) >> k))
            .sum()
    });
    first + n_ones + marks.len() as u64 * u64::from(k + 2)
}

/// Writes into a slice with the writer's slack.
pub(super) fn write(marks: &[u32], k: u32, body: &mut [u8]) {
    vectorised(
        #[inline(always)]
        || write_all(marks, k, BitWriter::new(body)),
    );
}

#[inline(always)]
fn write_all(marks: &[u32], k: u32, mut writer: BitWriter<'_>) {
    let mut next = 0;
    for &mark in marks {
        let gap = (mark >> 1) - next;
        next = (mark >> 1) + 1;
        let mut n_ones = gap >> k;
        while n_ones > RUN {
            writer.put((1 << RUN) - 1, RUN);
            n_ones -= RUN;
        }
        let rest = u64::from(gap & ((1 << k) - 1)) | (u64::from(mark & 1) << k);
        writer.put(((1 << n_ones) - 1) | (rest << (n_ones + 1)), n_ones + k + 2);
    }
}

/// Reads this many deltas of a vector of `n_values`.
pub(super) fn read(
    body: &[u8],
    k: u32,
    n_deltas: usize,
    n_values: usize,
    marks: &mut Vec<u32>,
) -> Result<(), Malformed> {
    // No delta is shorter than this; so the count cannot make us allocate more than the bytes are worth.
    let n_bits = 8 * body.len() as u64;
    if k > MOST_K || n_deltas as u64 * u64::from(k + 2) > n_bits {
        return Err(Malformed::new(format!("{n_deltas} deltas with k = {k} in {} bytes", body.len())));
    }
    marks.resize(n_deltas, 0);
    // Compiled for this processor: newer ones have better shifts.
    let n_read = vectorised(
        #[inline(always)]
        || read_all(body, k, n_values as u64, marks),
    );
    let Some(n_read) = n_read else {
        return Err(Malformed::new(format!("a delta behind the last of {n_values} elements")));
    };
    if n_read > n_bits || n_read.div_ceil(8) != body.len() as u64 {
        return Err(Malformed::new(format!("{n_deltas} deltas take {n_read} bits, and {n_bits} came")));
    }
    if !n_read.is_multiple_of(8) && body[body.len() - 1] >> (n_read % 8) != 0 {
        return Err(Malformed::new("bits behind the last delta"));
    }
    Ok(())
}

/// Fills the marks and tells how many bits were read; nothing if an index is too large.
#[inline(always)]
fn read_all(body: &[u8], k: u32, n_values: u64, marks: &mut [u32]) -> Option<u64> {
    let mut reader = BitReader::new(body);
    let mut next = 0;
    // Two at a time, because a word nearly always holds two codes: where they end is what all else waits for.
    let (pairs, last) = marks.as_chunks_mut();
    for [first, second] in pairs {
        let word = reader.refill();
        let a = Code::read(word, k);
        let b = Code::read(word >> (a.n_bits % 64), k);
        if a.n_bits + b.n_bits <= MOST_BITS {
            reader.skip(a.n_bits + b.n_bits);
            *first = a.mark(&mut next);
            *second = b.mark(&mut next);
        } else {
            for mark in [first, second] {
                let (after, code) = read_long(reader, k, n_values)?;
                *mark = code.mark(&mut next);
                reader = after;
            }
        }
        if next > n_values {
            return None;
        }
    }
    for mark in last {
        let (after, code) = read_long(reader, k, n_values)?;
        *mark = code.mark(&mut next);
        reader = after;
    }
    (next <= n_values).then(|| reader.n_read())
}

/// One delta.
#[derive(Clone, Copy)]
struct Code {
    /// How many bits it takes. If that is more than the word had, all is void.
    n_bits: u32,
    gap: u64,
    sign: u32,
}

impl Code {
    #[inline(always)]
    fn read(word: u64, k: u32) -> Self {
        let n_ones = word.trailing_ones();
        let rest = word >> 1 >> (n_ones % 64);
        let gap = (u64::from(n_ones) << k) + (rest & ((1 << k) - 1));
        Self { n_bits: n_ones + k + 2, gap, sign: (rest >> k) as u32 & 1 }
    }

    /// The mark, `next` being the first index that it may have; then it is the one after. An index beyond 31 bits makes no
    /// sense as mark, but never overflows `next`.
    #[inline(always)]
    fn mark(self, next: &mut u64) -> u32 {
        let index = *next + self.gap;
        *next = index + 1;
        ((index as u32) << 1) | self.sign
    }
}

/// A delta whose run of ones may be longer than a word; nothing if it is longer than any honest one.
#[cold]
fn read_long(mut reader: BitReader<'_>, k: u32, n_values: u64) -> Option<(BitReader<'_>, Code)> {
    let mut gap = 0;
    while reader.refill().trailing_ones() > RUN {
        reader.skip(RUN);
        gap += u64::from(RUN) << k;
        if gap > n_values {
            return None;
        }
    }
    // What is left is at most 20 ones and 33 other bits.
    let code = Code::read(reader.refill(), k);
    reader.skip(code.n_bits);
    Some((reader, Code { gap: gap + code.gap, ..code }))
}

#[cfg(test)]
mod tests {
    use super::{MOST_K, best_k, n_bits, read, write};
    use crate::sparse::bits::SLACK;
    use nettorrent_engine::rng::Rng;

    fn encoded(marks: &[u32], k: u32) -> Vec<u8> {
        let n_bytes = n_bits(marks, k).div_ceil(8) as usize;
        let mut body = vec![0; n_bytes + SLACK];
        write(marks, k, &mut body);
        body.truncate(n_bytes);
        body
    }

    #[test]
    fn k_is_the_rounded_logarithm() {
        for (n_deltas, n_values) in [(1, 1), (1, 2), (3, 10), (1, 100), (1, 1000), (777, 1_234_567), (1, 1 << 31)] {
            let exact = (std::f64::consts::LN_2 * n_values as f64 / n_deltas as f64).log2().round();
            assert_eq!(f64::from(best_k(n_deltas, n_values)), exact.clamp(0.0, 31.0), "{n_deltas} of {n_values}");
        }
        assert_eq!(best_k(0, 1000), MOST_K);
        assert_eq!(best_k(0, 0), 0);
    }

    #[test]
    fn codes_are_as_written_down() {
        // With k = 2: a gap of 5 and plus is a one, a zero, 1 as two bits, a one; a gap of 0 and minus is four zeros.
        let marks = [(5 << 1) | 1, 6 << 1];
        assert_eq!(encoded(&marks, 2), [0b0001_0101, 0]);
    }

    #[test]
    fn every_k_brings_all_back() {
        let mut rng = Rng::new(11);
        let n_values = 5000;
        for k in 0..=MOST_K {
            for every in [1, 3, 50, 4000] {
                let draw = |i: u32| (rng.below(every) == 0).then(|| (i << 1) | rng.below(2) as u32);
                let marks: Vec<u32> = (0..n_values).filter_map(draw).collect();
                let body = encoded(&marks, k);
                let mut back = Vec::new();
                read(&body, k, marks.len(), n_values as usize, &mut back).unwrap();
                assert_eq!(back, marks, "k {k}, every {every}");
            }
        }
    }

    #[test]
    fn a_random_set_takes_little_more_than_its_entropy() {
        let mut rng = Rng::new(12);
        for (every, most) in [(1000, 12.8), (100, 9.3)] {
            let marks: Vec<u32> = (0..1_000_000).filter(|_| rng.below(every) == 0).map(|i| i << 1).collect();
            let k = best_k(marks.len(), 1_000_000);
            let bits_each = n_bits(&marks, k) as f64 / marks.len() as f64;
            assert!(bits_each < most, "one in {every}: {bits_each}");
        }
    }

    #[test]
    fn runs_without_end_are_refused() {
        for k in [0, 5, MOST_K] {
            for n_bytes in [1, 7, 8, 9, 64, 1000] {
                for n_deltas in [1, 2, 3] {
                    let body = vec![0xff; n_bytes];
                    assert!(read(&body, k, n_deltas, 100, &mut Vec::new()).is_err(), "k {k}, {n_bytes} bytes");
                }
            }
        }
    }
}
