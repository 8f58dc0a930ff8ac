//! Folders of pictures.

use crate::target::Target;
use crate::targets::files::{look_at, with_folder, write};

/// A picture among sound ones.
pub(super) const PICTURES: Target = Target {
    name: "pictures",
    about: "a picture in a folder of others",
    seeds: || vec![DOT.to_vec()],
    words: &["IHDR", "IDAT", "PLTE", "IEND", "tRNS", "\u{89}PNG\r\n\x1a\n"],
    read: |input| {
        with_folder(|folder| {
            for k in 0..3 {
                write(&folder.join(format!("cat/{k}.png")), DOT);
                write(&folder.join(format!("dog/{k}.png")), DOT);
            }
            // By its first bytes, whatever it is called. Half of them with sums that are right, or hardly any would be looked into.
            let name = if input.starts_with(&[0xff, 0xd8]) { "dog/5.jpg" } else { "dog/5.png" };
            let input = if input.len() % 2 == 0 { with_check_sums(input) } else { input.to_vec() };
            write(&folder.join(name), &input);
            look_at("format = \"images\"\nsize = 8", folder)
        })
    },
    most_bytes: 64 << 20,
    // As much as a compressed stream can become, as numbers.
    times_input: 4 * 1100,
    n_quick: 800,
};

/// A PNG file whose chunks have the check sums that they should have.
fn with_check_sums(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut at = 8;
    while let Some(head) = bytes.get(at..at + 4) {
        let len = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let end = at.saturating_add(8).saturating_add(len);
        let Some(chunk) = bytes.get(at + 4..end) else { break };
        let sum = check_sum(chunk).to_be_bytes();
        bytes.iter_mut().skip(end).zip(sum).for_each(|(byte, sum)| *byte = sum);
        at = end + 4;
    }
    bytes
}

/// CRC-32, bit by bit.
fn check_sum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(u32::MAX, |sum, &byte| (0..8).fold(sum ^ u32::from(byte), step))
}

/// A red picture of one by one pixel.
const DOT: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49,
    0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x60, 0x60, 0xe7, 0x03, 0x00, 0x00, 0x20, 0x00, 0x16, 0x81, 0xa5, 0xf5, 0x7c,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];

#[cfg(test)]
mod tests {
    use super::{DOT, with_check_sums};

    #[test]
    fn a_sound_picture_has_the_right_sums_and_a_spoilt_one_gets_them() {
        assert_eq!(with_check_sums(DOT), DOT);
        let mut spoilt = DOT.to_vec();
        spoilt[29] ^= 1;
        assert_eq!(with_check_sums(&spoilt), DOT);
    }
}
