//! Bits into bytes and back, a word at a time. The first bit is the lowest of the first byte.

/// How many bits can be written at once, and how many a reader has at hand at least after [`BitReader::refill`].
pub(super) const MOST_BITS: u32 = 56;

/// How many bytes a [`BitWriter`] needs beyond those it fills: it always writes a whole word.
pub(super) const SLACK: usize = 8;

/// Writes into a slice that is [`SLACK`] bytes longer than what will be written.
pub(super) struct BitWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
    /// Bits that are not in whole bytes yet: fewer than 8.
    word: u64,
    n_bits: u32,
}

impl<'a> BitWriter<'a> {
    pub(super) fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0, word: 0, n_bits: 0 }
    }

    /// Writes the lowest `n` bits, at most [`MOST_BITS`]; the others have to be zero.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, n: u32) {
        debug_assert!(n <= MOST_BITS && bits >> n == 0);
        self.word |= bits << self.n_bits;
        self.n_bits += n;
        // The whole word goes out each time and is overwritten from its last begun byte on: no branch to mispredict.
        self.bytes[self.at..self.at + 8].copy_from_slice(&self.word.to_le_bytes());
        self.at += (self.n_bits / 8) as usize;
        self.word >>= self.n_bits & !7;
        self.n_bits %= 8;
    }
}

/// Reads from a slice; behind its end there are zeros, and [`BitReader::n_read`] tells. It is handed over by
/// copy, so that in loops it stays in registers.
#[derive(Clone, Copy)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// The first byte that is not wholly in `word`.
    at: usize,
    /// The next bits, `n_bits` of them; above them there may be more, which will be read again.
    word: u64,
    n_bits: u32,
}

impl<'a> BitReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, word: 0, n_bits: 0 }
    }

    /// The next bits, at least [`MOST_BITS`] of them, the first lowest.
    #[inline(always)]
    pub(super) fn refill(&mut self) -> u64 {
        let word = match self.bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some(&bytes) => u64::from_le_bytes(bytes),
            None => last_word(self.bytes, self.at),
        };
        self.word |= word << self.n_bits;
        self.at += ((63 - self.n_bits) / 8) as usize;
        self.n_bits |= MOST_BITS;
        self.word
    }

    /// Goes on by `n` of the bits at hand, at most [`MOST_BITS`].
    #[inline(always)]
    pub(super) fn skip(&mut self, n: u32) {
        debug_assert!(n <= self.n_bits);
        self.word >>= n;
        self.n_bits -= n;
    }

    /// How many bits were read, with those behind the end.
    pub(super) fn n_read(&self) -> u64 {
        8 * self.at as u64 - u64::from(self.n_bits)
    }
}

/// The bytes that are left, and zeros.
#[cold]
fn last_word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let left = bytes.get(at..).unwrap_or_default();
    word.iter_mut().zip(left).for_each(|(word, byte)| *word = *byte);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::{BitReader, BitWriter, MOST_BITS, SLACK};
    use nettorrent_engine::rng::Rng;

    #[test]
    fn bits_come_back_in_order() {
        let mut rng = Rng::new(5);
        let pieces: Vec<(u64, u32)> = (0..1000)
            .map(|_| {
                let n = rng.below(MOST_BITS as usize + 1) as u32;
                (rng.next_u64() & ((1 << n) - 1), n)
            })
            .collect();
        let n_bits: u64 = pieces.iter().map(|&(_, n)| u64::from(n)).sum();
        let mut bytes = vec![0xff; n_bits.div_ceil(8) as usize + SLACK];
        let mut writer = BitWriter::new(&mut bytes);
        pieces.iter().for_each(|&(bits, n)| writer.put(bits, n));

        bytes.truncate(n_bits.div_ceil(8) as usize);
        let mut reader = BitReader::new(&bytes);
        for &(bits, n) in &pieces {
            assert_eq!(reader.refill() & ((1 << n) - 1), bits);
            reader.skip(n);
        }
        assert_eq!(reader.n_read(), n_bits);
        assert!(n_bits.is_multiple_of(8) || bytes[bytes.len() - 1] >> (n_bits % 8) == 0, "the last bits are zeros");
    }

    #[test]
    fn behind_the_end_there_are_zeros() {
        for bytes in [&[][..], &[0xff], &[0xff; 8], &[0xff; 11]] {
            let mut reader = BitReader::new(bytes);
            let mut n_ones = 0;
            for _ in 0..40 {
                n_ones += (reader.refill() & 0x7f).count_ones();
                reader.skip(7);
            }
            assert_eq!(n_ones as usize, 8 * bytes.len());
            assert_eq!(reader.n_read(), 280);
        }
    }
}
