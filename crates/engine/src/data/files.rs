//! Reading files and folders with errors that name them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::DataError;

/// The whole of a file. Only regular files are read: a pipe or a device would never end.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, DataError> {
    let (mut file, n_bytes) = open(path)?;
    // The length is the file's real one, not one that the file claims, so it is safe to reserve.
    let mut bytes = Vec::with_capacity(n_bytes as usize);
    file.read_to_end(&mut bytes).map_err(|source| DataError::read(path, source))?;
    Ok(bytes)
}

/// Its first bytes, at most so many; up to the last whole line if the file is longer.
pub(crate) fn beginning(path: &Path, n_bytes: usize) -> Result<Vec<u8>, DataError> {
    let (file, len) = open(path)?;
    let mut bytes = Vec::new();
    file.take(n_bytes as u64).read_to_end(&mut bytes).map_err(|source| DataError::read(path, source))?;
    if len > n_bytes as u64 {
        bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(bytes.len()));
    }
    Ok(bytes)
}

/// An opened regular file and its length in bytes.
pub(crate) fn open(path: &Path) -> Result<(File, u64), DataError> {
    let file = reading().open(path).map_err(|source| DataError::read(path, source))?;
    let metadata = file.metadata().map_err(|source| DataError::read(path, source))?;
    if metadata.is_dir() {
        return Err(DataError::malformed(path, "expected a file, found a folder"));
    }
    if !metadata.is_file() {
        return Err(DataError::malformed(path, "expected a regular file, found a device or a pipe"));
    }
    Ok((file, metadata.len()))
}

/// A file's bytes without reading them all, to be read at once; none if there are none. What is kept for later is [`Mapped`].
pub(crate) fn map(path: &Path) -> Result<Option<Mmap>, DataError> {
    let (file, n_bytes) = open(path)?;
    if n_bytes == 0 {
        return Ok(None);
    }
    map_file(&file, path).map(Some)
}

/// The bytes of an opened file that is not empty; `path` is for the messages only.
fn map_file(file: &File, path: &Path) -> Result<Mmap, DataError> {
    // SAFETY: nothing writes through the map. Who changes a data file during training changes the samples under way, as with
    // any file that is read twice, and no value read here is relied on to stay the same.
    unsafe { Mmap::map(file) }.map_err(|source| DataError::read(path, source))
}

/// The bytes of a file that is read again and again while others may change it.
///
/// Reading a mapped byte that the file has no more ends the process, so before its bytes are read the file's length is looked at: one that became
/// shorter is an error. What remains is the moment between looking and reading. The file is not kept open: a set may have more files
/// than a process may have open.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// None if the file is empty.
    map: Option<Mmap>,
    path: PathBuf,
    /// The file that was mapped, which may no longer be the one at its path.
    #[cfg(unix)]
    identity: (u64, u64),
}

impl Mapped {
    /// Maps the file at a path.
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let (file, _) = open(path)?;
        Self::of(&file, path)
    }

    /// Maps an opened file, which is at this path if it still has one.
    pub(crate) fn of(file: &File, path: &Path) -> Result<Self, DataError> {
        let metadata = file.metadata().map_err(|source| DataError::read(path, source))?;
        let map = if metadata.len() == 0 { None } else { Some(map_file(file, path)?) };
        Ok(Self {
            map,
            path: path.to_owned(),
            #[cfg(unix)]
            identity: identity(&metadata),
        })
    }

    /// How many bytes it had when it was opened.
    pub(crate) fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len())
    }

    /// All of its bytes, to be read now: later they are asked for again. Fails if the file has become shorter.
    pub(crate) fn bytes(&self) -> Result<&[u8], DataError> {
        self.check()?;
        Ok(self.map.as_deref().unwrap_or_default())
    }

    /// Fails if the file has become shorter.
    pub(crate) fn check(&self) -> Result<(), DataError> {
        if self.is_whole() {
            return Ok(());
        }
        let problem = "it has become shorter than it was when it was opened";
        Err(DataError::read(&self.path, io::Error::other(problem)))
    }

    #[cfg(unix)]
    fn is_whole(&self) -> bool {
        // A file that was removed or replaced by another stays as it was for those who have mapped it.
        let Ok(now) = std::fs::metadata(&self.path) else { return true };
        identity(&now) != self.identity || now.len() >= self.len() as u64
    }

    /// Elsewhere the system makes no mapped file shorter.
    #[cfg(not(unix))]
    fn is_whole(&self) -> bool {
        true
    }

    /// Has the system read some bytes from the disk meanwhile, if they are not in memory.
    #[cfg(unix)]
    pub(crate) fn prefetch(&self, offset: usize, len: usize) {
        if let Some(map) = &self.map {
            // Without it, reading takes longer and is all the same.
            let _ = map.advise_range(memmap2::Advice::WillNeed, offset, len);
        }
    }
}

