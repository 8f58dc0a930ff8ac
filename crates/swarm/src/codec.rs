//! Vectors as bytes: plain, in half the bytes, or in a quarter.
//!
//! Sums travel along rings, so besides coming back a vector can be added to one that is still encoded. Numbers are
//! little-endian on the wire.

use bytes::{BufMut, Bytes, BytesMut};
use half::{bf16, f16};
use nettorrent_engine::kernel::vectorised;
use serde::{Deserialize, Serialize};

use crate::strategy::Malformed;

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
    /// One byte and, for each piece that travels, four bytes for its largest number.
    Int8,
}

impl Codec {
    /// How many bytes this many numbers become.
    pub fn encoded_len(self, n: usize) -> usize {
        match self {
            Self::F32 => 4 * n,
            Self::F16 | Self::Bf16 => 2 * n,
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
        Err(Malformed::new(format!("{} bytes came where {n} numbers in {expected} were due", bytes.len())))
    }

    /// Reads numbers into a slice of their length.
    pub fn decode(self, bytes: &[u8], numbers: &mut [f32]) -> Result<(), Malformed> {
        self.each(bytes, numbers, |number, x| *number = x)
    }

    /// Adds numbers to a slice of their length.
    pub fn decode_add(self, bytes: &[u8], numbers: &mut [f32]) -> Result<(), Malformed> {
        self.each(bytes, numbers, |number, x| *number += x)
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
                Self::Int8 => {
                    let (scale, steps) = bytes.split_at(4);
                    let scale = f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]);
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

/// The largest number becomes ±127; what is between two steps goes to the nearer. A vector with a number that is none
/// becomes one of such numbers, so that the receiver sees what is wrong.
fn encode_int8(numbers: &[f32]) -> Bytes {
    let is_sound = numbers.iter().all(|x| x.is_finite());
    let scale = if is_sound { numbers.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0 } else { f32::NAN };
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut bytes = BytesMut::with_capacity(numbers.len() + 4);
    bytes.put_f32_le(scale);
    bytes.extend(numbers.iter().map(|x| ((x * inverse).round_ties_even() as i8).cast_unsigned()));
    bytes.freeze()
}

#[cfg(test)]
mod tests {
    use super::Codec;
    use nettorrent_engine::rng::Rng;

    const ALL: [Codec; 4] = [Codec::Bf16, Codec::F16, Codec::F32, Codec::Int8];

    fn numbers(n: usize) -> Vec<f32> {
        let mut rng = Rng::new(3);
        (0..n).map(|_| (rng.next_u64() % 2001) as f32 / 1000.0 - 1.0).collect()
    }

    #[test]
    fn numbers_come_back_as_exactly_as_promised() {
        for (codec, error) in [(Codec::Bf16, 0.004), (Codec::F16, 0.0005), (Codec::F32, 0.0), (Codec::Int8, 0.004)] {
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
            let error = if codec == Codec::F32 { 0.0 } else { 0.01 };
            assert!(sum.iter().zip(&expected).all(|(sum, a)| (sum - a - 0.25).abs() <= error), "{codec:?}");
        }
    }

    #[test]
    fn other_lengths_are_refused() {
        for codec in ALL {
            let bytes = codec.encode(&numbers(5));
            assert!(codec.decode(&bytes, &mut [0.0; 6]).is_err());
            assert!(codec.decode(&bytes[1..], &mut [0.0; 5]).is_err());
            assert!(codec.add(bytes, &[0.0; 4]).is_err());
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
