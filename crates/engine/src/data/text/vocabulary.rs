//! The vocabulary of a text: read from a file, found in the text, or trained on it.

use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer, TokenizerBuilder};

use super::super::{DataError, files};
use super::cache::Cache;
use super::codec::{END_CHARACTER, END_NAMES, TextCodec};
use super::documents::{Documents, Piece, fingerprint};
use super::tokens::Tokens;
use crate::team::Team;

/// The most different characters of a text whose tokens are characters unless a job says otherwise.
const MOST_CHARACTERS: usize = 256;
/// The sizes of a vocabulary that is trained: all bytes, the end of a document and something new, up to more than anyone has.
const TRAINED_SIZES: std::ops::RangeInclusive<usize> = 258..=1 << 20;
/// How much text a vocabulary is trained on at most, in bytes; of more, pieces spread over all of it. It must fit into memory.
const MOST_TRAINED: u64 = 256 << 20;
/// The name a tokenizer goes by in a folder.
const TOKENIZER_FILE: &str = "tokenizer.json";

/// The codec for the training documents of the data in this file or folder.
///
/// `test_share` of them is held back for the test; a vocabulary is not trained on that.
pub(crate) fn choose(
    tokens: Option<&Tokens>,
    data: &Path,
    documents: &dyn Documents,
    test_share: f64,
    cache: &Cache,
) -> Result<TextCodec, DataError> {
    match tokens {
        Some(Tokens::Bytes) => Ok(TextCodec::bytes()),
        Some(Tokens::Characters) => stored("characters", documents, cache, || characters(documents, None)),
        Some(Tokens::File(path)) => {
            let folder = if data.is_dir() { data } else { data.parent().unwrap_or(data) };
            let inside = folder.join(path);
            if !path.is_file() && inside.is_file() { read(&inside) } else { read(path) }
        }
        Some(&Tokens::Train(n_tokens)) if !TRAINED_SIZES.contains(&n_tokens) => {
            let (low, high) = (TRAINED_SIZES.start(), TRAINED_SIZES.end());
            Err(DataError::Setting(format!("`tokens` trains {n_tokens} tokens; {low} to {high} can be trained")))
        }
        Some(&Tokens::Train(n_tokens)) => {
            let train = || train(n_tokens, documents, test_share);
            stored(&format!("tokenizer-{n_tokens}-{test_share}"), documents, cache, train)
        }
        None if data.join(TOKENIZER_FILE).is_file() => read(&data.join(TOKENIZER_FILE)),
        None => stored("auto", documents, cache, || characters(documents, Some(MOST_CHARACTERS))),
    }
}

fn read(path: &Path) -> Result<TextCodec, DataError> {
    TextCodec::tokenizer(path, &files::read(path)?)
}

/// What was made of the documents before, else what is made now.
fn stored(
    how: &str,
    documents: &dyn Documents,
    cache: &Cache,
    make: impl Fn() -> Result<TextCodec, DataError>,
) -> Result<TextCodec, DataError> {
    let name = format!("vocabulary-{}.json", fingerprint(documents.files(), &[documents.how(), how])?);
    let json = cache.text(&name, |json| TextCodec::from_json(json).is_ok(), || Ok(make()?.to_json()))?;
    TextCodec::from_json(&json)
}

