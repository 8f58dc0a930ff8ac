//! What happened in a run: in the run's folder for later, on standard output for other programs.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nettorrent_history::{Event, HistoryError, TensorBoard};

/// Where events go, and the clock that they are told by.
pub(crate) struct EventLog {
    file: nettorrent_history::EventLog,
    to_stdout: bool,
    began: Instant,
    /// Where TensorBoard's file is to be, until there is something to write.
    tensorboard_folder: Option<PathBuf>,
    tensorboard: Option<TensorBoard>,
}

impl EventLog {
    /// Appends to a run's file; `to_stdout` also prints each line, and TensorBoard's file is for those who want one.
    pub(crate) fn append(
        path: &Path,
        to_stdout: bool,
        tensorboard_folder: Option<PathBuf>,
    ) -> Result<Self, HistoryError> {
        let (file, began) = (nettorrent_history::EventLog::append(path)?, Instant::now());
        Ok(Self { file, to_stdout, began, tensorboard_folder, tensorboard: None })
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
        if let Some(folder) = self.tensorboard_folder.take() {
            self.tensorboard = Some(TensorBoard::create(&folder, SystemTime::now() - self.elapsed())?);
        }
        if let Some(tensorboard) = &mut self.tensorboard {
            tensorboard.add(at.as_secs_f64(), &event)?;
        }
        let line = self.file.write(at.as_secs_f64(), event)?;
        // Who read the events may have seen enough; the run goes on, and its folder holds them all.
        if self.to_stdout && io::stdout().write_all(line.as_bytes()).is_err() {
            self.to_stdout = false;
        }
        Ok(())
    }
}
