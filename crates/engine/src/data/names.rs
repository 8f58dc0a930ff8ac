//! Names: the answer to an unknown one, and the order of those of classes.

use crate::nearest::nearest;

/// A sentence that refuses `given` and helps to the right name.
pub(crate) fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let mut answer = format!("unknown {what} `{given}`; known: {}", known.join(", "));
    if let Some(name) = nearest(given, known) {
        answer.push_str(&format!(". Did you mean `{name}`?"));
    }
    answer
}

/// Sorts the names of classes: by value where all are whole numbers, otherwise by letter.
pub(crate) fn sort_classes(classes: &mut [String]) {
    let numbers: Option<Vec<i64>> = classes.iter().map(|name| name.parse().ok()).collect();
    match numbers {
        Some(_) => classes.sort_by_key(|name| (name.parse::<i64>().unwrap_or_default(), name.clone())),
        None => classes.sort(),
    }
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
