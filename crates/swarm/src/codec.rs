//! Vectors as bytes: plain, or in half, a quarter or an eighth of the bytes.
//!
//! Sums travel along rings, so besides coming back a vector can be added to one that is still encoded. Numbers are
//! little-endian on the wire.

use bytes::{BufMut, Bytes, BytesMut};
use half::{bf16, f16};
use nettorrent_engine::kernel::{is_finite, vectorised};
use serde::{Deserialize, Serialize};

use crate::malformed::Malformed;

/// How numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// Two bytes: the range of single precision, 8 bits of precision.
    Bf16,
    /// Two bytes: up to 65504, 11 bits of precision; larger numbers become that.
    F16,
    /// Four bytes, as they are.
    #[default]
    F32,
    /// Half a byte and, for each piece that travels, four bytes for its largest number. Not for users to choose: only where
    /// what rounding takes away is made good later does anything remain of the numbers.
    #[serde(skip)]
    Int4,
    /// One byte and, for each piece that travels, four bytes for its largest number.
    Int8,
}

impl Codec {
    /// How many bytes this many numbers become.
    pub(crate) fn encoded_len(self, n: usize) -> usize {
        match self {
            Self::F32 => 4 * n,
            Self::F16 | Self::Bf16 => 2 * n,
            Self::Int4 => n.div_ceil(2) + 4,
            Self::Int8 => n + 4,
        }
    }

    /// Writes numbers.
    pub fn encode(self, numbers: &[f32]) -> Bytes {
        match self {
            Self::F32 if cfg!(target_endian = "little") => Bytes::copy_from_slice(bytemuck::cast_slice(numbers)),
            Self::F32 => self.collect(numbers, BytesMut::put_f32_le),
            Self::F16 => self.collect(numbers, |bytes, x| {
                let most = f16::MAX.to_f32();
                bytes.put_u16_le(f16::from_f32(if x.is_nan() { x } else { x.clamp(-most, most) }).to_bits());
            }),
            Self::Bf16 => self.collect(numbers, |bytes, x| bytes.put_u16_le(bf16::from_f32(x).to_bits())),
            Self::Int4 => encode_int4(numbers),
            Self::Int8 => encode_int8(numbers),
        }
    }

    fn collect(self, numbers: &[f32], put: impl Fn(&mut BytesMut, f32)) -> Bytes {
        let mut bytes = BytesMut::with_capacity(self.encoded_len(numbers.len()));
        numbers.iter().for_each(|&x| put(&mut bytes, x));
        bytes.freeze()
    }

    /// Fails if the bytes are not as many numbers as expected.
    pub fn check(self, bytes: &[u8], n: usize) -> Result<(), Malformed> {
        let expected = self.encoded_len(n);
        if bytes.len() == expected {
            return Ok(());
        }
        Err(Malformed::new(format!("expected {expected} bytes ({n} values), got {}", bytes.len())))
    }

    /// Fails if the bytes are not as many numbers as expected, or if one of these is infinite or none. One of them in a sum,
    /// and all who take part have lost their parameters.
    pub fn check_finite(self, bytes: &[u8], n: usize) -> Result<(), Malformed> {
        self.check(bytes, n)?;
        let is_finite = vectorised(|| match self {
            Self::F32 => all(bytes, |x| f32::from_le_bytes(x).is_finite()),
            Self::F16 => all(bytes, |x| f16::from_le_bytes(x).is_finite()),
            Self::Bf16 => all(bytes, |x| bf16::from_le_bytes(x).is_finite()),
            Self::Int4 | Self::Int8 => scale(bytes).0.abs() <= MOST_SCALE,
        });
        is_finite.then_some(()).ok_or_else(|| Malformed::new("it sends numbers that are infinite or none (NaN)"))
    }

    /// Reads numbers into a slice of their length.
    pub fn decode(self, bytes: &[u8], numbers: &mut [f32]) -> Result<(), Malformed> {
        self.each(bytes, numbers, |number, x| *number = x)
    }

    /// Adds numbers to a slice of their length.
    pub fn decode_add(self, bytes: &[u8], numbers: &mut [f32]) -> Result<(), Malformed> {
        self.each(bytes, numbers, |number, x| *number += x)
    }

    /// Replaces each number of a slice by its mean with one that is read.
    pub(crate) fn decode_mean(self, bytes: &[u8], numbers: &mut [f32]) -> Result<(), Malformed> {
        // Halved before they are added, for the sum of two large numbers may be infinite.
        self.each(bytes, numbers, |number, x| *number = 0.5 * *number + 0.5 * x)
    }

