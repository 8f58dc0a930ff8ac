//! Sites: what peers that reach each other fast call the place where they are.

use nettorrent_engine::rng::mix;

/// The longest that the name of a site may be, in letters.
const MOST_LETTERS: usize = 64;

/// Refuses what can be no name of a site, and says what to do.
pub fn check_site_name(name: &str) -> Result<(), &'static str> {
    if name.trim().is_empty() {
        // As with a variable that is not set: all who leave it so would be at one site.
        return Err("the name is empty: name the site, or leave the option out");
    }
    if name.chars().any(char::is_control) {
        return Err("the name has control characters in it: choose another");
    }
    if name.chars().count() > MOST_LETTERS {
        return Err("the name is longer than 64 letters: choose a shorter one");
    }
    Ok(())
}

/// The number of the site of this name, the same at all peers that give the name.
pub fn site_number(name: &str) -> u64 {
    // None is for those who give no name.
    name.bytes().fold(1, |hash, byte| mix(hash ^ u64::from(byte))).max(1)
}

#[cfg(test)]
mod tests {
    use super::{MOST_LETTERS, check_site_name, site_number};

    #[test]
    fn names_are_told_apart() {
        assert_eq!(site_number("home"), site_number("home"));
        let mut numbers = ["", "home", "Home", "office", "home "].map(site_number);
        numbers.sort_unstable();
        assert!(numbers[0] > 0 && numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let longest = "é".repeat(MOST_LETTERS);
        assert!(["home", "Room 3", "東京", longest.as_str()].into_iter().all(|name| check_site_name(name).is_ok()));
        let longer = format!("{longest}é");
        for (name, answer) in
            [("", "is empty"), (" ", "is empty"), ("a\nb", "control"), (longer.as_str(), "longer than 64")]
        {
            assert!(check_site_name(name).is_err_and(|why| why.contains(answer)), "{name:?}");
        }
    }
}
