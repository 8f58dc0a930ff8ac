//! What happens in a run: in the run's folder for later, and for those who follow it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use nettorrent_history::{Event, HistoryError, Line, TensorBoard};

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is in the run's folder.
    Written,
    /// It is for displays only: there are too many of its kind to keep.
    Shown,
}

type Follower = dyn FnMut(&Line, Fate);

/// Where events go, and the clock that they are told by.
pub struct EventLog {
    file: nettorrent_history::EventLog,
    began: Instant,
    /// Where TensorBoard's file is to be, until there is something to write.
    tensorboard_folder: Option<PathBuf>,
    tensorboard: Option<TensorBoard>,
    follower: Option<Box<Follower>>,
}

impl EventLog {
    /// Appends to a run's file; TensorBoard's file is for those who want one.
    pub fn append(path: &Path, tensorboard_folder: Option<PathBuf>) -> Result<Self, HistoryError> {
        let (file, began) = (nettorrent_history::EventLog::append(path)?, Instant::now());
        Ok(Self { file, began, tensorboard_folder, tensorboard: None, follower: None })
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
    pub fn write(&mut self, event: Event) -> Result<(), HistoryError> {
        self.write_at(self.elapsed(), event)
    }

    /// Writes down what happened at another clock's time.
    pub fn write_at(&mut self, at: Duration, event: Event) -> Result<(), HistoryError> {
        if let Some(folder) = self.tensorboard_folder.take() {
            self.tensorboard = Some(TensorBoard::create(&folder, SystemTime::now() - self.elapsed())?);
        }
        if let Some(tensorboard) = &mut self.tensorboard {
            tensorboard.add(at.as_secs_f64(), &event)?;
        }
        let line = self.file.write(at.as_secs_f64(), event)?;
        self.tell(&line, Fate::Written);
        Ok(())
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