    #[inline(always)]
    fn each(self, bytes: &[u8], numbers: &mut [f32], take: impl Fn(&mut f32, f32)) -> Result<(), Malformed> {
        self.check(bytes, numbers.len())?;
        vectorised(
            #[inline(always)]
            || match self {
                Self::F32 => {
                    numbers
                        .iter_mut()
                        .zip(bytes.as_chunks().0)
                        .for_each(|(number, &x)| take(number, f32::from_le_bytes(x)));
                }
                Self::F16 => numbers
                    .iter_mut()
                    .zip(bytes.as_chunks().0)
                    .for_each(|(number, &x)| take(number, f16::from_le_bytes(x).to_f32())),
                Self::Bf16 => numbers
                    .iter_mut()
                    .zip(bytes.as_chunks().0)
                    .for_each(|(number, &x)| take(number, bf16::from_le_bytes(x).to_f32())),
                Self::Int4 => {
                    let (scale, steps) = scale(bytes);
                    // The first of two is in the lower half of their byte; shifting a signed byte down keeps its sign.
                    let (low, high) = (|x: u8| (x << 4).cast_signed() >> 4, |x: u8| x.cast_signed() >> 4);
                    let (pairs, rest) = numbers.as_chunks_mut();
                    for ([first, second], &x) in pairs.iter_mut().zip(steps) {
                        take(first, f32::from(low(x)) * scale);
                        take(second, f32::from(high(x)) * scale);
                    }
                    rest.iter_mut().zip(steps.last()).for_each(|(number, &x)| take(number, f32::from(low(x)) * scale));
                }
                Self::Int8 => {
                    let (scale, steps) = scale(bytes);
                    numbers
                        .iter_mut()
                        .zip(steps)
                        .for_each(|(number, &x)| take(number, f32::from(x.cast_signed()) * scale));
                }
            },
        );
        Ok(())
    }

    /// The sum of what is encoded and other numbers, encoded again. Plain numbers are added where they lie if nobody else
    /// holds the bytes: a sum that goes round a ring is never copied.
    pub fn add(self, bytes: Bytes, numbers: &[f32]) -> Result<Bytes, Malformed> {
        self.check(&bytes, numbers.len())?;
        if self != Self::F32 {
            let mut sum = numbers.to_vec();
            self.decode_add(&bytes, &mut sum)?;
            return Ok(self.encode(&sum));
        }
        let mut bytes = BytesMut::from(bytes);
        vectorised(|| {
            for (sum, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
                *sum = (f32::from_le_bytes(*sum) + number).to_le_bytes();
            }
        });
        Ok(bytes.freeze())
    }
}

/// Whether all pieces are sound. It looks at every one, for that is quicker than to stop at the first.
#[inline(always)]
fn all<const N: usize>(bytes: &[u8], is_sound: impl Fn([u8; N]) -> bool) -> bool {
    bytes.as_chunks().0.iter().fold(true, |all, &piece| all & is_sound(piece))
}

/// The scale that stands before the steps of whole numbers, and the steps.
fn scale(bytes: &[u8]) -> (f32, &[u8]) {
    let (scale, steps) = bytes.split_at(4);
    (f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]), steps)
}

/// With a larger scale, the longest step would be infinite.
const MOST_SCALE: f32 = f32::MAX / 256.0;

/// The largest number becomes ±127; what is between two steps goes to the nearer.
fn encode_int8(numbers: &[f32]) -> Bytes {
    let (scale, inverse) = scale_for(numbers, 127.0);
    let mut bytes = BytesMut::with_capacity(numbers.len() + 4);
    bytes.put_f32_le(scale);
    bytes.extend(numbers.iter().map(|x| ((x * inverse).round_ties_even() as i8).cast_unsigned()));
    bytes.freeze()
}

/// The largest number becomes ±7; two numbers share a byte.
fn encode_int4(numbers: &[f32]) -> Bytes {
    let (scale, inverse) = scale_for(numbers, 7.0);
    let step = |x: f32| ((x * inverse).round_ties_even().clamp(-7.0, 7.0) as i8).cast_unsigned() & 0xf;
    let mut bytes = BytesMut::with_capacity(Codec::Int4.encoded_len(numbers.len()));
    bytes.put_f32_le(scale);
    let (pairs, rest) = numbers.as_chunks();
    bytes.extend(pairs.iter().map(|&[first, second]| step(first) | step(second) << 4));
    bytes.extend(rest.iter().map(|&x| step(x)));
    bytes.freeze()
}

