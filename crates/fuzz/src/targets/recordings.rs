//! Folders of recordings.

use crate::target::Target;
use crate::targets::files::{look_at, with_folder, write};

/// A recording among sound ones.
pub(super) const RECORDINGS: Target = Target {
    name: "recordings",
    about: "a recording in a folder of others",
    seeds: || vec![wav(1, 16, 16_000, 400), wav(2, 8, 8_000, 100), wav(1, 24, 16_000, 64)],
    words: &["RIFF", "WAVE", "fmt ", "data", "LIST"],
    read: |input| {
        with_folder(|folder| {
            for k in 0..4 {
                write(&folder.join(format!("yes/{k}.wav")), &wav(1, 16, 16_000, 400));
                write(&folder.join(format!("no/{k}.wav")), &wav(1, 16, 16_000, 200));
            }
            write(&folder.join("no/5.wav"), input);
            look_at("format = \"wav\"\nframes = 4", folder)
        })
    },
    most_bytes: 16 << 20,
    times_input: 256,
    n_quick: 800,
};

/// A tone, as it is usually written.
fn wav(n_channels: u16, n_bits: u16, sample_rate: u32, n_samples: u32) -> Vec<u8> {
    let block = n_channels * n_bits / 8;
    let n_bytes = n_samples * u32::from(block);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + n_bytes).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16_u32.to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(n_channels.to_le_bytes());
    bytes.extend(sample_rate.to_le_bytes());
    bytes.extend((sample_rate * u32::from(block)).to_le_bytes());
    bytes.extend(block.to_le_bytes());
    bytes.extend(n_bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend(n_bytes.to_le_bytes());
    bytes.extend((0..n_bytes).map(|k| (k * 37 % 251) as u8));
    bytes
}
