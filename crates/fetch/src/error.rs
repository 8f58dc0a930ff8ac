//! What can go wrong, and for each what state it leaves.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// A name that is not in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no data set is called {name:?};{} known: {}", did_you_mean(*nearest), known.join(", "))]
pub struct UnknownDataset {
    /// The name that was asked for.
    pub name: String,
    /// The name most like it, if any is.
    pub nearest: Option<&'static str>,
    /// Every name there is, sorted.
    pub known: Vec<&'static str>,
}

fn did_you_mean(nearest: Option<&'static str>) -> String {
    nearest.map(|name| format!(" did you mean {name}?")).unwrap_or_default()
}

/// The cache folder could not be found, read or written. What was downloaded so far stays.
#[derive(Debug, Error)]
pub enum CacheError {
    /// Neither our variable nor the platform's says where a cache may be.
    #[error("no cache folder is known: set NETTORRENT_CACHE to a folder")]
    NoFolder,
    /// The file system refused. A later fetch resumes from what is there.
    #[error("{}{}: {}{}", doing, path.display(), source, advice(source))]
    Io {
        /// What was being done, ending in a space: `"could not write "`.
        doing: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl CacheError {
    /// For `map_err`: what was being done, to which path.
    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, path: path.to_owned(), source }
    }
}

fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; what was downloaded is kept: make room and fetch again, or set NETTORRENT_CACHE to a larger disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::NotADirectory => {
            "; set NETTORRENT_CACHE to a folder that can be written"
        }
        _ => "",
    }
}

/// Why one address did not give the file. The bytes it did give are kept unless they were wrong.
#[derive(Debug, Error)]
pub enum AddressError {
    /// The connection ended before the file did.
    #[error("the connection ended after {n_bytes} of {n_bytes_expected} bytes")]
    CutOff {
        /// How many bytes of the file we now hold.
        n_bytes: u64,
        /// How many it has.
        n_bytes_expected: u64,
    },
    /// No bytes came for too long.
    #[error("no answer for {} s", .0.as_secs_f32())]
    Stalled(Duration),
    /// The server answered, but not with the file.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// The connection could not be made or broke.
    #[error("{0}")]
    Transport(String),
    /// The bytes are not the file's. They were thrown away.
    #[error("SHA-256 is {found}, expected {expected}")]
    WrongHash {
        /// What the bytes hash to.
        found: String,
        /// What the catalogue says.
        expected: String,
    },
    /// The server has a file of another length; nothing was taken from it.
    #[error("the server has {n_bytes} bytes, expected {n_bytes_expected}")]
    WrongLength {
        /// How many bytes it offers, or at least how many.
        n_bytes: u64,
        /// How many the catalogue says.
        n_bytes_expected: u64,
    },
    /// The answer to a request for the rest of the file was for another part of it.
    #[error("the server answered with another part of the file than asked for: {0:?}")]
    WrongRange(String),
}

/// One address and why it failed.
#[derive(Debug, Error)]
#[error("{url}: {why}")]
pub struct AddressFailure {
    /// The address that was tried.
    pub url: String,
    /// Why it did not give the file.
    pub why: AddressError,
}

/// An archive that was refused. Nothing of it stays.
#[derive(Debug, Error)]
pub enum UnpackError {
    /// The unpacked files could not be written; the archive stays for the next try.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// Not a gzipped tar archive, or one that ends too early.
    #[error("the archive is damaged: {0}")]
    Damaged(io::Error),
    /// The same path twice, which would hide one of them.
    #[error("the archive names {0:?} twice")]
    Duplicate(PathBuf),
    /// A path that is absolute or climbs out of the folder.
    #[error("the archive names {0:?}, which lies outside of its folder")]
    Escapes(PathBuf),
    /// A link or device; data sets need none, and a link can lead outside.
    #[error("the archive holds {0:?}, which is neither a file nor a folder")]
    NotAFile(PathBuf),
    /// More bytes or files than such an archive can honestly hold.
    #[error("the archive unpacks to more than {n_bytes} bytes or {n_files} files")]
    TooLarge {
        /// The limit on bytes.
        n_bytes: u64,
        /// The limit on files and folders.
        n_files: u64,
    },
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Why a data set could not be fetched. In no case is a part of it under its final name.
#[derive(Debug, Error)]
pub enum FetchError {
    /// Every address failed. What arrived is kept, and the next fetch resumes from it.
    #[error(
        "could not fetch {file} of {dataset} from any address:{}\n\
         What arrived is kept; fetch again to resume, or give another address with --mirror.",
        indented(failures)
    )]
    AllAddressesFailed {
        /// The data set's name.
        dataset: String,
        /// The file that could not be had.
        file: String,
        /// Each address tried, in order, and why it failed.
        failures: Vec<AddressFailure>,
    },
    /// The archive matches its hash, yet cannot be unpacked.
    #[error("could not unpack {file}: {source}")]
    Archive {
        /// The archive's name.
        file: String,
        /// Why it was refused.
        source: UnpackError,
    },
    /// The cache folder could not be read or written. What was downloaded so far stays.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The entry's name or a file's name could lead out of the cache.
    #[error("{0:?} cannot name a data set or its file: use letters, digits, dots, dashes and underscores")]
    Name(String),
    /// The caller asked to stop. What arrived is kept, and the next fetch resumes from it.
    #[error("stopped; what arrived is kept, fetch again to resume")]
    Stopped,
}

fn indented(failures: &[AddressFailure]) -> String {
    failures.iter().map(|failure| format!("\n  {failure}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::CacheError;

    #[test]
    fn a_full_disk_says_what_to_do() {
        let full = CacheError::io("could not write ", Path::new("a.part"))(io::ErrorKind::StorageFull.into());
        let message = full.to_string();
        assert!(message.starts_with("could not write a.part: "), "{message}");
        assert!(message.contains("what was downloaded is kept"), "{message}");
    }
}
