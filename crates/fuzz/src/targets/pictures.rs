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
            // By its first bytes, whatever it is called.
            let name = if input.starts_with(&[0xff, 0xd8]) { "dog/5.jpg" } else { "dog/5.png" };
            write(&folder.join(name), input);
            look_at("format = \"images\"\nsize = 8", folder)
        })
    },
    most_bytes: 64 << 20,
    // As much as a compressed stream can become, as numbers.
    times_input: 4 * 1100,
    n_quick: 800,
};

/// A red picture of one by one pixel.
const DOT: &[u8] = &[
    0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 0x00, 0x00, 0x00, 0x0d, 0x49, 0x48, 0x44, 0x52, 0x00, 0x00, 0x00,
    0x01, 0x00, 0x00, 0x00, 0x01, 0x08, 0x02, 0x00, 0x00, 0x00, 0x90, 0x77, 0x53, 0xde, 0x00, 0x00, 0x00, 0x0c, 0x49,
    0x44, 0x41, 0x54, 0x78, 0x9c, 0x63, 0x60, 0x60, 0xe7, 0x03, 0x00, 0x00, 0x20, 0x00, 0x16, 0x81, 0xa5, 0xf5, 0x7c,
    0x00, 0x00, 0x00, 0x00, 0x49, 0x45, 0x4e, 0x44, 0xae, 0x42, 0x60, 0x82,
];
