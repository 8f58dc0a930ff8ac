//! The file that a run's events are written to.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use nettorrent_files::WriteError;

use crate::event::Line;

/// Why a history cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Somebody else writes it.
    #[error("another process is training this run ({} is locked); stop it first", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
}

/// Where events go: the end of a run's file.
pub struct EventLog {
    path: PathBuf,
    file: File,
    /// How long the file is, up to the end of its last whole line.
    n_bytes: u64,
    /// Whether a part of a line may stand behind that.
    is_torn: bool,
}

impl EventLog {
    /// Appends to a run's file.
    ///
    /// The file is locked as long as this lives: two processes that train the same run would spoil each other's work.
    pub fn append(path: &Path) -> Result<Self, HistoryError> {
        let failed = WriteError::of(path);
        let file = File::options().create(true).append(true).open(path).map_err(&failed)?;
        // Some file systems have no locks; there people must take care themselves.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(HistoryError::Locked { path: path.to_owned() });
        }
        let text = std::fs::read(path).map_err(&failed)?;
        let n_bytes = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at as u64 + 1);
        // A full disk or a power cut may have left half a line at the end.
        let mut log = Self { path: path.to_owned(), file, n_bytes, is_torn: n_bytes < text.len() as u64 };
        log.cut_back().map_err(failed)?;
        Ok(log)
    }

    /// Writes one line. If that fails, nothing of it stays in the file, and the next may be tried.
    pub fn write(&mut self, line: &Line) -> Result<(), HistoryError> {
        let text = line.to_json();
        let written = self.cut_back().and_then(|()| {
            self.is_torn = true;
            self.file.write_all(text.as_bytes())
        });
        if written.is_ok() {
            (self.n_bytes, self.is_torn) = (self.n_bytes + text.len() as u64, false);
        } else {
            // If it cannot be cut back now, it is tried before the next line.
            let _ = self.cut_back();
        }
        Ok(written.map_err(WriteError::of(&self.path))?)
    }

    /// Removes what there is of a line that is not whole: the next one must not be glued to it.
    fn cut_back(&mut self) -> std::io::Result<()> {
        if self.is_torn {
            // A file that is open for appending cannot be cut on Windows.
            File::options().write(true).open(&self.path)?.set_len(self.n_bytes)?;
            self.is_torn = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::EventLog;
    use crate::event::{Event, Line, LogFailed};

    fn line(n_lines: u64) -> Line {
        Line { at_s: 0.5, event: Event::LogFailed(LogFailed { n_lines, problem: "no room".into() }) }
    }

    #[test]
    fn what_is_left_of_a_torn_line_is_cut_off_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events.jsonl");
        let whole = |n_lines: &[u64]| n_lines.iter().map(|&n| line(n).to_json()).collect::<String>();
        let mut log = EventLog::append(&path).unwrap();
        log.write(&line(1)).unwrap();
        // As a write leaves it that fails in the middle, when the file cannot be cut either.
        std::fs::write(&path, whole(&[1]) + r#"{"at_s":0.5,"ev"#).unwrap();
        log.is_torn = true;
        log.write(&line(2)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole(&[1, 2]));
        drop(log);
        std::fs::write(&path, whole(&[1, 2]) + "{").unwrap();
        EventLog::append(&path).unwrap().write(&line(3)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), whole(&[1, 2, 3]));
    }
}
