//! What happened in a run: in the run's folder for later, on standard output for other programs.

use std::path::Path;
use std::time::{Duration, Instant};

use nettorrent_history::{Event, HistoryError};

/// Where events go, and the clock that they are told by.
pub(crate) struct EventLog {
    file: nettorrent_history::EventLog,
    to_stdout: bool,
    began: Instant,
}

impl EventLog {
    /// Appends to a run's file; `to_stdout` also prints each line.
    pub(crate) fn append(path: &Path, to_stdout: bool) -> Result<Self, HistoryError> {
        Ok(Self { file: nettorrent_history::EventLog::append(path)?, to_stdout, began: Instant::now() })
    }

    /// Whether another program may be reading the events on standard output.
    pub(crate) fn is_printed(&self) -> bool {
        self.to_stdout
    }

    /// The time since training began, or went on.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Writes down what happens now.
    pub(crate) fn write(&mut self, event: Event) -> Result<(), HistoryError> {
        self.write_at(self.elapsed(), event)
    }

    /// Writes down what happened at another clock's time.
    pub(crate) fn write_at(&mut self, at: Duration, event: Event) -> Result<(), HistoryError> {
        let line = self.file.write(at.as_secs_f64(), event)?;
        if self.to_stdout {
            print!("{line}");
        }
        Ok(())
    }
}
