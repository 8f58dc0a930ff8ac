//! Data sets of text.

use crate::target::Target;
use crate::targets::files::{look_at, with_folder, write};

/// A file of plain text.
pub(super) const TEXT: Target = Target {
    name: "text",
    about: "plain text, cut into windows of tokens",
    seeds: || {
        let texts = ["To be, or not to be\n", "\u{feff}caf\u{e9}\r\n\u{4f60}\u{597d}", "a\0b\0", "1,2\nno table"];
        texts.map(|text| text.as_bytes().to_vec()).to_vec()
    },
    words: &["\u{feff}", "\0", "\r\n", "\u{10ffff}", "\u{fffd}"],
    read: |input| {
        with_folder(|folder| {
            write(&folder.join("text.txt"), input);
            let tokens = ["", "\ntokens = \"bytes\"", "\ntokens = \"characters\""][input.len() % 3];
            look_at(&format!("format = \"text\"\nlength = 3{tokens}"), folder)
        })
    },
    // A mark for each character that there is, and threads.
    most_bytes: 8 << 20,
    times_input: 600,
    n_quick: 300,
};
