//! Deltas as bytes and back: one of three encodings behind a header, the shortest unless another is asked for.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | the encoding: 0 list, 1 Rice, 2 bitmap |
//! | 4 | τ |
//! | 4 | how many deltas |
//! | 1 | Rice only: k |
//! | rest | the deltas |
//!
//! Numbers are little-endian. Rice codes are the shortest nearly always: n elements take n + count bits at most, where k is 0.
//! The list is for no delta at all or for one in a huge vector; the bitmap, two bits for each of the n, is for when nearly all
//! have one.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::bits::SLACK;
use super::deltas::{Deltas, is_threshold};
use super::{bitmap, list, rice};
use crate::malformed::Malformed;

/// How many bytes come before the deltas; one more for Rice codes.
pub(crate) const HEADER_LEN: usize = 9;

/// The longest message that is ever written for a vector of this length.
pub(crate) fn longest_message(coding: Coding, n_values: usize) -> usize {
    let deltas = match coding {
        Coding::Auto | Coding::Bitmap => bitmap::n_bytes(n_values),
        Coding::List => list::n_bytes(n_values),
        // With k for as many deltas as there are, two bits for every element are enough; and k takes a byte.
        Coding::Rice => 1 + bitmap::n_bytes(n_values),
    };
    HEADER_LEN + deltas
}

/// How deltas are to be written. Who reads them takes any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coding {
    /// The shortest of the others, for each message.
    #[default]
    Auto,
    /// Two bits for every element of the vector.
    Bitmap,
    /// 32 bits for each delta.
    List,
    /// Golomb–Rice codes of the gaps between deltas.
    Rice,
}

/// How deltas are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    List,
    Rice { k: u32 },
    Bitmap,
}

impl Deltas {
    /// How many bytes the message has.
    pub(crate) fn encoded_len(&self, coding: Coding) -> usize {
        self.encoding(coding).1
    }

