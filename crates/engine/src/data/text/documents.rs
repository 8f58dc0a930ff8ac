//! Texts that are read in pieces, however long they are.

use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};

use super::super::DataError;
use super::super::files::{self, Mapped};

/// About how long a piece is, in bytes. Pieces end with a line where there is one, so tokens seldom would have crossed the end.
const PIECE_LEN: usize = 1 << 16;
/// The mark that some editors put before UTF-8 text. It is no part of the text.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A part of a text.
pub(crate) enum Piece<'a> {
    /// One document ends and another begins.
    Boundary,
    /// Some text of a file.
    Text(&'a Path, &'a str),
}

/// What is done with each piece; it may end the reading.
pub(crate) type Visit<'a> = dyn FnMut(Piece<'_>) -> Result<ControlFlow<()>, DataError> + 'a;

/// Where text comes from.
pub(crate) trait Documents: Sync {
    /// The files it is read from.
    fn files(&self) -> &[PathBuf];
    /// How they are read, where there are several ways.
    fn how(&self) -> &str {
        ""
    }
    /// The file whose bytes are the text, if it is one and nothing is to be done to it.
    fn plain_bytes(&self) -> Option<&Path> {
        None
    }
    /// Reads all of it, in order.
    fn visit(&self, visit: &mut Visit<'_>) -> Result<(), DataError>;
}

/// Files of plain text, each a document.
pub(crate) struct PlainText<'a>(pub(crate) &'a [PathBuf]);

impl Documents for PlainText<'_> {
    fn files(&self) -> &[PathBuf] {
        self.0
    }

    fn plain_bytes(&self) -> Option<&Path> {
        match self.0 {
            [only] => Some(only),
            _ => None,
        }
    }

    fn visit(&self, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut is_first = true;
        for path in self.0 {
            let file = Mapped::open(path)?;
            let text = file.bytes()?;
            let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
            let mut visit_checked = |piece: Piece<'_>| -> Result<ControlFlow<()>, DataError> {
                let flow = visit(piece)?;
                // What is made of a long text takes its time.
                file.check()?;
                Ok(flow)
            };
            if visit_document(path, text, &mut is_first, &mut visit_checked)?.is_break() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Hands over one of several documents: its text, after a boundary unless it is the first.
pub(crate) fn visit_document(
    path: &Path,
    text: &[u8],
    is_first: &mut bool,
    visit: &mut Visit<'_>,
) -> Result<ControlFlow<()>, DataError> {
    if !std::mem::take(is_first) && visit(Piece::Boundary)?.is_break() {
        return Ok(ControlFlow::Break(()));
    }
    visit_text(path, text, visit)
}

/// Hands over a file's text in pieces that are UTF-8 each.
fn visit_text(path: &Path, text: &[u8], visit: &mut Visit<'_>) -> Result<ControlFlow<()>, DataError> {
    let mut start = 0;
    while start < text.len() {
        let end = piece_end(text, start);
        if visit(Piece::Text(path, utf8(path, text, start..end)?))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        start = end;
    }
    Ok(ControlFlow::Continue(()))
}

/// A part of a file's bytes, as the text that it is.
pub(super) fn utf8<'a>(path: &Path, bytes: &'a [u8], part: Range<usize>) -> Result<&'a str, DataError> {
    let start = part.start;
    std::str::from_utf8(&bytes[part]).map_err(|error| not_utf8(path, bytes, start + error.valid_up_to()))
}

/// Where the piece that begins here ends: after the last line that fits, else before a letter.
fn piece_end(text: &[u8], start: usize) -> usize {
    let end = (start + PIECE_LEN).min(text.len());
    if end == text.len() {
        return end;
    }
    if let Some(newline) = text[start..end].iter().rposition(|&byte| byte == b'\n') {
        return start + newline + 1;
    }
    // A letter has at most three more bytes after its first, and those begin with the bits 10.
    (end - 3..=end).rev().find(|&end| text[end] & 0xc0 != 0x80).unwrap_or(end)
}

fn not_utf8(path: &Path, text: &[u8], at: usize) -> DataError {
    let line = 1 + text[..at].iter().filter(|&&byte| byte == b'\n').count();
    DataError::malformed(
        path,
        format!(
            "line {line} is not UTF-8 text (byte {at}); save it as UTF-8, or take it as it is with `tokens = \"bytes\"`"
        ),
    )
}

/// A name for what files hold and what is made of them with `how`, which changes when a file does.
pub(crate) fn fingerprint(paths: &[PathBuf], how: &[&str]) -> Result<String, DataError> {
    let mut hash = Context::new(&SHA256);
    let mut add = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|source| DataError::read(path, source))?;
        let modified = metadata.modified().map_err(|source| DataError::read(path, source))?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        add(files::name_of(path).as_bytes());
        add(&metadata.len().to_le_bytes());
        add(&since.as_nanos().to_le_bytes());
    }
    how.iter().for_each(|how| add(how.as_bytes()));
    Ok(hash.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::{Documents, PIECE_LEN, Piece, PlainText, fingerprint};
    use crate::data::DataError;

    fn read(texts: &[&[u8]]) -> Result<(String, usize), DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = |index: usize| folder.path().join(format!("{index}.txt"));
        texts.iter().enumerate().for_each(|(index, text)| std::fs::write(path(index), text).unwrap());
        let paths: Vec<_> = (0..texts.len()).map(path).collect();
        let (mut all, mut n_pieces) = (String::new(), 0);
        PlainText(&paths).visit(&mut |piece| {
            n_pieces += 1;
            match piece {
                Piece::Boundary => all.push('|'),
                Piece::Text(_, text) => all.push_str(text),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok((all, n_pieces))
    }

    #[test]
    fn files_are_read_whole_and_in_pieces() {
        assert_eq!(read(&[b"\xef\xbb\xbfone\n", b"", b"two"]).unwrap().0, "one\n||two");
        for letter in ["a", "é", "好", "𝄞", "line of text\n"] {
            for shift in 0..4 {
                let long = "x".repeat(shift) + &letter.repeat(3 * PIECE_LEN / letter.len());
                let (text, n_pieces) = read(&[long.as_bytes()]).unwrap();
                assert!(text == long && (3..=5).contains(&n_pieces), "{letter}, {shift}");
            }
        }
    }

    #[test]
    fn what_is_no_text_is_named_with_its_place() {
        let error = read(&[b"one\ntwo\nthr\xffee"]).unwrap_err().to_string();
        assert!(error.contains("0.txt: line 3 is not UTF-8 text (byte 11)"), "{error}");
        let binary = vec![0x80; 3 * PIECE_LEN];
        assert!(read(&[&binary]).unwrap_err().to_string().contains("byte 0"));
    }

    #[test]
    fn another_text_has_another_fingerprint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let print = |text: &str, how: &str| {
            std::fs::write(&path, text).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
            fingerprint(std::slice::from_ref(&path), &[how]).unwrap()
        };
        assert_eq!(print("one", "x"), print("two", "x"), "length and time decide, for reading all would take long");
        assert_ne!(print("one", "x"), print("three", "x"));
        assert_ne!(print("one", "x"), print("one", "y"));
    }
}
