//! A file on its way: the bytes so far, and which address they came from.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::CacheError;

/// `NAME.part` with the bytes so far, `NAME.origin` with their address and entity tag, and `NAME`
/// once all is here and checked.
pub(crate) struct Partial {
    finished: PathBuf,
    origin: PathBuf,
    part: PathBuf,
}

impl Partial {
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self {
            finished: folder.join(name),
            origin: folder.join(format!("{name}.origin")),
            part: folder.join(format!("{name}.part")),
        }
    }

    /// Where the file is once it is here and checked.
    pub(crate) fn finished(&self) -> &Path {
        &self.finished
    }

    /// Where the bytes so far are.
    pub(crate) fn part(&self) -> &Path {
        &self.part
    }

    /// How many bytes are here so far.
    pub(crate) fn n_bytes(&self) -> u64 {
        fs::metadata(&self.part).map_or(0, |metadata| metadata.len())
    }

    /// The entity tag of the bytes so far, if they came from that address and it is one that
    /// promises equal bytes (a weak tag, `W/"..."`, does not).
    pub(crate) fn entity_tag_from(&self, url: &str) -> Option<String> {
        let origin = fs::read_to_string(&self.origin).ok()?;
        let (origin_url, tag) = origin.split_once('\n')?;
        (origin_url == url && tag.starts_with('"')).then(|| tag.to_owned())
    }

    /// Opens the file for what comes next, from `start` on: either the end of what is here, or
    /// the very beginning, which empties it.
    pub(crate) fn open_at(&self, start: u64, url: &str, entity_tag: Option<&str>) -> Result<File, CacheError> {
        let origin = format!("{url}\n{}", entity_tag.unwrap_or_default());
        fs::write(&self.origin, origin).map_err(CacheError::io("could not write ", &self.origin))?;
        let mut options = File::options();
        if start == 0 {
            options.write(true).truncate(true)
        } else {
            options.append(true)
        };
        options.create(true).open(&self.part).map_err(CacheError::io("could not write ", &self.part))
    }

    /// Gives the file its own name. The caller has checked it.
    pub(crate) fn finish(&self) -> Result<(), CacheError> {
        fs::rename(&self.part, &self.finished).map_err(CacheError::io("could not rename ", &self.part))?;
        remove_if_there(&self.origin)
    }

    /// Throws the bytes so far away.
    pub(crate) fn discard(&self) -> Result<(), CacheError> {
        remove_if_there(&self.part)?;
        remove_if_there(&self.origin)
    }

    /// Throws away the finished file too.
    pub(crate) fn discard_all(&self) -> Result<(), CacheError> {
        self.discard()?;
        remove_if_there(&self.finished)
    }
}

fn remove_if_there(path: &Path) -> Result<(), CacheError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CacheError::io("could not remove ", path)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::Partial;

    #[test]
    fn bytes_are_appended_or_begun_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let partial = Partial::new(folder.path(), "a.gz");
        assert_eq!(partial.n_bytes(), 0);
        for (start, n_bytes_after) in [(0, 3), (3, 6), (0, 3)] {
            let mut file = partial.open_at(start, "http://a/", None).expect("opened");
            file.write_all(b"abc").expect("written");
            assert_eq!(partial.n_bytes(), n_bytes_after);
        }
        partial.finish().expect("renamed");
        assert_eq!(partial.n_bytes(), 0);
        assert!(partial.finished().is_file());
    }

    #[test]
    fn a_tag_counts_only_for_its_own_address_and_only_if_strong() {
        let folder = tempfile::tempdir().expect("a folder");
        let partial = Partial::new(folder.path(), "a.gz");
        partial.open_at(0, "http://a/", Some("\"1\"")).expect("opened");
        assert_eq!(partial.entity_tag_from("http://a/").as_deref(), Some("\"1\""));
        assert_eq!(partial.entity_tag_from("http://b/"), None);
        partial.open_at(0, "http://a/", Some("W/\"1\"")).expect("opened");
        assert_eq!(partial.entity_tag_from("http://a/"), None);
    }
}
