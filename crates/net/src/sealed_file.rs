//! A file that is sealed with a key of its own (AES-128-GCM), in a directory that others can write to as well.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

use crate::ticket::random_bytes;

/// What a file is called, without what all names have in common.
pub(crate) type Name = [u8; 16];

/// Why what another peer says about the directory cannot be used. It costs that peer the link.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It is no word about the directory.
    #[error("what it says about the shared directory makes no sense")]
    Malformed,
    /// No directory is shared with it.
    #[error("it speaks of a file in a shared directory, and none is shared with it")]
    NotShared,
    /// There is no such file, or it cannot be read.
    #[error("{file} in the shared directory cannot be read: {source}")]
    Unreadable {
        /// Its name.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// It is a link, a folder or something else.
    #[error("{file} in the shared directory is no ordinary file")]
    NoFile {
        /// Its name.
        file: String,
    },
    /// It has another length.
    #[error("{file} in the shared directory has {found} bytes, and {announced} were announced")]
    WrongLength {
        /// Its name.
        file: String,
        /// How long it is.
        found: u64,
        /// How long it should be.
        announced: usize,
    },
    /// It has another content.
    #[error("{file} in the shared directory is not what was announced: it is damaged, or somebody has changed it")]
    Changed {
        /// Its name.
        file: String,
    },
}

/// What opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seal {
    pub(crate) name: Name,
    pub(crate) key: [u8; 16],
    pub(crate) tag: [u8; 16],
}

impl Seal {
    /// Seals a body: what opens it again, and what to write.
    pub(crate) fn close(body: &[u8]) -> (Self, Vec<u8>) {
        let mut seal = Self { name: random_bytes(), key: random_bytes(), tag: [0; 16] };
        let mut sealed = body.to_vec();
        let tag = cipher(&seal.key)
            .seal_in_place_separate_tag(no_nonce(), Aad::empty(), &mut sealed)
            .expect("a body is far shorter than the cipher allows");
        seal.tag.copy_from_slice(tag.as_ref());
        (seal, sealed)
    }

    /// Reads the file at a path, of which others are told under a shorter name.
    pub(crate) fn open(&self, path: &Path, file: &str, n_bytes: usize) -> Result<Bytes, Refused> {
        let file = || file.to_owned();
        let unreadable = |source| Refused::Unreadable { file: file(), source };
        if !fs::symlink_metadata(path).map_err(unreadable)?.is_file() {
            return Err(Refused::NoFile { file: file() });
        }
        let mut opened = open(path).map_err(unreadable)?;
        let found = opened.metadata().map_err(unreadable)?;
        if !found.is_file() {
            return Err(Refused::NoFile { file: file() });
        }
        if found.len() != n_bytes as u64 {
            return Err(Refused::WrongLength { file: file(), found: found.len(), announced: n_bytes });
        }
        let mut body = vec![0; n_bytes];
        opened.read_exact(&mut body).map_err(unreadable)?;
        cipher(&self.key)
            .open_in_place_separate_tag(no_nonce(), Aad::empty(), self.tag.into(), &mut body, 0..)
            .map_err(|_| Refused::Changed { file: file() })?;
        Ok(Bytes::from(body))
    }
}

/// A new file that only this user can read.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Opens a file, and neither what a link leads to nor something that makes us wait.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}

fn cipher(key: &[u8; 16]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).expect("the key has the cipher's length"))
}

/// Every key seals one file only, so all files may have the same nonce.
fn no_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}
