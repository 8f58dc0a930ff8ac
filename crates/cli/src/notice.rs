//! Lines for people, beside or instead of what other programs read.

use crate::output::{complain, say_line};

/// Where lines for people go.
pub(crate) struct Notice {
    /// Whether another program reads standard output.
    pub json: bool,
}

impl Notice {
    /// Says something that only people want to know.
    pub(crate) fn say(&self, line: &str) {
        if !self.json {
            say_line(line);
        }
    }

    /// Tells people something that they need to know even when another program reads standard output.
    pub(crate) fn tell(&self, line: &str) {
        if self.json { complain(line) } else { say_line(line) }
    }
}
