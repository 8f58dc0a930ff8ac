//! Sites: what peers that reach each other fast call the place where they are.

use nettorrent_engine::rng::mix;

/// The number of the site of this name, the same at all peers that give the name.
pub fn site_number(name: &str) -> u64 {
    // None is for those who give no name.
    name.bytes().fold(1, |hash, byte| mix(hash ^ u64::from(byte))).max(1)
}

#[cfg(test)]
mod tests {
    use super::site_number;

    #[test]
    fn names_are_told_apart() {
        assert_eq!(site_number("home"), site_number("home"));
        let mut numbers = ["", "home", "Home", "office", "home "].map(site_number);
        numbers.sort_unstable();
        assert!(numbers[0] > 0 && numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
