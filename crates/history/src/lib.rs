//! What happened in a run: written down as it happens, and read back as a whole.
//!
//! A run's folder holds a file of [`Line`]s, one JSON object each. Whoever trains appends to it with an [`EventLog`]; whoever
//! wants to know how it went reads it into a [`History`], once or again and again while the run still goes on.
//!
//! ```
//! use nettorrent_history::{Event, EventLog, History, Line, Reason, Stop};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("events.jsonl");
//! let mut log = EventLog::append(&path)?;
//! let (reason, epoch, step) = (Reason::Finished, 5, 100);
//! let stop = Stop { reason, epoch, step, seconds: 2.0, peak_rss_bytes: None, is_guessing: false };
//! log.write(&Line { at_s: 2.0, event: Event::Stop(stop) })?;
//! assert_eq!(History::read(&path)?.stop.map(|(_, stop)| stop.epoch), Some(5));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod churn;
mod event;
mod history;
mod log;
mod peer_work;
mod tensorboard;
mod words;

pub use churn::{JoinSummary, LossSummary};
pub use event::{
    BadSample, Checkpoint, CheckpointFailed, Differs, Dropped, Epoch, Evaluation, Event, Joined, LeftOut, Line,
    LogFailed, Loss, Note, PeerAddress, Progress, Reason, Replicas, Rollback, Start, StateReceived, Stop, ViewChange,
};
pub use history::{Follower, History, PeerHistory};
pub use log::{EventLog, HistoryError};
pub use nettorrent_engine::measure::Measure;
pub use peer_work::{PeerEpoch, PeerProgress, Resources, Times, Wait};
pub use tensorboard::TensorBoard;
pub use words::cause_text;
