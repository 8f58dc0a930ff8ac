//! What happens in a run: in the run's folder for later, and for those who follow it.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nettorrent_history::{Event, HistoryError, Line, LogFailed, TensorBoard};
use tokio::time::Instant;

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the run's folder, or was to be.
    Written,
    /// It is for displays only: there are too many of its kind to keep.
    Shown,
}

type Follower = dyn FnMut(&Line, Fate);

/// Where events go, and the clock that they are told by. No run is lost because its events cannot be written: that is said once,
/// and counted.
pub struct EventLog {
    file: nettorrent_history::EventLog,
    began: Instant,
    /// Where TensorBoard's file is to be, until there is something to write.
    tensorboard_folder: Option<PathBuf>,
    tensorboard: Option<TensorBoard>,
    follower: Option<Box<Follower>>,
    failed: Option<LogFailed>,
}

impl EventLog {
    /// Appends to a run's file; TensorBoard's file is for those who want one.
    pub fn append(path: &Path, tensorboard_folder: Option<PathBuf>) -> Result<Self, HistoryError> {
        let (file, began) = (nettorrent_history::EventLog::append(path)?, Instant::now());
        Ok(Self { file, began, tensorboard_folder, tensorboard: None, follower: None, failed: None })
    }

    /// Has every event from now on shown to somebody.
    pub fn follow(&mut self, follower: impl FnMut(&Line, Fate) + 'static) {
        self.follower = Some(Box::new(follower));
    }

    /// The time since training began, or went on.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Writes down what happens now.
    pub fn write(&mut self, event: Event) {
        self.write_at(self.elapsed(), event);
    }

    /// Writes down what happened at another clock's time.
    pub fn write_at(&mut self, at: Duration, event: Event) {
        let line = Line { at_s: at.as_secs_f64(), event };
        if let Err(problem) = self.add_to_tensorboard(&line) {
            // What follows a record that is not whole, nobody could read.
            self.tensorboard = None;
            self.miss(at, &problem);
        }
        if let Err(problem) = self.file.write(&line) {
            self.miss(at, &problem);
        }
        self.tell(&line, Fate::Written);
    }

    /// The run ends: writes down how many events are missing, if any are.
    pub fn tell_missing(&mut self, at: Duration) {
        if let Some(failed) = self.failed.clone() {
            self.write_at(at, Event::LogFailed(failed));
        }
    }

    fn add_to_tensorboard(&mut self, line: &Line) -> Result<(), HistoryError> {
        if let Some(folder) = self.tensorboard_folder.take() {
            self.tensorboard = Some(TensorBoard::create(&folder, SystemTime::now() - self.elapsed())?);
        }
        self.tensorboard.as_mut().map_or(Ok(()), |tensorboard| tensorboard.add(line.at_s, &line.event))
    }

    /// Counts what could not be written; the first time, who follows is told.
    fn miss(&mut self, at: Duration, problem: &HistoryError) {
        if let Some(failed) = &mut self.failed {
            failed.n_lines += 1;
            return;
        }
        let failed = LogFailed { n_lines: 1, problem: problem.to_string() };
        self.failed = Some(failed.clone());
        self.tell(&Line { at_s: at.as_secs_f64(), event: Event::LogFailed(failed) }, Fate::Written);
    }

    /// Shows an event to who follows, without writing it.
    pub fn show(&mut self, event: Event) {
        let at_s = self.elapsed().as_secs_f64();
        self.tell(&Line { at_s, event }, Fate::Shown);
    }

    fn tell(&mut self, line: &Line, fate: Fate) {
        if let Some(follower) = &mut self.follower {
            follower(line, fate);
        }
    }
}
