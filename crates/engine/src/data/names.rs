//! The answer to an unknown name: the list of known ones, and the nearest.

use crate::nearest::nearest;

/// A sentence that refuses `given` and helps to the right name.
pub(crate) fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let mut answer = format!("unknown {what} `{given}`; known: {}", known.join(", "));
    if let Some(name) = nearest(given, known) {
        answer.push_str(&format!(". Did you mean `{name}`?"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::unknown;

    #[test]
    fn the_nearest_is_offered_only_when_it_is_near() {
        let known = ["cifar10", "csv", "images"];
        assert_eq!(
            unknown("format", "image", &known),
            "unknown format `image`; known: cifar10, csv, images. Did you mean `images`?"
        );
        assert!(!unknown("format", "parquet", &known).contains("Did you mean"));
    }
}
