//! The file that a run's events are written to.

use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use nettorrent_files::WriteError;

use crate::event::{Event, Line};

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
    /// A line is not an event.
    #[error("{}, line {line}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Which line, counted from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

/// Where events go: the end of a run's file.
pub struct EventLog {
    path: PathBuf,
    file: File,
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
        drop_half_line(path).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes one event; its line is returned.
    pub fn write(&mut self, at_s: f64, event: Event) -> Result<Line, HistoryError> {
        let line = Line { at_s, event };
        let written = self.file.write_all(line.to_json().as_bytes());
        written.map_err(WriteError::of(&self.path))?;
        Ok(line)
    }
}

/// A full disk or a power cut may have left half a line at the end; the next one must not be glued to it.
fn drop_half_line(path: &Path) -> std::io::Result<()> {
    let text = std::fs::read(path)?;
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if whole < text.len() {
        File::options().write(true).open(path)?.set_len(whole as u64)?;
    }
    Ok(())
}
