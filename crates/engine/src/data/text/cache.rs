//! Files that are made of data once and kept beside them, so that the next run need not make them again.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::super::DataError;

/// The hidden folder beside the data. Whoever wants the room may remove it at any time.
const FOLDER: &str = ".nettorrent";

/// Writes what a file is to hold.
pub(crate) type Make<'a> = dyn FnMut(&mut dyn Write) -> Result<(), DataError> + 'a;

/// The folder of such files for one data set.
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The folder for data in this file or folder.
    pub(crate) fn beside(data: &Path) -> Self {
        let folder = if data.is_dir() { data } else { data.parent().unwrap_or(Path::new("")) };
        Self { folder: folder.join(FOLDER) }
    }

    /// The file of this name and its path, made if it is not there or not `sound`.
    ///
    /// It appears whole or not at all, and several processes may make it at once. Where nothing can be written beside the data
    /// it is made in the system's folder for temporary files, and is gone when it is closed.
    pub(crate) fn open(
        &self,
        name: &str,
        sound: impl Fn(&mut File) -> bool,
        make: &mut Make<'_>,
    ) -> Result<(File, PathBuf), DataError> {
        let path = self.folder.join(name);
        if let Ok(mut file) = File::open(&path)
            && sound(&mut file)
        {
            return Ok((rewound(file, &path)?, path));
        }
        let Ok(mut partial) = fs::create_dir_all(&self.folder).and_then(|()| self.begin()) else {
            let folder = std::env::temp_dir();
            let mut file = tempfile::tempfile().map_err(|source| DataError::Write { path: folder.clone(), source })?;
            fill(&mut file, &folder, make)?;
            return Ok((rewound(file, &folder)?, folder));
        };
        fill(partial.as_file_mut(), &path, make)?;
        let file =
            partial.persist(&path).map_err(|error| DataError::Write { path: path.clone(), source: error.error })?;
        Ok((rewound(file, &path)?, path))
    }

    /// A file of another name, which nobody else writes, and which is removed unless it is finished. Others may read it as
    /// they may read other new files.
    fn begin(&self) -> std::io::Result<NamedTempFile> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(".").suffix(".partial");
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(&self.folder)
    }

    /// What the text file of this name says, made if it is not there or not `sound`.
    pub(crate) fn text(
        &self,
        name: &str,
        sound: impl Fn(&str) -> bool,
        make: impl Fn() -> Result<String, DataError>,
    ) -> Result<String, DataError> {
        let read = |file: &mut File| {
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        };
        let (mut file, path) = self.open(name, |file| read(file).is_ok_and(|text| sound(&text)), &mut |out| {
            let text = make()?;
            out.write_all(text.as_bytes()).map_err(|source| DataError::Write { path: self.folder.clone(), source })
        })?;
        read(&mut file).map_err(|source| DataError::read(&path, source))
    }
}

fn fill(file: &mut File, path: &Path, make: &mut Make<'_>) -> Result<(), DataError> {
    let failed = |source| DataError::Write { path: path.to_owned(), source };
    let mut out = BufWriter::new(&mut *file);
    make(&mut out)?;
    out.flush().map_err(failed)?;
    drop(out);
    file.sync_all().map_err(failed)
}

fn rewound(mut file: File, path: &Path) -> Result<File, DataError> {
    file.rewind().map_err(|source| DataError::read(path, source))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::Cache;
    use crate::data::DataError;

    #[test]
    fn a_file_is_made_once_and_again_when_it_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::beside(&folder.path().join("data.txt"));
        let n_made = Cell::new(0);
        let make = || {
            n_made.set(n_made.get() + 1);
            Ok("made".to_owned())
        };
        let text = || cache.text("x.json", |text| text == "made", make).unwrap();
        assert_eq!((text(), text(), n_made.get()), ("made".to_owned(), "made".to_owned(), 1));
        std::fs::write(folder.path().join(".nettorrent/x.json"), "mad").unwrap();
        assert_eq!((text(), n_made.get()), ("made".to_owned(), 2));
        assert_eq!(std::fs::read_dir(folder.path().join(".nettorrent")).unwrap().count(), 1, "nothing is left over");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let write = || cache.text("y", |_| true, || Ok("long ".repeat(100_000))).unwrap().len();
                scope.spawn(move || assert_eq!(write(), 500_000));
            }
        });
    }

    #[test]
    fn data_that_cannot_be_written_beside_will_do() {
        let folder = tempfile::tempdir().unwrap();
        // A file where the folder would be: refused to everybody, unlike a folder without permission, which root may write.
        std::fs::write(folder.path().join(".nettorrent"), "").unwrap();
        let cache = Cache::beside(folder.path());
        assert_eq!(cache.text("x", |_| true, || Ok("made".to_owned())).unwrap(), "made");
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::beside(folder.path());
        let failed = cache.text("x", |_| true, || Err(DataError::Setting("no".to_owned())));
        assert!(failed.is_err() && std::fs::read_dir(folder.path().join(".nettorrent")).unwrap().next().is_none());
    }
}
