//! The answer to an unknown name: the list of known ones, and the nearest.

/// A sentence that refuses `given` and helps to the right name.
pub(crate) fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let mut answer = format!("unknown {what} `{given}`; known: {}", known.join(", "));
    let nearest = known.iter().map(|name| (strsim::damerau_levenshtein(given, name), name)).min();
    // Beyond a third of the letters the nearest is no longer a likely slip of the finger.
    if let Some((distance, name)) = nearest
        && distance * 3 <= name.len().max(3)
    {
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