    /// The message: the shortest encoding of these deltas.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        self.encode_into(Coding::Auto, &mut bytes);
        bytes.freeze()
    }

    /// Writes the message behind what is there already.
    pub fn encode_into(&self, coding: Coding, bytes: &mut BytesMut) {
        let (encoding, len) = self.encoding(coding);
        self.write(encoding, len, bytes);
    }

    /// Reads a message for a vector of this length in place of what was here. One that is malformed leaves no deltas, so
    /// that nothing of it can be applied. Allocates at most 16 times the length of the message.
    pub fn decode(&mut self, message: &[u8], n_values: usize) -> Result<(), Malformed> {
        self.reset(n_values, 1.0);
        let read = self.read(message);
        if read.is_err() {
            self.marks.clear();
        }
        read
    }

    fn read(&mut self, message: &[u8]) -> Result<(), Malformed> {
        let Some((&[encoding, t0, t1, t2, t3, n0, n1, n2, n3], body)) = message.split_first_chunk() else {
            return Err(Malformed::new(format!("{} bytes are no deltas", message.len())));
        };
        let tau = f32::from_le_bytes([t0, t1, t2, t3]);
        if !is_threshold(tau) {
            return Err(Malformed::new(format!("deltas of {tau}")));
        }
        let n_deltas = u32::from_le_bytes([n0, n1, n2, n3]) as usize;
        if n_deltas > self.n_values {
            return Err(Malformed::new(format!("{n_deltas} deltas for {} elements", self.n_values)));
        }
        self.tau = tau;
        match (encoding, body) {
            (0, _) => list::read(body, n_deltas, self.n_values, &mut self.marks),
            (1, [k, body @ ..]) => rice::read(body, u32::from(*k), n_deltas, self.n_values, &mut self.marks),
            (1, []) => Err(Malformed::new("Rice codes without k")),
            (2, _) => bitmap::read(body, n_deltas, self.n_values, &mut self.marks),
            _ => Err(Malformed::new(format!("an encoding {encoding} of deltas"))),
        }
    }

    /// The encoding that is asked for, and the length of its message; of several the shortest, and the simplest of equals.
    fn encoding(&self, coding: Coding) -> (Encoding, usize) {
        let rice = Encoding::Rice { k: rice::best_k(self.len(), self.n_values) };
        let choice: &[Encoding] = match coding {
            Coding::Auto => &[Encoding::List, Encoding::Bitmap, rice],
            Coding::Bitmap => &[Encoding::Bitmap],
            Coding::List => &[Encoding::List],
            Coding::Rice => &[rice],
        };
        let lengths = choice.iter().map(|&encoding| (encoding, self.len_as(encoding)));
        lengths.min_by_key(|&(_, len)| len).expect("there is at least one")
    }

    fn len_as(&self, encoding: Encoding) -> usize {
        HEADER_LEN
            + match encoding {
                Encoding::List => list::n_bytes(self.len()),
                Encoding::Rice { k } => 1 + rice::n_bits(&self.marks, k).div_ceil(8) as usize,
                Encoding::Bitmap => bitmap::n_bytes(self.n_values),
            }
    }

    fn write(&self, encoding: Encoding, len: usize, bytes: &mut BytesMut) {
        let (number, k) = match encoding {
            Encoding::List => (0, None),
            Encoding::Rice { k } => (1, Some(k as u8)),
            Encoding::Bitmap => (2, None),
        };
        let end = bytes.len() + len;
        bytes.reserve(len + SLACK);
        bytes.extend_from_slice(&[number]);
        bytes.extend_from_slice(&self.tau.to_le_bytes());
        bytes.extend_from_slice(&(self.len() as u32).to_le_bytes());
        bytes.extend(k);
        let begin = bytes.len();
        bytes.resize(end + SLACK, 0);
        match encoding {
            Encoding::List => list::write(&self.marks, &mut bytes[begin..end]),
            Encoding::Rice { k } => rice::write(&self.marks, k, &mut bytes[begin..]),
            Encoding::Bitmap => bitmap::write(&self.marks, &mut bytes[begin..end]),
        }
        bytes.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{Coding, Encoding, HEADER_LEN, longest_message};
    use crate::sparse::deltas::{Deltas, MOST_VALUES, index};
    use bytes::BytesMut;
    use nettorrent_engine::rng::Rng;

    /// Random deltas in about this share of the elements.
    fn deltas(n_values: usize, density: f32, rng: &mut Rng) -> Deltas {
        let mut residual: Vec<f32> =
            (0..n_values).map(|_| if rng.uniform() < density { [2.0, -2.0][rng.below(2)] } else { 0.5 }).collect();
        let mut deltas = Deltas::new();
        deltas.scan(&mut residual, 1.25);
        deltas
    }

    fn encoded_as(deltas: &Deltas, encoding: Encoding) -> BytesMut {
        let mut bytes = BytesMut::new();
        deltas.write(encoding, deltas.len_as(encoding), &mut bytes);
        bytes
    }

    fn encodings() -> [Encoding; 6] {
        let [a, b, c, d] = [0, 3, 9, 31].map(|k| Encoding::Rice { k });
        [Encoding::List, Encoding::Bitmap, a, b, c, d]
    }

    #[test]
    fn every_encoding_brings_all_back() {
        let mut rng = Rng::new(1);
        for n in [0, 1, 2, 3, 4, 5, 31, 32, 33, 1000, 10_001] {
            for density in [0.0, 0.001, 0.01, 0.1, 0.5, 1.0] {
                let deltas = deltas(n, density, &mut rng);
                for encoding in encodings() {
                    let bytes = encoded_as(&deltas, encoding);
                    assert_eq!(bytes.len(), deltas.len_as(encoding));
                    let mut back = Deltas::new();
                    back.decode(&bytes, n).unwrap();
                    assert_eq!(back, deltas, "{encoding:?}, n {n}, density {density}");
                }
            }
        }
    }

    #[test]
    fn the_shortest_is_written() {
        let mut rng = Rng::new(2);
        let mut chosen = Vec::new();
        for density in [0.0, 0.0005, 0.01, 0.04, 0.1, 0.5, 1.0] {
            let deltas = deltas(20_000, density, &mut rng);
            let bytes = deltas.encode();
            assert_eq!(bytes.len(), deltas.encoded_len(Coding::Auto));
            assert!(bytes.len() <= longest_message(Coding::Auto, 20_000));
            for encoding in encodings() {
                let k = super::rice::best_k(deltas.len(), 20_000);
                let is_rival = !matches!(encoding, Encoding::Rice { k: other } if other != k);
                assert!(!is_rival || bytes.len() <= encoded_as(&deltas, encoding).len(), "{encoding:?}, {density}");
            }
            chosen.push(bytes[0]);
        }
        assert_eq!(chosen, [0, 1, 1, 1, 1, 1, 2]);
    }

    #[test]
    fn what_is_asked_for_is_written() {
        let mut rng = Rng::new(5);
        for n in [0, 1, 3, 1000] {
            for density in [0.0, 0.01, 0.3, 0.5, 0.7, 1.0] {
                let deltas = deltas(n, density, &mut rng);
                for (coding, number) in [(Coding::List, 0), (Coding::Rice, 1), (Coding::Bitmap, 2)] {
                    let mut bytes = BytesMut::new();
                    deltas.encode_into(coding, &mut bytes);
                    assert_eq!((bytes[0], bytes.len()), (number, deltas.encoded_len(coding)));
                    assert!(bytes.len() <= longest_message(coding, n), "{coding:?}, n {n}, density {density}");
                    let mut back = Deltas::new();
                    back.decode(&bytes, n).unwrap();
                    assert_eq!(back, deltas);
                }
            }
        }
    }

    #[test]
    fn the_header_is_as_written_down() {
        let mut deltas = Deltas::new();
        deltas.scan(&mut [0.0, 2.0, 0.0, -2.0], 1.0);
        assert_eq!(deltas.encode()[..], [2, 0, 0, 0x80, 0x3f, 2, 0, 0, 0, 0b1000_0100]);
        let rice = encoded_as(&deltas, Encoding::Rice { k: 3 });
        assert_eq!(rice[..HEADER_LEN + 1], [1, 0, 0, 0x80, 0x3f, 2, 0, 0, 0, 3]);
    }

    #[test]
    fn a_message_can_follow_other_bytes() {
        let deltas = deltas(500, 0.02, &mut Rng::new(3));
        let mut bytes = BytesMut::from(&b"before"[..]);
        deltas.encode_into(Coding::Auto, &mut bytes);
        bytes.extend_from_slice(b"after");
        let end = bytes.len() - 5;
        assert_eq!(bytes[6..end], deltas.encode()[..]);
    }

    #[test]
    fn malformed_messages_leave_nothing() {
        let mut rng = Rng::new(4);
        let good = deltas(1000, 0.05, &mut rng);
        for encoding in [Encoding::List, Encoding::Rice { k: 4 }, Encoding::Bitmap] {
            let bytes = encoded_as(&good, encoding);
            let refused = |bytes: &[u8], n: usize, why: &str| {
                let mut deltas = good.clone();
                assert!(deltas.decode(bytes, n).is_err(), "{encoding:?}: {why}");
                assert!(deltas.is_empty());
            };
            (0..bytes.len()).for_each(|len| refused(&bytes[..len], 1000, "truncated"));
            refused(&[&bytes[..], &[0]].concat(), 1000, "trailing bytes");
            refused(&bytes, index(good.marks[good.len() - 1]), "an index too large");
            let with = |at: usize, new: &[u8]| {
                let mut bytes = bytes.clone();
                bytes[at..at + new.len()].copy_from_slice(new);
                bytes
            };
            refused(&with(0, &[3]), 1000, "an unknown encoding");
            for tau in [0.0, -0.0, -1.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                refused(&with(1, &tau.to_le_bytes()), 1000, "no threshold");
            }
            for n_deltas in [0, good.len() as u32 - 1, good.len() as u32 + 1, 1001, u32::MAX] {
                refused(&with(5, &n_deltas.to_le_bytes()), 1000, "another count");
            }
        }
        let rice = encoded_as(&good, Encoding::Rice { k: 4 });
        for k in [32, 33, 63, 64, 255] {
            let mut bytes = rice.clone();
            bytes[HEADER_LEN] = k;
            assert!(Deltas::new().decode(&bytes, 1000).is_err());
        }
    }

    #[test]
    fn a_large_count_alone_allocates_nothing() {
        for encoding in [0, 1, 2] {
            let mut message = vec![encoding];
            message.extend(1.0_f32.to_le_bytes());
            message.extend((1_u32 << 31).to_le_bytes());
            message.extend([0; 40]);
            let mut deltas = Deltas::new();
            assert!(deltas.decode(&message, MOST_VALUES).is_err());
            assert!(deltas.marks.capacity() <= 16 * message.len());
        }
    }

    /// Whatever comes, nothing panics, and what is accepted is sound and can be written again.
    fn survive(message: &[u8], n: usize, what: &str) -> bool {
        let mut deltas = Deltas::new();
        let is_sound = deltas.decode(message, n).is_ok();
        assert!(deltas.marks.is_sorted_by(|a, b| index(*a) < index(*b)), "{what}");
        assert!(deltas.marks.iter().all(|&mark| index(mark) < n), "{what}");
        assert!(is_sound || deltas.is_empty(), "{what}");
        deltas.add_to(&mut vec![0.0; n]);
        if is_sound {
            let mut again = Deltas::new();
            again.decode(&deltas.encode(), n).unwrap();
            assert_eq!(again, deltas, "{what}");
        }
        is_sound
    }

    #[test]
    fn random_bytes_are_survived() {
        for seed in 0..20_000 {
            let mut rng = Rng::stream(7, "bytes", seed);
            let n = [0, 1, 5, 100, 3000][rng.below(5)];
            let mut message: Vec<u8> = (0..rng.below(60)).map(|_| rng.next_u64() as u8).collect();
            // Mostly with a header that gets past the first checks.
            if message.len() > HEADER_LEN && rng.below(4) != 0 {
                message[0] = rng.below(3) as u8;
                message[1..5].copy_from_slice(&0.5_f32.to_le_bytes());
                message[5..9].copy_from_slice(&(rng.below(n + 1).min(rng.below(40)) as u32).to_le_bytes());
                message[9] %= 40;
            }
            survive(&message, n, &format!("seed {seed}"));
        }
    }

    #[test]
    fn changed_messages_are_survived() {
        let mut n_sound = 0;
        for seed in 0..5000 {
            let mut rng = Rng::stream(8, "changes", seed);
            let n = 1 + rng.below(600);
            let density = [0.005, 0.05, 0.5][rng.below(3)];
            let encoding = encodings()[rng.below(6)];
            let mut message = encoded_as(&deltas(n, density, &mut rng), encoding);
            for _ in 0..=rng.below(3) {
                let at = rng.below(message.len());
                match rng.below(4) {
                    0 => message[at] ^= 1 << rng.below(8),
                    1 => message[at] = rng.next_u64() as u8,
                    2 => message.truncate(at.max(1)),
                    _ => message.extend_from_slice(&[rng.next_u64() as u8]),
                }
            }
            n_sound += usize::from(survive(&message, n, &format!("seed {seed}")));
        }
        // A flipped sign is another sound message; so the checks are not just refusing everything.
        assert!(n_sound > 100, "{n_sound}");
    }
}
