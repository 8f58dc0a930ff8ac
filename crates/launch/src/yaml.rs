//! Writes JSON's values as YAML that people can read.

use std::fmt::Write;

use serde_json::Value;

/// A document.
pub(crate) fn document(value: &Value) -> String {
    let mut text = String::new();
    write_value(&mut text, value, 0);
    text.trim_start_matches('\n').to_owned()
}

/// Writes what comes behind a key's colon or a list's dash, to the line's end.
fn write_value(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) if !map.is_empty() => {
            text.push('\n');
            for (key, value) in map {
                let _ = write!(text, "{indent}{}:", scalar(key));
                write_value(text, value, depth + 1);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            text.push('\n');
            for value in list {
                let mut item = String::new();
                write_value(&mut item, value, depth + 1);
                // Its first line is that of the dash.
                let item = item.trim_start_matches('\n').trim_start();
                let _ = writeln!(text, "{indent}- {}", item.trim_end_matches('\n'));
            }
        }
        Value::String(lines) if is_block(lines) => {
            // Without a line's end behind the last line, if it has none.
            let _ = writeln!(text, " |{}", if lines.ends_with('\n') { "" } else { "-" });
            for line in lines.trim_end_matches('\n').split('\n') {
                let _ = writeln!(text, "{}", format!("{indent}{line}").trim_end());
            }
        }
        Value::String(word) => _ = writeln!(text, " {}", scalar(word)),
        other => _ = writeln!(text, " {other}"),
    }
}

/// Texts of several lines that a block gives back as they are.
fn is_block(text: &str) -> bool {
    let is_plain = |line: &str| !line.ends_with(' ') && !line.contains(|letter: char| letter.is_control());
    let first = text.lines().next().unwrap_or_default();
    text.contains('\n')
        && !text.ends_with("\n\n")
        && !first.is_empty()
        && !first.starts_with(' ')
        && text.split('\n').all(is_plain)
}

/// A word that nobody takes for something else stays as it is; others are written as JSON, which is YAML, too.
fn scalar(word: &str) -> String {
    let is_plain = word.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter));
    let is_word = word.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let means_more = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"].contains(&&*word.to_lowercase());
    if is_plain && is_word && !means_more { word.to_owned() } else { Value::from(word).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::document;

    #[test]
    fn values_are_written_as_people_would() {
        let value = json!({
            "name": "swarm-0", "answer": "no", "port": 7800, "time": "1:30", "empty": {}, "list": [{"a": 1, "b": ["x"]}, "y z"],
            "script": "set -eu\n\nif true; then\n    echo\nfi\n", "end": "a\nb",
        });
        let expected = "answer: \"no\"\nempty: {}\nend: |-\n  a\n  b\nlist:\n  - a: 1\n    b:\n      - x\n  - \"y z\"\nname: swarm-0\nport: \
                        7800\nscript: |\n  set -eu\n\n  if true; then\n      echo\n  fi\ntime: \"1:30\"\n";
        assert_eq!(document(&value), expected);
    }
}
