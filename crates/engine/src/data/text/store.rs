//! Tokens on disk, mapped into memory: sets may be larger than it.
//!
//! A file of tokens is 8 bytes that say so, 8 bytes of which the first is the width of a token in bytes, the tokens in little
//! endian, and their number in 8 bytes, so that a file that was cut off is noticed.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use rayon::prelude::*;

use super::super::DataError;
use super::super::files::Mapped;
use super::cache::Cache;
use super::codec::TextCodec;
use super::documents::{BYTE_ORDER_MARK, Documents, Piece, fingerprint};
use crate::team::Team;

const MAGIC: &[u8; 8] = b"NTtokens";
const HEADER_LEN: usize = 16;
/// How many pieces of text are encoded at a time.
const N_AT_ONCE: usize = 64;

/// A long row of tokens.
#[derive(Debug)]
pub(crate) struct Store {
    file: Mapped,
    path: PathBuf,
    /// Where the first token begins.
    start: usize,
    /// How many bytes a token has.
    width: usize,
    len: usize,
}

impl Store {
    /// The bytes of a file of text, as they are.
    pub(crate) fn of_bytes(path: &Path) -> Result<Self, DataError> {
        let file = Mapped::open(path)?;
        let start = if file.bytes()?.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let len = file.len() - start;
        Ok(Self { file, path: path.to_owned(), start, width: 1, len })
    }

    /// The tokens of documents: those that were kept, else they are encoded now.
    pub(crate) fn of_documents(documents: &dyn Documents, codec: &TextCodec, cache: &Cache) -> Result<Self, DataError> {
        let name = format!("tokens-{}.bin", fingerprint(documents.files(), &[documents.how(), &codec.to_json()])?);
        let width = width(codec);
        let sound = |file: &mut File| n_tokens(file, width).is_some();
        let (mut file, path) = cache.open(&name, sound, &mut |out| encode(documents, codec, out))?;
        let len = n_tokens(&mut file, width).unwrap_or(0);
        Ok(Self { file: Mapped::of(&file, &path)?, path, start: HEADER_LEN, width, len })
    }

    /// How many tokens there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Has the system read a range from the disk meanwhile, if it is not in memory.
    pub(crate) fn prefetch(&self, range: Range<usize>) {
        #[cfg(unix)]
        self.file.prefetch(self.start + range.start * self.width, range.len() * self.width);
        #[cfg(not(unix))]
        let _ = range;
    }

    /// The tokens of a range. Fails if one is not below `n_tokens`, or if the file has become shorter.
    pub(crate) fn read(&self, range: Range<usize>, n_tokens: usize) -> Result<Vec<u32>, DataError> {
        let bytes = &self.file.bytes()?[self.start + range.start * self.width..self.start + range.end * self.width];
        let tokens: Vec<u32> = match self.width {
            1 => bytes.iter().map(|&byte| u32::from(byte)).collect(),
            2 => bytes.as_chunks().0.iter().map(|&token| u32::from(u16::from_le_bytes(token))).collect(),
            _ => bytes.as_chunks().0.iter().map(|&token| u32::from_le_bytes(token)).collect(),
        };
        if let Some(token) = tokens.iter().find(|&&token| token as usize >= n_tokens) {
            let problem = format!("holds the token {token}, and there are {n_tokens}; it is damaged: remove it");
            return Err(DataError::malformed(&self.path, problem));
        }
        Ok(tokens)
    }
}

