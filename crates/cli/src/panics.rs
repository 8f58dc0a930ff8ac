//! What is said of panics.

use std::panic::{set_hook, take_hook};
use std::process::exit;

use nettorrent_engine::data::decoders::panic_is_caught;

use crate::output::BROKEN_PIPE;

/// Nothing is said of those that become errors. What still panics because a pipe is closed, as `eprintln!` does, ends the program quietly.
pub(crate) fn set_panic_hook() {
    let default = take_hook();
    set_hook(Box::new(move |info| {
        // What it panics with is always a `String`.
        let message = info.payload().downcast_ref::<String>();
        if message.is_some_and(|message| message.contains("Broken pipe")) {
            exit(BROKEN_PIPE);
        }
        if !panic_is_caught() {
            default(info);
        }
    }));
}
