//! The known name nearest to one that was mistyped.

/// The nearest of these names, if one is near enough to be meant.
///
/// ```
/// use nettorrent_engine::nearest::nearest;
/// assert_eq!(nearest("momentun", &["lr", "momentum"]), Some("momentum"));
/// assert_eq!(nearest("zebra", &["lr", "momentum"]), None);
/// ```
pub fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase());
    let best = known.iter().copied().min_by_key(|candidate| distance(candidate))?;
    let longest = name.chars().count().max(best.chars().count());
    (distance(best) * 3 <= longest + 2).then_some(best)
}
