//! Brings one file from one address, going on where an earlier try ended.

use std::io::{self, Read, Write};

use crate::catalog::RemoteFile;
use crate::digest::sha256_of_file;
use crate::error::{AddressError, CacheError};
use crate::http::{Client, Given, Wanted};
use crate::options::FetchOptions;
use crate::partial::Partial;
use crate::progress::Progress;

/// One file to be brought, and what is needed for it.
pub(crate) struct Download<'a> {
    pub(crate) client: &'a Client,
    pub(crate) file: &'a RemoteFile,
    pub(crate) options: &'a FetchOptions,
    pub(crate) partial: &'a Partial,
    pub(crate) progress: &'a mut dyn FnMut(Progress<'_>),
}

/// Why a download ended without its file.
#[derive(Debug)]
pub(crate) enum DownloadError {
    /// This address failed; another may not.
    Address(AddressError),
    /// The disk failed; no address can help.
    Cache(CacheError),
    /// The caller asked to stop.
    Stopped,
}

impl From<AddressError> for DownloadError {
    fn from(error: AddressError) -> Self {
        Self::Address(error)
    }
}

impl From<CacheError> for DownloadError {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

/// How often one address is asked. Only the tries that brought bytes lead to another, so a dead
/// server is asked once, while one that keeps hanging up still gets us there.
const N_TRIES_AN_ADDRESS: usize = 5;

const N_BYTES_A_PIECE: usize = 1 << 16;

impl Download<'_> {
    /// Brings the file, checks it and gives it its own name.
    pub(crate) fn bring_from(&mut self, url: &str) -> Result<(), DownloadError> {
        let mut n_tries = 0;
        loop {
            n_tries += 1;
            let n_bytes_before = self.partial.n_bytes();
            let why = match self.try_once(url) {
                Err(DownloadError::Address(why)) => why,
                other => return other,
            };
            if n_tries == N_TRIES_AN_ADDRESS || !self.is_worth_another_try(&why, n_bytes_before)? {
                return Err(why.into());
            }
            (self.progress)(Progress::Failed { url, why: &why });
        }
    }

    fn try_once(&mut self, url: &str) -> Result<(), DownloadError> {
        if self.partial.n_bytes() > self.file.n_bytes {
            self.partial.discard()?;
        }
        if self.partial.n_bytes() < self.file.n_bytes {
            self.bring_the_rest(url)?;
        }
        self.check()
    }

    /// Whether the same address may do better now. A try that resumed and came to nothing may be
    /// the fault of the bytes it began with; they are gone, so it cannot happen a second time.
    fn is_worth_another_try(&self, why: &AddressError, n_bytes_before: u64) -> Result<bool, CacheError> {
        match why {
            AddressError::CutOff { .. } | AddressError::Stalled(_) | AddressError::Transport(_) => {
                Ok(self.partial.n_bytes() > n_bytes_before)
            }
            AddressError::WrongHash { .. } => Ok(n_bytes_before > 0),
            AddressError::Status(416) | AddressError::WrongRange(_) => {
                self.partial.discard()?;
                Ok(n_bytes_before > 0)
            }
            AddressError::Status(_) | AddressError::WrongLength { .. } => Ok(false),
        }
    }

    fn bring_the_rest(&mut self, url: &str) -> Result<(), DownloadError> {
        let n_bytes_here = self.partial.n_bytes();
        (self.progress)(Progress::Connecting { file: self.file.name, url, n_bytes_done: n_bytes_here });
        let entity_tag = self.partial.entity_tag_from(url);
        let given = self.client.get(&Wanted {
            url,
            start: n_bytes_here,
            n_bytes_expected: self.file.n_bytes,
            only_if: entity_tag.as_deref(),
        })?;
        if given.start != 0 && given.start != n_bytes_here {
            return Err(AddressError::WrongRange(format!("from byte {}", given.start)).into());
        }
        self.copy(url, given)
    }

    fn copy(&mut self, url: &str, mut given: Given) -> Result<(), DownloadError> {
        let mut part = self.partial.open_at(given.start, url, given.entity_tag.as_deref())?;
        let mut n_bytes_done = given.start;
        let mut piece = vec![0; N_BYTES_A_PIECE];
        loop {
            (self.progress)(Progress::Downloading {
                file: self.file.name,
                n_bytes_done,
                n_bytes_total: self.file.n_bytes,
            });
            if self.options.is_stopped() {
                return Err(DownloadError::Stopped);
            }
            let n_bytes_read = match given.body.read(&mut piece) {
                Ok(n_bytes) => n_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(self.client.explain_read(&error).into()),
            };
            if n_bytes_read == 0 {
                return self.check_end(n_bytes_done);
            }
            n_bytes_done += n_bytes_read as u64;
            if n_bytes_done > self.file.n_bytes {
                // A file that goes on is another file, so what we have of it is useless.
                self.partial.discard()?;
                let n_bytes_expected = self.file.n_bytes;
                return Err(AddressError::WrongLength { n_bytes: n_bytes_done, n_bytes_expected }.into());
            }
            part.write_all(&piece[..n_bytes_read]).map_err(CacheError::io("could not write ", self.partial.part()))?;
        }
    }

    fn check_end(&self, n_bytes: u64) -> Result<(), DownloadError> {
        if n_bytes == self.file.n_bytes {
            return Ok(());
        }
        Err(AddressError::CutOff { n_bytes, n_bytes_expected: self.file.n_bytes }.into())
    }

    fn check(&mut self) -> Result<(), DownloadError> {
        (self.progress)(Progress::Checking { file: self.file.name });
        let part = self.partial.part();
        let found = sha256_of_file(part).map_err(CacheError::io("could not read ", part))?;
        if found == self.file.sha256 {
            return Ok(self.partial.finish()?);
        }
        self.partial.discard()?;
        Err(AddressError::WrongHash { found, expected: self.file.sha256.to_owned() }.into())
    }
}