/// What tells a file from all others: its device, and its number there.
#[cfg(unix)]
fn identity(metadata: &std::fs::Metadata) -> (u64, u64) {
    use std::os::unix::fs::MetadataExt;
    (metadata.dev(), metadata.ino())
}

/// How files are opened. A pipe that nobody writes to would keep `open` waiting for ever, so it must not wait; for a regular file
/// that makes no difference.
fn reading() -> OpenOptions {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NONBLOCK);
    options
}

/// What lies in a folder, sorted by name, since the system lists it in any order. Hidden entries are left out.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let entries = std::fs::read_dir(folder).map_err(|source| DataError::read(folder, source))?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| DataError::read(folder, source))?.path();
        if !name_of(&path).starts_with('.') {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// The last part of a path, for people and for comparing with known names.
pub(crate) fn name_of(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The first of these names that is a file in the folder.
pub(crate) fn first_file(folder: &Path, names: &[String]) -> Option<PathBuf> {
    names.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::{first_file, list, name_of, read};

    #[test]
    fn a_folder_is_listed_in_order_without_hidden_files() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", ".hidden", "a"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let names: Vec<String> = list(folder.path()).unwrap().iter().map(|path| name_of(path)).collect();
        assert_eq!(names, ["a", "b"]);
        let found = first_file(folder.path(), &["c".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(read(&found).unwrap(), b"b");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap_err().to_string().contains("found a folder"));
        assert!(read(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
        assert!(list(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
        #[cfg(unix)]
        assert!(read(std::path::Path::new("/dev/zero")).unwrap_err().to_string().contains("device"));
    }

    #[cfg(unix)]
    #[test]
    fn a_mapped_file_that_becomes_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0.tar");
        let shorten = || std::fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        let bytes = vec![7_u8; 20_000];
        std::fs::write(&path, &bytes).unwrap();
        let mapped = super::Mapped::open(&path).unwrap();
        assert_eq!(mapped.bytes().unwrap(), bytes);
        shorten();
        let error = mapped.bytes().unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("0.tar: it has become shorter"), "{error}");
        // One that was replaced or removed is still there for those who have it.
        std::fs::write(&path, &bytes).unwrap();
        let mapped = super::Mapped::open(&path).unwrap();
        std::fs::write(folder.path().join("new"), b"other").unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(mapped.bytes().unwrap().len(), 20_000);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(mapped.bytes().unwrap()[19_999], 7);
        std::fs::write(&path, b"").unwrap();
        let empty = super::Mapped::open(&path).unwrap();
        assert!(empty.len() == 0 && empty.bytes().unwrap().is_empty());
    }

    #[cfg(unix)]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test must not wait for ever")]
    fn a_pipe_is_refused_without_waiting_for_its_writer() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("train.csv");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (sender, result) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(read(&pipe).unwrap_err().to_string()));
        let error = result.recv_timeout(std::time::Duration::from_secs(60)).expect("an answer, not a wait for ever");
        assert!(error.contains("a pipe"), "{error}");
    }
}
