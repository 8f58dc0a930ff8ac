//! The end of a text that is to be continued.

use std::path::Path;

use super::super::outside::OutsideSample;
use super::super::parts::has_extension;
use super::super::{DataError, files};
use super::codec::TextCodec;
use super::documents::{BYTE_ORDER_MARK, utf8};

/// Files of documents, of which none is the one to be continued.
const DOCUMENTS: [&str; 3] = ["jsonl", "ndjson", "parquet"];

/// The last tokens of a file of plain text, at most `length`; shorter texts are filled up behind their end.
pub(super) fn read_end(path: &Path, codec: &TextCodec, length: usize) -> Result<OutsideSample, DataError> {
    let malformed = |problem: String| DataError::malformed(path, problem);
    if has_extension(path, &DOCUMENTS) {
        return Err(malformed(
            "holds documents; write the text that is to be continued to a file of plain text".to_owned(),
        ));
    }
    let bytes = files::read(path)?;
    let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
    let tokens = if codec.is_bytes() {
        text.iter().map(|&byte| u32::from(byte)).collect()
    } else {
        codec.try_encode(utf8(path, text, 0..text.len())?).map_err(malformed)?
    };
    let end = &tokens[tokens.len().saturating_sub(length)..];
    let Some(position) = end.len().checked_sub(1) else {
        return Err(malformed(
            "is empty; a model guesses what follows a text, so give it at least one token".to_owned(),
        ));
    };
    let mut inputs = vec![0.0; length];
    inputs.iter_mut().zip(end).for_each(|(input, &token)| *input = token as f32);
    Ok(OutsideSample { position: Some(position), ..OutsideSample::whole(inputs) })
}

#[cfg(test)]
mod tests {
    use super::read_end;
    use crate::data::TextCodec;

    #[test]
    fn the_last_tokens_are_taken_and_short_texts_filled_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        let letters = TextCodec::characters("abcd".chars()).unwrap();
        for (text, inputs, position) in
            [("abcd", vec![2.0, 3.0], 1), ("\u{feff}dc", vec![3.0, 2.0], 1), ("b", vec![1.0, 0.0], 0)]
        {
            std::fs::write(&path, text).unwrap();
            let sample = read_end(&path, &letters, 2).unwrap();
            assert_eq!((sample.inputs, sample.position, sample.line), (inputs, Some(position), None));
        }
        std::fs::write(&path, b"\xe9").unwrap();
        assert_eq!(read_end(&path, &TextCodec::bytes(), 2).unwrap().inputs, [233.0, 0.0]);
        for (text, answer) in
            [(&b""[..], "is empty"), (b"ax", "the character `x`"), (b"a\n\xe9", "line 2 is not UTF-8")]
        {
            std::fs::write(&path, text).unwrap();
            let error = read_end(&path, &letters, 2).unwrap_err().to_string();
            assert!(error.contains(answer) && error.contains("a.txt"), "{error}");
        }
        let error = read_end(&folder.path().join("a.jsonl"), &letters, 2).unwrap_err().to_string();
        assert!(error.contains("holds documents"), "{error}");
    }
}
