//! Text to be continued: samples are windows of tokens, and what is asked for is the next token at each position.
//!
//! Windows follow each other without overlap. Tokens are read from disk as they are asked for, so a set may be larger than the
//! memory.

pub(crate) mod cache;
pub(crate) mod codec;
mod continued;
pub(crate) mod documents;
mod store;
pub(crate) mod tokens;
pub(crate) mod vocabulary;

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::parts::{self, Parts};
use super::{Batch, DataError, Dataset, IGNORED, OutsideSample, Split, TargetKind, Targets, Tone, check_indices};
use cache::Cache;
use codec::TextCodec;
use documents::{Documents, PlainText};
use store::Store;
use tokens::Tokens;

/// How many tokens a sample has unless it is said otherwise.
const DEFAULT_LENGTH: usize = 256;
/// The most that a sample can have.
const MAX_LENGTH: usize = 1 << 20;
/// How files of plain text are called.
pub(crate) const EXTENSIONS: [&str; 1] = ["txt"];

/// How a text becomes samples.
pub(crate) struct TextOptions<'a> {
    /// What a token is.
    pub(crate) tokens: Option<&'a Tokens>,
    /// How many tokens a sample has.
    pub(crate) length: Option<usize>,
    /// The share of the text that is held back where there is no test part.
    pub(crate) test_fraction: f64,
}

/// Opens one part of a file or folder of plain text.
pub(crate) fn open(path: &Path, options: &TextOptions<'_>, split: Split) -> Result<TextSet, DataError> {
    let parts = parts::find(path, &EXTENSIONS)?;
    open_documents(path, &parts, options, split, |files| Box::new(PlainText(files)))
}

/// Opens one part of documents, which are read from files by `read`.
pub(crate) fn open_documents<'a>(
    path: &Path,
    parts: &'a Parts,
    options: &TextOptions<'_>,
    split: Split,
    read: impl Fn(&'a [PathBuf]) -> Box<dyn Documents + 'a>,
) -> Result<TextSet, DataError> {
    let length = options.length.unwrap_or(DEFAULT_LENGTH);
    if length == 0 || length > MAX_LENGTH {
        return Err(DataError::Setting(format!("`length` is {length}; a sample has 1 to {MAX_LENGTH} tokens")));
    }
    let holds_back = parts.test.is_empty();
    let test_share = if holds_back { options.test_fraction } else { 0.0 };
    if holds_back && !(test_share > 0.0 && test_share < 1.0) {
        let problem = format!("`test_fraction` is {test_share}; it must lie between 0 and 1, as 0.1 does");
        return Err(DataError::Setting(problem));
    }
    let (cache, train) = (Cache::beside(path), read(&parts.train));
    let codec = vocabulary::choose(options.tokens, path, &*train, test_share, &cache)?;
    let documents = if split == Split::Train || holds_back { train } else { read(&parts.test) };
    let store = match documents.plain_bytes() {
        Some(file) if codec.is_bytes() => Store::of_bytes(file)?,
        _ => Store::of_documents(&*documents, &codec, &cache)?,
    };
    let n_train = store.len() - (store.len() as f64 * test_share).round() as usize;
    let range = match split {
        Split::Test if holds_back => n_train..store.len(),
        Split::Train if holds_back => 0..n_train,
        Split::Train | Split::Test => 0..store.len(),
    };
    if range.len() < 2 {
        if store.len() == 0 {
            return Err(vocabulary::empty(&*documents));
        }
        return Err(DataError::malformed(
            &documents.files()[0],
            format!("holds {} tokens, too few to train on some and test with others", store.len()),
        ));
    }
    Ok(TextSet::new(store, range, length, codec, documents.files()[0].clone()))
}

/// Windows of a text.
pub(crate) struct TextSet {
    store: Store,
    /// The tokens of this part.
    range: Range<usize>,
    shape: [usize; 1],
    codec: TextCodec,
    vocabulary: Vec<String>,
    labels: Vec<u32>,
    path: PathBuf,
}

impl TextSet {
    fn new(store: Store, range: Range<usize>, length: usize, codec: TextCodec, path: PathBuf) -> Self {
        // The last token of a window is asked for and belongs to the next window as well. What is left over is dropped, unless
        // there would be nothing.
        let n_windows = ((range.len() - 1) / length).max(1);
        let vocabulary = codec.vocabulary();
        Self { store, range, shape: [length], codec, vocabulary, labels: vec![0; n_windows], path }
    }

    /// The tokens of a window, and the one after it if there is one.
    fn window(&self, index: usize) -> Range<usize> {
        let start = self.range.start + index * self.shape[0];
        start..(start + self.shape[0] + 1).min(self.range.end)
    }
}

impl Dataset for TextSet {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn classes(&self) -> &[String] {
        &self.vocabulary
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn target(&self) -> TargetKind {
        TargetKind::Tokens
    }

    fn tokenizer(&self) -> Option<&TextCodec> {
        Some(&self.codec)
    }

    fn batch(&self, indices: &[usize]) -> Result<Batch, DataError> {
        check_indices(indices, self.labels.len())?;
        let [length] = self.shape;
        let mut inputs = vec![0.0; indices.len() * length];
        let mut targets = vec![IGNORED; indices.len() * length];
        for (row, &index) in indices.iter().enumerate() {
            let tokens = self.store.read(self.window(index), self.vocabulary.len())?;
            let (inputs, targets) = (&mut inputs[row * length..], &mut targets[row * length..]);
            for (place, pair) in tokens.windows(2).enumerate() {
                inputs[place] = pair[0] as f32;
                targets[place] = pair[1];
            }
        }
        Ok(Batch { n: indices.len(), inputs, targets: Targets::Classes(targets) })
    }

