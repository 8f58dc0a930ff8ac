//! Text that comes from elsewhere, as a terminal may be shown it: what would move its cursor or change its title is spelt out.

/// The same text with control characters, and others that cannot be seen, spelt out as `\u{1b}`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\'' | '\\' => shown.push(character),
            other => shown.extend(other.escape_debug()),
        }
    }
    shown
}

/// Whether a text can be shown as it is.
pub fn is_printable(text: &str) -> bool {
    printable(text) == text
}

#[cfg(test)]
mod tests {
    use super::{is_printable, printable};

    #[test]
    fn what_a_terminal_obeys_is_spelt_out() {
        assert_eq!(printable("\u{1b}]0;owned\u{7}\n"), "\\u{1b}]0;owned\\u{7}\\n");
        assert!(!is_printable("\u{202e}txt.exe") && !is_printable("\u{9b}2J"));
        assert!(is_printable("it's \"mlp:512,512\" by Müller \\ 東京"));
    }
}
