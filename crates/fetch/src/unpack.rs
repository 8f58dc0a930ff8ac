//! Unpacks a gzipped tar archive and trusts nothing in it.
//!
//! Only plain files and folders come out, below the folder given; links are refused, because a
//! link may lead outside. Owners, permissions and times in the archive are ignored.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Component, Path, PathBuf};

use flate2::read::MultiGzDecoder;
use tar::{Archive, Entry, EntryType};

use crate::error::{CacheError, UnpackError};

/// How much may come out of one archive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnpackLimits {
    pub(crate) n_bytes: u64,
    pub(crate) n_files: u64,
}

impl UnpackLimits {
    /// Pictures and sound barely shrink, tables of numbers tenfold; a bomb does a thousandfold.
    pub(crate) fn for_archive(n_bytes: u64) -> Self {
        const GROWTH: u64 = 30;
        const SMALL_ARCHIVE: u64 = 1 << 20;
        Self { n_bytes: n_bytes.max(SMALL_ARCHIVE).saturating_mul(GROWTH), n_files: 2_000_000 }
    }

    fn exceeded(self) -> UnpackError {
        UnpackError::TooLarge { n_bytes: self.n_bytes, n_files: self.n_files }
    }
}

/// Unpacks `archive` into `folder`, which exists. `on_file` is told how many files are out and
/// answers whether to go on.
pub(crate) fn unpack_tar_gz(
    archive: &Path,
    folder: &Path,
    limits: UnpackLimits,
    on_file: &mut dyn FnMut(u64) -> bool,
) -> Result<(), UnpackError> {
    let file = File::open(archive).map_err(CacheError::io("could not read ", archive))?;
    let decoded = MultiGzDecoder::new(BufReader::new(file));
    // One byte more than allowed, so that a stream cut by the limit is told from one that ends.
    let mut tar = Archive::new(decoded.take(stream_limit(limits)));
    let mut n_bytes_left = limits.n_bytes;
    let mut n_files = 0;
    for entry in tar.entries().map_err(UnpackError::Damaged)? {
        let mut entry = entry.map_err(UnpackError::Damaged)?;
        n_files += 1;
        let n_bytes = entry.size();
        if n_files > limits.n_files || n_bytes > n_bytes_left {
            return Err(limits.exceeded());
        }
        n_bytes_left -= n_bytes;
        unpack_entry(&mut entry, folder)?;
        if !on_file(n_files) {
            return Err(UnpackError::Stopped);
        }
    }
    check_that_stream_ended(tar.into_inner())
}

/// The tar format adds a header and padding, under 1 KiB each, to every file.
fn stream_limit(limits: UnpackLimits) -> u64 {
    limits.n_bytes.saturating_add(limits.n_files.saturating_mul(2048))
}

/// Reads what follows the archive's end, so that gzip's own checksum is compared too.
fn check_that_stream_ended(mut rest: impl Read) -> Result<(), UnpackError> {
    io::copy(&mut rest, &mut io::sink()).map(drop).map_err(UnpackError::Damaged)
}

fn unpack_entry(entry: &mut Entry<'_, impl Read>, folder: &Path) -> Result<(), UnpackError> {
    let name = entry.path().map_err(UnpackError::Damaged)?.into_owned();
    match entry.header().entry_type() {
        // Remarks about the archive as a whole, written by git and others; not a file.
        EntryType::XGlobalHeader => Ok(()),
        EntryType::Directory => {
            let path = folder.join(stay_inside(&name)?);
            fs::create_dir_all(&path).map_err(|error| explain_creation(error, &path, &name))
        }
        EntryType::Regular | EntryType::Continuous => write_file(entry, &folder.join(stay_inside(&name)?), &name),
        _ => Err(UnpackError::NotAFile(name)),
    }
}

fn write_file(entry: &mut Entry<'_, impl Read>, path: &Path, name: &Path) -> Result<(), UnpackError> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| explain_creation(error, parent, name))?;
    }
    let mut file = File::create_new(path).map_err(|error| explain_creation(error, path, name))?;
    let n_bytes_expected = entry.size();
    let n_bytes = copy_pieces(entry, &mut file, path)?;
    if n_bytes < n_bytes_expected {
        return Err(UnpackError::Damaged(io::ErrorKind::UnexpectedEof.into()));
    }
    Ok(())
}

/// Like `io::copy`, but a failed read is the archive's fault and a failed write the disk's.
fn copy_pieces(from: &mut impl Read, to: &mut File, path: &Path) -> Result<u64, UnpackError> {
    let mut piece = [0; 1 << 14];
    let mut n_bytes_done = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(n_bytes_done),
            Ok(n_bytes) => {
                to.write_all(&piece[..n_bytes]).map_err(CacheError::io("could not write ", path))?;
                n_bytes_done += n_bytes as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(UnpackError::Damaged(error)),
        }
    }
}

