//! The kept corpus: inputs in files, a folder for each target.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of all kept inputs.
pub struct Corpus {
    folder: PathBuf,
}

impl Default for Corpus {
    /// The one that belongs to this program's sources.
    fn default() -> Self {
        Self { folder: Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus") }
    }
}

impl Corpus {
    /// All inputs that are kept for a target, by the names of their files.
    pub fn inputs(&self, target: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
        let folder = self.folder.join(target);
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut paths: Vec<PathBuf> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        let read = |path: PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            Ok((name, fs::read(path)?))
        };
        paths.into_iter().map(read).collect()
    }

    /// Keeps an input, and says where.
    pub fn keep(&self, target: &str, name: &str, input: &[u8]) -> io::Result<PathBuf> {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)?;
        let path = folder.join(name);
        fs::write(&path, input)?;
        Ok(path)
    }
}
