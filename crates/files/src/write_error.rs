//! What can go wrong when a file is written.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A file or folder could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}{}", path.display(), self.advice())]
pub struct WriteError {
    /// Which.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl WriteError {
    /// For `map_err`: which file or folder it is about.
    pub fn of(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self { path: path.to_owned(), source }
    }

    /// What to do about it, to be put after a message; empty if there is nothing to say.
    pub fn advice(&self) -> &'static str {
        match self.source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; make room on the disk",
            ErrorKind::FileTooLarge => "; files this large are not allowed here: raise the limit (`ulimit -f`)",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => "; choose a folder that can be written",
            _ => "",
        }
    }

    /// The same about a file of a run that can be resumed.
    pub fn advice_in_run(&self) -> String {
        let advice = self.advice();
        match self.source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                format!("{advice} and resume the run")
            }
            _ => advice.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};
    use std::path::Path;

    use super::WriteError;

    #[test]
    fn a_run_is_resumed_only_where_there_is_one() {
        let of = |kind: ErrorKind| WriteError::of(Path::new("job.toml"))(io::Error::from(kind));
        let full = of(ErrorKind::StorageFull);
        assert!(full.to_string().ends_with("; make room on the disk"), "{full}");
        assert_eq!(full.advice_in_run(), "; make room on the disk and resume the run");
        assert!(of(ErrorKind::FileTooLarge).advice_in_run().ends_with("(`ulimit -f`) and resume the run"));
        let refused = of(ErrorKind::PermissionDenied);
        assert_eq!(refused.advice_in_run(), refused.advice());
        assert_eq!(of(ErrorKind::NotFound).advice_in_run(), "");
    }
}
