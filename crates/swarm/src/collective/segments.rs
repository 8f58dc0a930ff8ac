//! How vectors are cut: buckets into chunks, chunks into segments; and the numbers that name them on the wire.

use std::ops::Range;

/// Chunk `k` of `n` equal parts of a vector.
pub(crate) use nettorrent_engine::partition::even as chunk;

use crate::codec::Codec;
use crate::malformed::Malformed;

/// The most numbers in one message. Shorter segments overlap better, longer ones cost fewer messages.
pub const SEGMENT_LEN: usize = 1 << 16;

/// How many segments a chunk has.
pub(crate) fn n_segments(chunk: &Range<usize>) -> usize {
    chunk.len().div_ceil(SEGMENT_LEN)
}

/// A segment of a chunk; `None` if there is no such.
pub(crate) fn segment(chunk: &Range<usize>, k: usize) -> Option<Range<usize>> {
    (k < n_segments(chunk)).then(|| {
        let start = chunk.start + k * SEGMENT_LEN;
        start..chunk.end.min(start + SEGMENT_LEN)
    })
}

/// The segments of a chunk.
pub(crate) fn segments(chunk: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    (0..n_segments(&chunk)).filter_map(move |k| segment(&chunk, k))
}

/// How many bytes a chunk's messages have.
pub(crate) fn encoded_len(codec: Codec, chunk: Range<usize>) -> u64 {
    segments(chunk).map(|segment| codec.encoded_len(segment.len()) as u64).sum()
}

/// What a message is: which bucket, which step of the exchange, which segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    pub bucket: usize,
    pub step: usize,
    pub segment: usize,
}

const BUCKET_BITS: u32 = 16;
const STEP_BITS: u32 = 24;
const SEGMENT_BITS: u32 = 24;

impl Label {
    pub(crate) fn to_part(self) -> u64 {
        let Self { bucket, step, segment } = self;
        debug_assert!(bucket < 1 << BUCKET_BITS && step < 1 << STEP_BITS && segment < 1 << SEGMENT_BITS);
        (bucket as u64) << (STEP_BITS + SEGMENT_BITS) | (step as u64) << SEGMENT_BITS | segment as u64
    }

    pub(crate) fn from_part(part: u64) -> Self {
        let bits = |part: u64, n: u32| (part & ((1 << n) - 1)) as usize;
        Self {
            bucket: bits(part >> (STEP_BITS + SEGMENT_BITS), BUCKET_BITS),
            step: bits(part >> SEGMENT_BITS, STEP_BITS),
            segment: bits(part, SEGMENT_BITS),
        }
    }
}

/// Marks what has come, so that nothing is added twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    marks: Vec<u64>,
    n_missing: usize,
}

impl Seen {
    /// Nothing of `n` things has come, and `n_expected` of them will.
    pub(crate) fn new(n: usize, n_expected: usize) -> Self {
        Self { marks: vec![0; n.div_ceil(64)], n_missing: n_expected }
    }

    pub(crate) fn mark(&mut self, k: usize) -> Result<(), Malformed> {
        if self.contains(k) {
            return Err(Malformed::new("the same part of an exchange came twice"));
        }
        self.marks[k / 64] |= 1 << (k % 64);
        self.n_missing -= 1;
        Ok(())
    }

    pub(crate) fn contains(&self, k: usize) -> bool {
        self.marks[k / 64] & 1 << (k % 64) != 0
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.n_missing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{Label, SEGMENT_LEN, chunk, segments};

    #[test]
    fn chunks_and_segments_cover_everything_once() {
        for len in [0, 1, 5, 1000, SEGMENT_LEN, 3 * SEGMENT_LEN + 1] {
            for n in [1, 2, 3, 7, 1000] {
                let all: Vec<usize> = (0..n).flat_map(|k| segments(chunk(k, n, len))).flatten().collect();
                assert!(all.iter().copied().eq(0..len), "{len} numbers, {n} chunks");
            }
        }
    }

    #[test]
    fn labels_come_back() {
        let label = Label { bucket: 65_535, step: 70_000, segment: (1 << 24) - 1 };
        assert_eq!(Label::from_part(label.to_part()), label);
    }
}
