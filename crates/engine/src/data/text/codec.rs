//! Text as tokens and back: bytes, characters, or the words and parts of words of a tokenizer.json.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokenizers::Tokenizer;

use super::super::DataError;

/// The largest number of tokens: a sample holds them as floats, which are exact up to here.
pub(crate) const MAX_TOKENS: usize = 1 << 24;
/// The end of a document where tokens are bytes or characters; text hardly ever holds it.
pub(crate) const END_CHARACTER: char = '\0';
/// What tokenizers call the end of a document, in the order they are looked for.
pub(crate) const END_NAMES: [&str; 8] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|im_end|>", "[SEP]"];

/// Turns text into tokens and tokens into text. It needs no data, and can be stored.
///
/// ```
/// use nettorrent_engine::data::TextCodec;
/// let codec = TextCodec::characters("to be or not".chars())?;
/// let tokens = codec.encode("robot")?;
/// assert_eq!(TextCodec::from_json(&codec.to_json())?.decode(&tokens), "robot");
/// assert!(codec.encode("x").unwrap_err().to_string().contains("`x`"));
/// # Ok::<(), nettorrent_engine::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TextCodec(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Bytes,
    /// Sorted; a token is an index.
    Characters(Vec<char>),
    Tokenizer {
        tokenizer: Arc<Tokenizer>,
        n_tokens: usize,
        end: Option<u32>,
    },
}

/// A codec as it is written to a file.
#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Stored {
    Bytes,
    Characters { characters: String },
    Tokenizer { tokenizer: serde_json::Value },
}

impl TextCodec {
    /// A token for each byte.
    pub fn bytes() -> Self {
        Self(Kind::Bytes)
    }

    /// A token for each of these characters, sorted.
    pub fn characters(characters: impl IntoIterator<Item = char>) -> Result<Self, DataError> {
        let mut characters: Vec<char> = characters.into_iter().collect();
        characters.sort_unstable();
        characters.dedup();
        if characters.is_empty() {
            return Err(DataError::Setting("a vocabulary of no characters can express no text".to_owned()));
        }
        Ok(Self(Kind::Characters(characters)))
    }

    /// What a tokenizer.json says; `path` is for the messages only.
    pub fn tokenizer(path: &Path, json: &[u8]) -> Result<Self, DataError> {
        let malformed = |problem: String| DataError::malformed(path, problem);
        let tokenizer = Tokenizer::from_bytes(json).map_err(|error| {
            malformed(format!("is no tokenizer.json that can be read ({error}); get the file of that name again"))
        })?;
        Self::with_tokenizer(tokenizer).map_err(malformed)
    }

    /// A tokenizer's tokens. Whatever it would add, cut off or fill up for its own model is left out.
    pub(crate) fn with_tokenizer(mut tokenizer: Tokenizer) -> Result<Self, String> {
        tokenizer.with_truncation(None).map_err(|error| error.to_string())?;
        tokenizer.with_padding(None);
        let n_tokens = tokenizer.get_vocab(true).values().max().map_or(0, |&last| last as usize + 1);
        if n_tokens == 0 || n_tokens > MAX_TOKENS {
            return Err(format!("has {n_tokens} tokens; 1 to {MAX_TOKENS} can be used"));
        }
        let end = END_NAMES.iter().find_map(|name| tokenizer.token_to_id(name));
        Ok(Self(Kind::Tokenizer { tokenizer: Arc::new(tokenizer), n_tokens, end }))
    }