/// The scale with which the largest number becomes `n_steps`, and its inverse. A vector with a number that is none becomes
/// one of such numbers, so that the receiver sees what is wrong.
fn scale_for(numbers: &[f32], n_steps: f32) -> (f32, f32) {
    let most = numbers.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let scale = if is_finite(numbers) { (most / n_steps).min(MOST_SCALE) } else { f32::NAN };
    (scale, if scale > 0.0 { 1.0 / scale } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::Codec;
    use nettorrent_engine::rng::Rng;

    const ALL: [Codec; 5] = [Codec::Bf16, Codec::F16, Codec::F32, Codec::Int4, Codec::Int8];

    fn numbers(n: usize) -> Vec<f32> {
        let mut rng = Rng::new(3);
        (0..n).map(|_| (rng.next_u64() % 2001) as f32 / 1000.0 - 1.0).collect()
    }

    #[test]
    fn numbers_come_back_as_exactly_as_promised() {
        let errors = [0.004, 0.0005, 0.0, 0.0715, 0.004];
        for (codec, error) in ALL.into_iter().zip(errors) {
            for n in [0, 1, 7, 1000] {
                let original = numbers(n);
                let bytes = codec.encode(&original);
                assert_eq!(bytes.len(), codec.encoded_len(n), "{codec:?}");
                let mut back = vec![9.0; n];
                codec.decode(&bytes, &mut back).unwrap();
                assert!(original.iter().zip(&back).all(|(a, b)| (a - b).abs() <= error), "{codec:?}");
            }
        }
    }

    #[test]
    fn a_sum_is_the_same_in_place_and_apart() {
        let (a, b) = (numbers(100), vec![0.25; 100]);
        for codec in ALL {
            let bytes = codec.encode(&a);
            let shared = bytes.clone();
            let apart = codec.add(bytes, &b).unwrap();
            let in_place = codec.add(shared, &b).unwrap();
            assert_eq!(apart, in_place);
            let (mut sum, mut expected) = (vec![0.0; 100], vec![0.0; 100]);
            codec.decode(&apart, &mut sum).unwrap();
            codec.decode(&codec.encode(&a), &mut expected).unwrap();
            let error = match codec {
                Codec::F32 => 0.0,
                Codec::Int4 => 0.1,
                _ => 0.01,
            };
            assert!(sum.iter().zip(&expected).all(|(sum, a)| (sum - a - 0.25).abs() <= error), "{codec:?}");
        }
    }

    #[test]
    fn a_mean_lies_in_the_middle() {
        for codec in ALL {
            let mut numbers = [-1.0, 1.0, 3.0];
            codec.decode_mean(&codec.encode(&[1.0; 3]), &mut numbers).unwrap();
            assert_eq!(numbers, [0.0, 1.0, 2.0], "{codec:?}");
        }
        let mut large = [f32::MAX];
        Codec::F32.decode_mean(&Codec::F32.encode(&[f32::MAX]), &mut large).unwrap();
        assert_eq!(large, [f32::MAX]);
    }

    #[test]
    fn other_lengths_are_refused() {
        for codec in ALL {
            let bytes = codec.encode(&numbers(5));
            assert!(codec.decode(&bytes, &mut [0.0; 7]).is_err());
            assert!(codec.decode(&bytes[1..], &mut [0.0; 5]).is_err());
            assert!(codec.add(bytes, &[0.0; 3]).is_err());
        }
    }

    #[test]
    fn what_is_no_number_is_refused_and_all_that_is_one_is_not() {
        for codec in ALL {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for at in 0..20 {
                    let mut numbers = numbers(20);
                    numbers[at] = bad;
                    let hidden = codec == Codec::F16 && bad.is_infinite();
                    assert_eq!(codec.check_finite(&codec.encode(&numbers), 20).is_err(), !hidden, "{codec:?} {bad}");
                }
            }
            let largest = if codec == Codec::Bf16 { 3.3e38 } else { f32::MAX };
            for numbers in [vec![], vec![0.0], vec![largest, -largest, 1.0], numbers(100)] {
                assert_eq!(codec.check_finite(&codec.encode(&numbers), numbers.len()), Ok(()), "{codec:?}");
            }
            assert!(codec.check_finite(&[0; 40], 3).is_err());
        }
    }

    #[test]
    fn what_is_no_number_is_not_hidden() {
        for codec in ALL {
            let mut back = [0.0; 3];
            codec.decode(&codec.encode(&[1.0, f32::NAN, 2.0]), &mut back).unwrap();
            assert!(back.iter().any(|x| x.is_nan()), "{codec:?}");
        }
    }
}