/// The characters of a text; bytes if they are more than `most`.
fn characters(documents: &dyn Documents, most: Option<usize>) -> Result<TextCodec, DataError> {
    // A mark for each character that there can be: a set would take much longer for each character of a long text.
    let mut seen = vec![false; u32::from(char::MAX) as usize + 1];
    let mut n_seen = 0;
    let mut see = |character: char| {
        let seen = &mut seen[u32::from(character) as usize];
        n_seen += usize::from(!*seen);
        *seen = true;
        n_seen
    };
    let is_too_many = |n_seen: usize| most.is_some_and(|most| n_seen > most);
    documents.visit(&mut |piece| {
        let n_seen = match piece {
            Piece::Boundary => see(END_CHARACTER),
            Piece::Text(_, text) => text.chars().fold(0, |_, character| see(character)),
        };
        Ok(if is_too_many(n_seen) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if is_too_many(n_seen) {
        return Ok(TextCodec::bytes());
    }
    let all = (0..).zip(&seen).filter(|(_, seen)| **seen);
    TextCodec::characters(all.filter_map(|(code, _)| char::from_u32(code))).map_err(|_| empty(documents))
}

pub(crate) fn empty(documents: &dyn Documents) -> DataError {
    let path = documents.files().first().map_or(Path::new("the text"), PathBuf::as_path);
    DataError::malformed(path, "holds no text")
}

/// Trains a byte-pair encoding on the beginning of the text, as GPT-2's was: any text can be expressed in its tokens.
fn train(n_tokens: usize, documents: &dyn Documents, test_share: f64) -> Result<TextCodec, DataError> {
    let mut n_bytes = 0;
    documents.visit(&mut |piece| {
        if let Piece::Text(_, text) = piece {
            n_bytes += text.len() as u64;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if n_bytes == 0 {
        return Err(empty(documents));
    }
    let n_bytes = (n_bytes as f64 * (1.0 - test_share)).ceil() as u64;
    let stride = n_bytes.div_ceil(MOST_TRAINED).max(1) as usize;
    let (mut pieces, mut n_read, mut index) = (Vec::new(), 0, 0);
    documents.visit(&mut |piece| {
        if let Piece::Text(_, text) = piece {
            let left = (n_bytes - n_read).min(text.len() as u64);
            let end = (0..=left as usize).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
            if index % stride == 0 {
                pieces.push(text[..end].to_owned());
            }
            n_read += left;
            index += 1;
        }
        Ok(if n_read == n_bytes { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    train_on(pieces, n_tokens).map_err(|error| DataError::Setting(format!("no tokenizer can be trained: {error}")))
}

fn train_on(pieces: Vec<String>, n_tokens: usize) -> Result<TextCodec, Box<dyn std::error::Error + Send + Sync>> {
    let byte_level = ByteLevel::new(false, false, true);
    let mut trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(n_tokens)
        .min_frequency(2)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(vec![AddedToken::from(END_NAMES[0], true)])
        .build();
    let mut tokenizer = TokenizerBuilder::<BPE, tokenizers::NormalizerWrapper, _, ByteLevel, _>::new()
        .with_model(BPE::default())
        .with_pre_tokenizer(Some(byte_level))
        .with_decoder(Some(byte_level))
        .build()?;
    let team = Team::new(available_parallelism().map_or(1, NonZero::get))?;
    team.install(|| tokenizer.train(&mut trainer, pieces.into_iter()).map(|_| ()))?;
    // Stored and read, since a tokenizer that was read may have any model.
    let tokenizer = Tokenizer::from_bytes(tokenizer.to_string(false)?)?;
    Ok(TextCodec::with_tokenizer(tokenizer)?)
}

#[cfg(test)]
mod tests {
    use super::choose;
    use crate::data::DataError;
    use crate::data::text::cache::Cache;
    use crate::data::text::codec::TextCodec;
    use crate::data::text::documents::PlainText;
    use crate::data::text::tokens::Tokens;

    fn codec(texts: &[&str], tokens: Option<&Tokens>) -> Result<TextCodec, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = |index: usize| folder.path().join(format!("{index}.txt"));
        texts.iter().enumerate().for_each(|(index, text)| std::fs::write(path(index), text).unwrap());
        let paths: Vec<_> = (0..texts.len()).map(path).collect();
        let choose = || choose(tokens, folder.path(), &PlainText(&paths), 0.1, &Cache::beside(folder.path()));
        let codec = choose()?;
        assert_eq!(choose()?.to_json(), codec.to_json(), "what was kept is the same");
        Ok(codec)
    }

    #[test]
    fn few_characters_are_tokens_and_many_are_not() {
        let few = codec(&["to be", "or not"], None).unwrap();
        assert_eq!(few.vocabulary().join(""), "\0 benort");
        assert_eq!(few.end_of_document(), Some(0));
        assert_eq!(codec(&["aba"], None).unwrap().vocabulary(), ["a", "b"]);
        let many: String = ('一'..).take(300).collect();
        assert_eq!(codec(&[&many], None).unwrap().n_tokens(), 256);
        assert_eq!(codec(&[&many], Some(&Tokens::Characters)).unwrap().n_tokens(), 300);
        assert!(codec(&[""], None).unwrap_err().to_string().contains("0.txt: holds no text"));
    }

    #[test]
    fn a_vocabulary_is_trained_the_same_each_time() {
        let text = "the cat sat on the mat, the rat sat on the cat; ".repeat(50);
        // The end is held back: what occurs only there gets no token of its own.
        let text = text + &"zebra ".repeat(20);
        let train = || codec(&[&text], Some(&Tokens::Train(290))).unwrap();
        let trained = train();
        assert_eq!(trained.to_json(), train().to_json());
        assert!(trained.n_tokens() > 257 && trained.n_tokens() <= 290);
        assert!(trained.vocabulary().contains(&"Ġthe".to_owned()) && !trained.vocabulary().join(" ").contains("zeb"));
        let tokens = trained.encode("the cat, 你好\n").unwrap();
        assert!(tokens.len() < 14);
        assert_eq!(trained.decode(&tokens), "the cat, 你好\n");
        assert_eq!(trained.decode(&tokens[..tokens.len() - 3]), "the cat, 你\u{fffd}", "half a letter");
        assert_eq!(trained.end_of_document(), Some(0));
        for n_tokens in [0, 257, usize::MAX] {
            assert!(
                codec(&[&text], Some(&Tokens::Train(n_tokens))).unwrap_err().to_string().contains("can be trained")
            );
        }
    }

    #[test]
    fn a_tokenizer_lies_in_the_folder_or_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "the cat sat on the mat ".repeat(9)).unwrap();
        let (paths, cache) = ([path], Cache::beside(folder.path()));
        let choose = |tokens: Option<&Tokens>| choose(tokens, folder.path(), &PlainText(&paths), 0.1, &cache);
        let json =
            serde_json::from_str::<serde_json::Value>(&choose(Some(&Tokens::Train(260))).unwrap().to_json()).unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), json["tokenizer"].to_string()).unwrap();
        assert_eq!(choose(None).unwrap().n_tokens(), 260);
        assert_eq!(choose(Some(&Tokens::File("tokenizer.json".into()))).unwrap().n_tokens(), 260);
        assert!(choose(Some(&Tokens::File("none.json".into()))).unwrap_err().to_string().contains("none.json"));
    }
}
