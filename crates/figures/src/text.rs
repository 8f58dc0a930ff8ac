//! Text in a figure: about how wide it is, how it is cut to a width, and how it is escaped.

/// About how wide text is. Fonts differ; this is on the safe side for the usual ones.
pub(crate) fn text_width(text: &str, size: f64) -> f64 {
    let ems: f64 = text
        .chars()
        .map(|character| match character {
            'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '(' | ')' => 0.34,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.88,
            character if character.is_ascii_uppercase() => 0.68,
            character if (character as u32) > 0x2e80 => 1.0,
            _ => 0.57,
        })
        .sum();
    ems * size
}

/// The text, or its beginning and an ellipsis where it is too wide.
pub(crate) fn clipped(text: &str, size: f64, width: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_owned();
    }
    let mut short: String = text.to_owned();
    while !short.is_empty() && text_width(&short, size) + size > width {
        short.pop();
    }
    format!("{}…", short.trim_end())
}

/// The text on as many lines as it takes, up to `most`; the last is clipped.
pub(crate) fn wrapped(text: &str, size: f64, width: f64, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = lines.len() == most;
        match lines.last_mut() {
            Some(line) if is_last || text_width(&format!("{line} {word}"), size) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| clipped(line, size, width)).collect()
}

/// Text as it stands in SVG: nothing in it is a tag, and nothing ends an attribute. XML has no place for control characters,
/// not even escaped.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{clipped, text_width, wrapped};

    #[test]
    fn long_text_is_wrapped_and_then_clipped() {
        assert_eq!(clipped("short", 14.0, 100.0), "short");
        let lines = wrapped("one two three four five six seven eight", 14.0, 90.0, 2);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with('…'), "{lines:?}");
        assert!(lines.iter().all(|line| text_width(line, 14.0) <= 90.0 + 14.0));
    }
}