/// How many bytes each of a codec's tokens needs.
fn width(codec: &TextCodec) -> usize {
    match codec.n_tokens() {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// How many tokens a file holds, if it is whole.
fn n_tokens(file: &mut File, width: usize) -> Option<usize> {
    let n_bytes = file.metadata().ok()?.len();
    let (mut header, mut trailer) = ([0; HEADER_LEN], [0; 8]);
    file.rewind().ok()?;
    file.read_exact(&mut header).ok()?;
    file.seek(SeekFrom::End(-8)).ok()?;
    file.read_exact(&mut trailer).ok()?;
    let n_tokens = u64::from_le_bytes(trailer);
    let expected = n_tokens.checked_mul(width as u64)?.checked_add(HEADER_LEN as u64 + 8)?;
    let is_whole = header[..8] == *MAGIC && usize::from(header[8]) == width && n_bytes == expected;
    is_whole.then_some(n_tokens as usize)
}

/// Writes a file of tokens, with threads that are gone when it is done.
fn encode(documents: &dyn Documents, codec: &TextCodec, out: &mut dyn Write) -> Result<(), DataError> {
    let team = Team::new(available_parallelism().map_or(1, std::num::NonZero::get))?;
    let separator = match codec.end_of_document() {
        Some(end) => vec![end],
        None => codec.try_encode("\n").unwrap_or_default(),
    };
    let mut encoder = Encoder { codec, team, separator, out, waiting: Vec::new(), n_tokens: 0 };
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8] = width(codec) as u8;
    encoder.write(&header)?;
    documents.visit(&mut |piece| {
        encoder.waiting.push(match piece {
            Piece::Boundary => None,
            Piece::Text(path, text) => Some((path.to_owned(), text.to_owned())),
        });
        if encoder.waiting.len() >= N_AT_ONCE {
            encoder.flush()?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    encoder.flush()?;
    let n_tokens = encoder.n_tokens;
    encoder.write(&n_tokens.to_le_bytes())
}

/// Encodes pieces in parallel and writes them in order.
struct Encoder<'a> {
    codec: &'a TextCodec,
    team: Team,
    /// What stands between two documents.
    separator: Vec<u32>,
    out: &'a mut dyn Write,
    /// Pieces with their files; none between two documents.
    waiting: Vec<Option<(PathBuf, String)>>,
    n_tokens: u64,
}

impl Encoder<'_> {
    fn flush(&mut self) -> Result<(), DataError> {
        let pieces = std::mem::take(&mut self.waiting);
        let encode = |piece: &Option<(PathBuf, String)>| match piece {
            None => Ok(self.separator.clone()),
            Some((path, text)) => self.codec.try_encode(text).map_err(|problem| DataError::malformed(path, problem)),
        };
        let encoded: Vec<Vec<u32>> =
            self.team.install(|| pieces.par_iter().map(encode).collect::<Result<_, DataError>>())?;
        let width = width(self.codec);
        for tokens in encoded {
            self.n_tokens += tokens.len() as u64;
            let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes().into_iter().take(width)).collect();
            self.write(&bytes)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), DataError> {
        self.out.write_all(bytes).map_err(|source| DataError::Write { path: "the tokens of the text".into(), source })
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Store, width};
    use crate::data::text::cache::Cache;
    use crate::data::text::codec::TextCodec;
    use crate::data::text::documents::PlainText;

    fn cached(folder: &Path) -> PathBuf {
        let mut entries = std::fs::read_dir(folder.join(".nettorrent")).unwrap();
        entries.next().unwrap().unwrap().path()
    }

    #[test]
    fn tokens_of_every_width_are_kept() {
        for n_characters in [3, 256, 257, 65_536, 65_537] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("a.txt");
            let characters: Vec<char> = ('\u{1}'..).take(n_characters).collect();
            let codec = TextCodec::characters(characters.iter().copied()).unwrap();
            std::fs::write(&path, characters.iter().collect::<String>()).unwrap();
            let (paths, cache) = ([path], Cache::beside(folder.path()));
            let open = || Store::of_documents(&PlainText(&paths), &codec, &cache).unwrap();
            let read = |store: Store| store.read(0..store.len(), n_characters).unwrap();
            assert!(read(open()).into_iter().eq(0..n_characters as u32), "{n_characters}");
            let written = std::fs::metadata(cached(folder.path())).unwrap();
            assert_eq!(written.len() as usize, 24 + width(&codec) * n_characters);
            // What was kept is taken as it is; what was cut off is made again.
            assert!(read(open()).into_iter().eq(0..n_characters as u32));
            let bytes = std::fs::read(cached(folder.path())).unwrap();
            for damaged in [&bytes[..bytes.len() - 1], &bytes[1..], &bytes[..7], b""] {
                std::fs::write(cached(folder.path()), damaged).unwrap();
                assert!(read(open()).into_iter().eq(0..n_characters as u32));
            }
        }
    }

    #[test]
    fn a_token_that_cannot_be_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, "\u{feff}abc").unwrap();
        let store = Store::of_bytes(&path).unwrap();
        assert_eq!((store.len(), store.read(1..3, 256).unwrap()), (3, vec![98, 99]));
        assert!(store.read(0..3, 99).unwrap_err().to_string().contains("holds the token 99, and there are 99"));
        if cfg!(unix) {
            std::fs::write(&path, "a").unwrap();
            assert!(store.read(1..3, 256).unwrap_err().to_string().contains("a.txt: it has become shorter"));
        }
        std::fs::write(&path, "").unwrap();
        assert_eq!(Store::of_bytes(&path).unwrap().len(), 0);
    }
}