    /// The tokens of a text. Fails where the text holds what no token stands for.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, DataError> {
        self.try_encode(text).map_err(DataError::Setting)
    }

    /// The same with a problem that the caller knows the place of.
    pub(crate) fn try_encode(&self, text: &str) -> Result<Vec<u32>, String> {
        match &self.0 {
            Kind::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Kind::Characters(characters) => text
                .chars()
                .map(|character| match characters.binary_search(&character) {
                    Ok(token) => Ok(token as u32),
                    Err(_) => Err(format!(
                        "the character `{character}` (U+{:04X}) is none of the {} of the training text; leave it out, or \
                         train with `tokens = \"bytes\"`",
                        u32::from(character),
                        characters.len()
                    )),
                })
                .collect(),
            Kind::Tokenizer { tokenizer, .. } => match tokenizer.encode_fast(text, false) {
                Ok(encoding) => Ok(encoding.get_ids().to_vec()),
                Err(error) => Err(format!("the tokenizer cannot express the text: {error}")),
            },
        }
    }

    /// The text of some tokens; whatever is no text becomes U+FFFD.
    ///
    /// A letter may need several tokens, and some tokenizers write a space only between two: so text that comes token by token
    /// is best decoded from its beginning, and what ends in U+FFFD is not complete yet.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match &self.0 {
            Kind::Bytes => {
                // 0xff is in no UTF-8 text, so what is no byte comes out as U+FFFD too.
                let bytes: Vec<u8> = tokens.iter().map(|&token| u8::try_from(token).unwrap_or(0xff)).collect();
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Kind::Characters(characters) => {
                let character = |&token: &u32| characters.get(token as usize).copied();
                tokens.iter().map(|token| character(token).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
            }
            Kind::Tokenizer { tokenizer, .. } => {
                tokenizer.decode(tokens, true).unwrap_or_else(|_| char::REPLACEMENT_CHARACTER.to_string())
            }
        }
    }

    /// The token that ends a document, if there is one.
    pub fn end_of_document(&self) -> Option<u32> {
        match &self.0 {
            Kind::Bytes => Some(u32::from(END_CHARACTER)),
            Kind::Characters(characters) => characters.binary_search(&END_CHARACTER).ok().map(|token| token as u32),
            Kind::Tokenizer { end, .. } => *end,
        }
    }

    /// Whether tokens are bytes.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self.0, Kind::Bytes)
    }

    /// How many different tokens there are.
    pub fn n_tokens(&self) -> usize {
        match &self.0 {
            Kind::Bytes => 256,
            Kind::Characters(characters) => characters.len(),
            Kind::Tokenizer { n_tokens, .. } => *n_tokens,
        }
    }

    /// The tokens as strings, in order.
    pub fn vocabulary(&self) -> Vec<String> {
        match &self.0 {
            Kind::Bytes => (0..=255_u8)
                .map(|byte| match byte {
                    b' '..=b'~' => char::from(byte).to_string(),
                    _ => format!("<0x{byte:02X}>"),
                })
                .collect(),
            Kind::Characters(characters) => characters.iter().map(ToString::to_string).collect(),
            Kind::Tokenizer { tokenizer, n_tokens, .. } => {
                let name = |token: u32| tokenizer.id_to_token(token).unwrap_or_else(|| format!("<unused {token}>"));
                (0..*n_tokens as u32).map(name).collect()
            }
        }
    }

    /// What is to be stored, for [`TextCodec::from_json`].
    pub fn to_json(&self) -> String {
        let stored = match &self.0 {
            Kind::Bytes => Stored::Bytes,
            Kind::Characters(characters) => Stored::Characters { characters: characters.iter().collect() },
            Kind::Tokenizer { tokenizer, .. } => {
                Stored::Tokenizer { tokenizer: serde_json::to_value(&**tokenizer).expect("a tokenizer is JSON") }
            }
        };
        serde_json::to_string(&stored).expect("a codec is JSON")
    }

    /// The codec that was stored.
    pub fn from_json(json: &str) -> Result<Self, DataError> {
        let problem = |problem: String| DataError::Setting(format!("this is no stored vocabulary: {problem}"));
        match serde_json::from_str(json).map_err(|error| problem(error.to_string()))? {
            Stored::Bytes => Ok(Self::bytes()),
            Stored::Characters { characters } => Self::characters(characters.chars()),
            Stored::Tokenizer { tokenizer } => {
                let tokenizer =
                    Tokenizer::from_bytes(tokenizer.to_string()).map_err(|error| problem(error.to_string()))?;
                Self::with_tokenizer(tokenizer).map_err(problem)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::TextCodec;

    /// A tokenizer of whole words.
    const WORDS: &str = r#"{"version": "1.0", "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst",
        "stride": 0}, "padding": null, "added_tokens": [{"id": 3, "content": "</s>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true}], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": null, "decoder": null, "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "?": 5},
        "unk_token": "?"}}"#;

    fn again(codec: &TextCodec) -> TextCodec {
        TextCodec::from_json(&codec.to_json()).unwrap()
    }

    #[test]
    fn text_becomes_tokens_and_text_again() {
        let text = "Zoë sagt: 你好\n";
        for codec in [TextCodec::bytes(), TextCodec::characters(text.chars()).unwrap()] {
            let tokens = codec.encode(text).unwrap();
            assert!(tokens.iter().all(|&token| (token as usize) < codec.n_tokens()));
            assert_eq!((codec.decode(&tokens), again(&codec).decode(&tokens)), (text.to_owned(), text.to_owned()));
            assert_eq!(codec.vocabulary().len(), codec.n_tokens());
        }
        assert_eq!(TextCodec::bytes().vocabulary()[..0x22].last().unwrap(), "!");
        assert_eq!(TextCodec::bytes().vocabulary()[10], "<0x0A>");
    }

    #[test]
    fn what_is_no_text_is_replaced() {
        let codec = TextCodec::bytes();
        let tokens = codec.encode("né").unwrap();
        assert_eq!(codec.decode(&tokens[..2]), "n\u{fffd}", "half a letter");
        assert_eq!(codec.decode(&[65, 256, u32::MAX, 66]), "A\u{fffd}\u{fffd}B");
        assert_eq!(TextCodec::characters("ab".chars()).unwrap().decode(&[0, 2]), "a\u{fffd}");
    }

    #[test]
    fn an_unknown_character_is_named() {
        let error = TextCodec::characters("abc".chars()).unwrap().encode("abж").unwrap_err().to_string();
        assert!(error.contains("`ж` (U+0436) is none of the 3"), "{error}");
        assert!(TextCodec::characters("".chars()).is_err());
    }

    #[test]
    fn a_tokenizer_is_read_stored_and_never_cuts() {
        let codec = TextCodec::tokenizer(Path::new("tokenizer.json"), WORDS.as_bytes()).unwrap();
        for codec in [again(&codec), codec] {
            assert_eq!(codec.encode("a b b nothing").unwrap(), [0, 1, 1, 5]);
            assert_eq!((codec.n_tokens(), codec.end_of_document()), (6, Some(3)));
            assert_eq!(codec.vocabulary(), ["a", "b", "<unused 2>", "</s>", "<unused 4>", "?"]);
            assert_eq!(codec.decode(&[0, 1, 99]), "a b");
        }
    }

    #[test]
    fn what_is_no_codec_is_refused() {
        for json in ["", "{}", "{\"kind\":\"words\"}", "{\"kind\":\"tokenizer\",\"tokenizer\":{}}", "[1]"] {
            assert!(TextCodec::from_json(json).unwrap_err().to_string().contains("no stored vocabulary"), "{json}");
        }
        let error = TextCodec::tokenizer(Path::new("t/tokenizer.json"), b"{\"model\": 3}").unwrap_err().to_string();
        assert!(error.contains("t/tokenizer.json: is no tokenizer.json"), "{error}");
    }
}
