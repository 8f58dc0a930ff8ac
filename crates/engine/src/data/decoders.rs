//! What libraries that decode files say of damaged ones, and what is done where they panic.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The longest that is told of what a library says, in letters: some of them list what a file holds.
const MOST_LETTERS: usize = 300;

thread_local! {
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread would become an error about a file. A program whose panic hook asks this need print nothing then.
pub fn panic_is_caught() -> bool {
    IS_CAUGHT.get()
}

/// What is read, or nothing where that panics. Whatever a panic leaves half done is to be dropped by the caller.
pub(crate) fn caught<T>(read: impl FnOnce() -> T) -> Option<T> {
    let before = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    IS_CAUGHT.set(before);
    result.ok()
}

/// What a library says, in one line that is not too long.
pub(crate) fn in_one_line(text: &str) -> String {
    let mut letters = text.trim().chars();
    let shown = letters.by_ref().take(MOST_LETTERS).map(|letter| if letter.is_control() { ' ' } else { letter });
    let shown: String = shown.collect();
    let rest = if letters.next().is_some() { "…" } else { "" };
    format!("{}{rest}", shown.trim())
}

#[cfg(test)]
mod tests {
    use super::{MOST_LETTERS, caught, in_one_line, panic_is_caught};

    #[test]
    fn what_libraries_say_fits_into_a_line() {
        assert_eq!(in_one_line("expected 162\r\nbut found 53\n"), "expected 162  but found 53");
        assert_eq!(in_one_line("\0\n"), "");
        let most = "é".repeat(MOST_LETTERS);
        assert_eq!(in_one_line(&most), most);
        assert_eq!(in_one_line(&format!("{most}éé")), format!("{most}…"));
    }

    #[test]
    fn panics_are_caught_as_long_as_it_is_said() {
        assert_eq!((caught(panic_is_caught), panic_is_caught()), (Some(true), false));
        let nested = caught(|| (caught::<u8>(|| panic!("damaged")).is_none(), panic_is_caught()));
        assert_eq!((nested, panic_is_caught()), (Some((true, true)), false));
    }
}
