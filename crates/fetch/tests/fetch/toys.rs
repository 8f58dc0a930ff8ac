//! Small data sets to fetch in tests, and a cache to fetch them into.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use data_encoding::HEXLOWER;
use flate2::Compression;
use flate2::write::GzEncoder;
use nettorrent_fetch::{
    AddressError, Cache, DatasetEntry, FetchError, FetchOptions, ProxyChoice, RemoteFile, Unpack, fetch,
};
use ring::digest::{SHA256, digest};
use tempfile::TempDir;

/// A cache in a folder of its own, which goes when it does.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) cache: Cache,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("cache"));
        Self { folder, cache }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn fetch(&self, entry: &DatasetEntry) -> Result<PathBuf, FetchError> {
        fetch(entry, &self.cache, &options(), &mut |_| {})
    }

    /// Puts bytes where an interrupted download of the file would have left them.
    pub(crate) fn leave_part(&self, entry: &DatasetEntry, bytes: &[u8]) {
        let folder = self.cache.root().join("downloads").join(entry.name);
        fs::create_dir_all(&folder).expect("created");
        fs::write(folder.join(format!("{}.part", entry.files[0].name)), bytes).expect("written");
    }

    /// How many bytes of the entry's first file wait for the next fetch.
    pub(crate) fn n_bytes_left(&self, entry: &DatasetEntry) -> u64 {
        let name = format!("{}.part", entry.files[0].name);
        let path = self.cache.root().join("downloads").join(entry.name).join(name);
        fs::metadata(path).map_or(0, |metadata| metadata.len())
    }

    /// That there is no data set, nor anything half made where data sets are.
    pub(crate) fn assert_no_set(&self, entry: &DatasetEntry) {
        assert_eq!(self.cache.cached(entry.name), None);
        let folder = self.cache.root().join("datasets");
        let left: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().map(|item| item.path()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Options for the loopback: no proxy, and little patience.
pub(crate) fn options() -> FetchOptions {
    FetchOptions {
        proxy: ProxyChoice::Direct,
        connect_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(5),
        ..FetchOptions::default()
    }
}

/// One file of a toy data set: what it should hold and where it is.
pub(crate) struct Toy<'a> {
    pub(crate) name: &'static str,
    pub(crate) content: &'a [u8],
    pub(crate) urls: Vec<String>,
}

/// A catalogue entry. Entries live as long as the program, so a test's are leaked.
pub(crate) fn entry(unpack: Unpack, toys: Vec<Toy<'_>>) -> DatasetEntry {
    let files: Vec<RemoteFile> = toys.into_iter().map(remote_file).collect();
    DatasetEntry { name: "toy", about: "a toy", licence: "none", files: files.leak(), unpack }
}

/// An entry of one file, kept as it comes.
pub(crate) fn single(content: &[u8], urls: &[String]) -> DatasetEntry {
    entry(Unpack::KeepFiles, vec![Toy { name: "toy.bin", content, urls: urls.to_vec() }])
}

/// An entry of one archive.
pub(crate) fn archived(content: &[u8], urls: &[String]) -> DatasetEntry {
    entry(Unpack::TarGz, vec![Toy { name: "toy.tar.gz", content, urls: urls.to_vec() }])
}

fn remote_file(toy: Toy<'_>) -> RemoteFile {
    let urls: Vec<&'static str> = toy.urls.into_iter().map(|url| &*url.leak()).collect();
    let sha256 = HEXLOWER.encode(digest(&SHA256, toy.content).as_ref());
    RemoteFile { name: toy.name, n_bytes: toy.content.len() as u64, sha256: sha256.leak(), urls: urls.leak() }
}

/// Bytes no two pieces of which are alike; the seed makes different files of the same length.
pub(crate) fn bytes(n_bytes: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..n_bytes).map(next).collect()
}

/// A gzipped tar archive of these files; names are written as they are, wicked ones too.
pub(crate) fn tar_gz(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().expect("a GNU header").name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(content.len() as u64);
        header.set_cksum();
        builder.append(&header, *content).expect("appended");
    }
    builder.into_inner().expect("ended").finish().expect("compressed")
}

/// Why each address failed, for a fetch that failed at all of them.
pub(crate) fn reasons(result: Result<PathBuf, FetchError>) -> Vec<AddressError> {
    match result {
        Err(FetchError::AllAddressesFailed { failures, .. }) => {
            failures.into_iter().map(|failure| failure.why).collect()
        }
        other => panic!("expected every address to fail, got {other:?}"),
    }
}