    fn prefetch(&self, indices: &[usize]) {
        let windows = indices.iter().filter(|&&index| index < self.labels.len()).map(|&index| self.window(index));
        windows.for_each(|window| self.store.prefetch(window));
    }

    fn read_samples(&self, path: &Path, tone: Tone) -> Result<Vec<OutsideSample>, DataError> {
        tone.check_no_picture(path)?;
        Ok(vec![continued::read_end(path, &self.codec, self.shape[0])?])
    }

    fn origin(&self, index: usize) -> Option<String> {
        let Range { start, end } = self.window(index);
        (index < self.labels.len()).then(|| format!("{}, tokens {start} to {end}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{TextOptions, TextSet, open};
    use crate::data::text::tokens::Tokens;
    use crate::data::{DataError, Dataset, IGNORED, Split, TargetKind};

    fn options(length: usize, tokens: Option<&Tokens>) -> TextOptions<'_> {
        TextOptions { tokens, length: Some(length), test_fraction: 0.1 }
    }

    fn texts(set: &TextSet) -> Vec<(String, String)> {
        let codec = set.tokenizer().unwrap();
        let batch = set.batch(&(0..set.len()).collect::<Vec<usize>>()).unwrap();
        let inputs: Vec<u32> = batch.inputs.iter().map(|&token| token as u32).collect();
        let both = inputs.chunks(set.shape()[0]).zip(batch.classes().chunks(set.shape()[0]));
        both.map(|(inputs, targets)| (codec.decode(inputs), codec.decode(targets))).collect()
    }

    fn both(path: &Path, options: &TextOptions<'_>) -> Result<[TextSet; 2], DataError> {
        Ok([open(path, options, Split::Train)?, open(path, options, Split::Test)?])
    }

    #[test]
    fn windows_follow_each_other_and_the_end_is_held_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alphabet.txt");
        std::fs::write(&path, "abcdefghijklmnopqrstuvwxyz0123").unwrap();
        for tokens in [None, Some(&Tokens::Bytes), Some(&Tokens::Characters), Some(&Tokens::Train(300))] {
            let [train, test] = both(&path, &options(4, tokens)).unwrap();
            assert_eq!((train.shape(), train.target(), train.len()), ([4].as_slice(), TargetKind::Tokens, 6));
            let pairs = texts(&train);
            assert_eq!(pairs[1], ("efgh".to_owned(), "fghi".to_owned()));
            assert_eq!(pairs[5].1, "vwxy", "z has no window of its own");
            assert_eq!(train.classes().len(), train.tokenizer().unwrap().n_tokens());
            // Three letters for a window of four: the rest is not asked for.
            let batch = test.batch(&[0]).unwrap();
            assert_eq!((test.len(), &batch.classes()[2..]), (1, [IGNORED, IGNORED].as_slice()));
            let codec = test.tokenizer().unwrap();
            assert_eq!(codec.decode(&batch.classes()[..2]), "23");
            assert_eq!((codec.decode(&[batch.inputs[0] as u32]), batch.inputs[3]), ("1".to_owned(), 0.0));
            assert!(train.origin(1).unwrap().ends_with("alphabet.txt, tokens 4 to 9"));
            assert!(train.origin(6).is_none() && train.batch(&[6]).is_err());
            let again = test.batch(&[0]).unwrap();
            [&train, &test].into_iter().for_each(|set| set.prefetch(&[0, 6, usize::MAX]));
            assert_eq!(test.batch(&[0]).unwrap(), again);
        }
    }

    #[test]
    fn documents_are_kept_apart() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("train/a.txt", "one"), ("train/b.txt", "two!"), ("val/c.txt", "no")] {
            std::fs::create_dir_all(folder.path().join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        for tokens in [None, Some(&Tokens::Bytes)] {
            let [train, test] = both(folder.path(), &options(7, tokens)).unwrap();
            assert_eq!(texts(&train), [("one\0two".to_owned(), "ne\0two!".to_owned())]);
            assert_eq!(test.len(), 1);
        }
        std::fs::write(folder.path().join("val/c.txt"), "xyz").unwrap();
        let error = both(folder.path(), &options(7, None)).err().unwrap().to_string();
        assert!(error.contains("c.txt: the character `x`"), "{error}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        for (text, length, answer) in [
            ("", 4, "holds no text"),
            ("a", 4, "too few"),
            ("abc", 4, "too few"),
            ("abcdef", 0, "1 to 1048576 tokens"),
            ("abcdef", usize::MAX, "1 to 1048576 tokens"),
        ] {
            std::fs::write(&path, text).unwrap();
            for tokens in [None, Some(&Tokens::Bytes), Some(&Tokens::Characters)] {
                let error = both(&path, &options(length, tokens)).err().unwrap().to_string();
                assert!(error.contains(answer), "{error}");
            }
        }
        std::fs::write(&path, b"caf\xe9 au lait, and more of it").unwrap();
        assert!(both(&path, &options(4, None)).err().unwrap().to_string().contains("not UTF-8"));
        assert!(both(&path, &options(2, Some(&Tokens::Bytes))).is_ok(), "bytes are bytes");
        let all = TextOptions { test_fraction: 1.0, ..options(2, None) };
        assert!(open(&path, &all, Split::Train).err().unwrap().to_string().contains("between 0 and 1"));
    }
}