fn explain_creation(error: io::Error, path: &Path, name: &Path) -> UnpackError {
    match error.kind() {
        io::ErrorKind::AlreadyExists => UnpackError::Duplicate(name.to_owned()),
        _ => CacheError::io("could not create ", path)(error).into(),
    }
}

/// The path with its `.` parts left out, if every other part is a plain name.
fn stay_inside(name: &Path) -> Result<PathBuf, UnpackError> {
    let mut inside = PathBuf::new();
    for component in name.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => inside.push(part),
            Component::ParentDir | Component::Prefix(_) | Component::RootDir => {
                return Err(UnpackError::Escapes(name.to_owned()));
            }
        }
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, EntryType, Header};
    use tempfile::TempDir;

    use super::{UnpackLimits, unpack_tar_gz};
    use crate::error::UnpackError;

    struct Item {
        kind: EntryType,
        name: &'static str,
        content: &'static [u8],
    }

    fn file(name: &'static str, content: &'static [u8]) -> Item {
        Item { kind: EntryType::Regular, name, content }
    }

    /// Writes names straight into the header: the builder's own way refuses wicked ones.
    fn archive_of(items: &[Item]) -> Vec<u8> {
        let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for item in items {
            let mut header = Header::new_gnu();
            header.as_gnu_mut().expect("a GNU header").name[..item.name.len()].copy_from_slice(item.name.as_bytes());
            header.set_entry_type(item.kind);
            header.set_size(item.content.len() as u64);
            header.set_mode(0o000);
            if item.kind.is_symlink() {
                header.set_link_name("/etc").expect("a link name");
            }
            header.set_cksum();
            builder.append(&header, item.content).expect("appended");
        }
        builder.into_inner().expect("ended").finish().expect("compressed")
    }

    fn unpack(archive: &[u8], limits: UnpackLimits) -> (Result<(), UnpackError>, TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("archive.tar.gz");
        fs::write(&path, archive).expect("written");
        let target = folder.path().join("in").join("here");
        fs::create_dir_all(&target).expect("created");
        (unpack_tar_gz(&path, &target, limits, &mut |_| true), folder)
    }

    const ROOMY: UnpackLimits = UnpackLimits { n_bytes: 1 << 20, n_files: 100 };

    fn refusal(items: &[Item], limits: UnpackLimits) -> UnpackError {
        let (result, folder) = unpack(&archive_of(items), limits);
        assert!(!folder.path().join("evil").exists());
        assert!(!folder.path().join("in").join("evil").exists());
        result.expect_err("must be refused")
    }

    #[test]
    fn files_and_folders_come_out() {
        let folder_item = Item { kind: EntryType::Directory, name: "./a/", content: b"" };
        let (result, folder) = unpack(&archive_of(&[folder_item, file("./a/b/c", b"text"), file("d", b"")]), ROOMY);
        result.expect("unpacked");
        let target = folder.path().join("in").join("here");
        assert_eq!(fs::read(target.join("a").join("b").join("c")).expect("there"), b"text");
        assert_eq!(fs::read(target.join("d")).expect("there"), b"");
    }

    #[test]
    fn paths_that_lead_outside_are_refused() {
        for name in ["../evil", "a/../../evil", "/evil", "/tmp/evil"] {
            let error = refusal(&[file("fine", b"x"), file(name, b"x")], ROOMY);
            assert!(matches!(&error, UnpackError::Escapes(path) if path == Path::new(name)), "{name}: {error}");
        }
    }

    #[test]
    fn links_and_devices_are_refused() {
        for kind in [EntryType::Symlink, EntryType::Link, EntryType::Fifo, EntryType::Char] {
            let error = refusal(&[Item { kind, name: "odd", content: b"" }], ROOMY);
            assert!(matches!(error, UnpackError::NotAFile(_)), "{kind:?}: {error}");
        }
    }

    #[test]
    fn a_path_given_twice_is_refused() {
        let error = refusal(&[file("a", b"1"), file("a", b"2")], ROOMY);
        assert!(matches!(error, UnpackError::Duplicate(_)), "{error}");
    }

    #[test]
    fn too_much_is_refused() {
        let few_bytes = UnpackLimits { n_bytes: 7, n_files: 100 };
        assert!(matches!(refusal(&[file("a", b"1234"), file("b", b"5678")], few_bytes), UnpackError::TooLarge { .. }));
        let few_files = UnpackLimits { n_bytes: 100, n_files: 1 };
        assert!(matches!(refusal(&[file("a", b"1"), file("b", b"2")], few_files), UnpackError::TooLarge { .. }));
    }

    #[test]
    fn an_archive_cut_anywhere_is_refused() {
        let whole = archive_of(&[file("a", &[7; 3000]), file("b", b"text")]);
        for n_bytes in [0, 1, 12, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
            let (result, _folder) = unpack(&whole[..n_bytes], ROOMY);
            assert!(matches!(result, Err(UnpackError::Damaged(_))), "cut at {n_bytes}: {result:?}");
        }
    }
}
