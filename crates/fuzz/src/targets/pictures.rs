//! Pictures in folders and archives.

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

/// An archive of pictures and their classes.
pub(super) const SHARDS: Target = Target {
    name: "shards",
    about: "a tar archive of pictures and their classes",
    seeds: || vec![archive(&[("a.png", DOT), ("a.cls", b"0"), ("b/c.png", DOT), ("b/c.json", b"{\"label\": \"x\"}")])],
    words: &["a.png", ".cls", ".json", "ustar", "././@LongLink", "00000000100", "L", "x", "g"],
    read: |input| {
        with_folder(|folder| {
            let input = if input.len() % 2 == 0 { with_header_sums(input) } else { input.to_vec() };
            write(&folder.join("0.tar"), &input);
            write(&folder.join("1.tar"), &archive(&[("d.png", DOT), ("d.cls", b"0"), ("e.png", DOT), ("e.cls", b"0")]));
            look_at("format = \"tar\"\nsize = 8", folder)
        })
    },
    most_bytes: 64 << 20,
    times_input: 4 * 1100,
    n_quick: 500,
};

/// A tar archive of these files.
fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, content) in files {
        let mut header = [0; HEADER_LEN];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[SIZE_FIELD].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        bytes.extend(header);
        bytes.extend(*content);
        bytes.resize(bytes.len().next_multiple_of(HEADER_LEN), 0);
    }
    bytes.resize(bytes.len() + 2 * HEADER_LEN, 0);
    with_header_sums(&bytes)
}

const HEADER_LEN: usize = 512;
const SIZE_FIELD: std::ops::Range<usize> = 124..136;
const SUM_FIELD: std::ops::Range<usize> = 148..156;

/// A tar archive whose headers have the sums that they should have.
fn with_header_sums(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    let mut at = 0_usize;
    while let Some(header) = bytes.get_mut(at..at + HEADER_LEN) {
        if header.iter().all(|&byte| byte == 0) {
            break;
        }
        header[SUM_FIELD].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[SUM_FIELD].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let size = String::from_utf8_lossy(&header[SIZE_FIELD]).into_owned();
        let size = usize::from_str_radix(size.trim_matches(['\0', ' ']), 8).unwrap_or(0).min(1 << 40);
        at += HEADER_LEN + size.next_multiple_of(HEADER_LEN);
    }
    bytes
}

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
