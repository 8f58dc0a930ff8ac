//! Made-up inputs: known ones, changed a little, cut, and put together.

use nettorrent_engine::rng::Rng;

/// Longer inputs find nothing that shorter ones do not, and take longer.
const MOST_LEN: usize = 1 << 14;

/// Numbers at which readers stumble.
const BORDERS: [u64; 12] =
    [0, 1, 2, 127, 128, 255, 256, 65_535, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

/// Another input, made of one that is known, perhaps with a piece of a second.
pub(crate) fn mutated(rng: &mut Rng, known: &[u8], other: &[u8], words: &[&str]) -> Vec<u8> {
    let mut bytes = known.to_vec();
    for _ in 0..=rng.below(4) {
        change(rng, &mut bytes, other, words);
    }
    bytes.truncate(MOST_LEN);
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, other: &[u8], words: &[&str]) {
    let at = rng.below(bytes.len() + 1);
    let end = at + rng.below((bytes.len() - at).min(64) + 1);
    match rng.below(11) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
        2 if at < bytes.len() => bytes[at] = rng.next_u64() as u8,
        3 => bytes.truncate(at),
        4 => drop(bytes.drain(at..end)),
        5 => {
            let piece = bytes[at..end].to_vec();
            insert(bytes, at, &piece.repeat(1 + rng.below(8)));
        }
        6 => {
            let number = BORDERS[rng.below(BORDERS.len())].to_le_bytes();
            let n = [1, 2, 4, 8][rng.below(4)];
            let number: Vec<u8> =
                if rng.below(2) == 0 { number[..n].to_vec() } else { number[..n].iter().rev().copied().collect() };
            for (k, byte) in number.into_iter().enumerate() {
                match bytes.get_mut(at + k) {
                    Some(there) => *there = byte,
                    None => bytes.push(byte),
                }
            }
        }
        7 => {
            let from = rng.below(other.len() + 1);
            let until = from + rng.below((other.len() - from).min(256) + 1);
            insert(bytes, at, &other[from..until]);
        }
        8 if !words.is_empty() => insert(bytes, at, words[rng.below(words.len())].as_bytes()),
        9 => replace_number(rng, bytes),
        _ => insert(bytes, at, &[rng.next_u64() as u8]),
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    bytes.splice(at..at, piece.iter().copied());
}

/// Where a text says a number, it says another.
fn replace_number(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let starts = |k: &usize| bytes[*k].is_ascii_digit() && (*k == 0 || !bytes[k - 1].is_ascii_digit());
    let places: Vec<usize> = (0..bytes.len()).filter(starts).collect();
    if places.is_empty() {
        return;
    }
    let at = places[rng.below(places.len())];
    let len = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = match rng.below(4) {
        0 => "1e309".to_owned(),
        1 => format!("-{}", BORDERS[rng.below(BORDERS.len())]),
        _ => BORDERS[rng.below(BORDERS.len())].to_string(),
    };
    bytes.splice(at..at + len, number.bytes());
}
