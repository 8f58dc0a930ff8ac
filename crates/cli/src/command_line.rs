//! Commands as people can copy them into a shell.

/// The words as one line; those that a shell would take for something else are quoted.
pub(crate) fn command_line(words: impl IntoIterator<Item = String>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

fn quoted(word: String) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,@+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::command_line;

    #[test]
    fn a_shell_would_read_the_same_words() {
        let words = ["study", "a b.toml", "--set", "optimizer.lr=0.1", "--only", "strategy=one 'x'", ""];
        let line = command_line(words.map(str::to_owned));
        assert_eq!(line, r"study 'a b.toml' --set optimizer.lr=0.1 --only 'strategy=one '\''x'\''' ''");
    }
}
