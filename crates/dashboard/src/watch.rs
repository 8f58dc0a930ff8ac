//! A run as it is watched: its history so far, and what was last shown of it.

use std::io::ErrorKind;
use std::path::Path;

use nettorrent_history::{Follower, HistoryError};

use crate::board::board;
use crate::prometheus;
use crate::totals::Totals;

/// A run that is watched.
pub(crate) struct Watch {
    name: String,
    follower: Follower,
    totals: Totals,
    /// What was last shown, as long as nothing is new: drawing it again would give the same.
    board: Option<String>,
}

impl Watch {
    pub(crate) fn new(events: &Path, name: String) -> Self {
        Self { name, follower: Follower::new(events), totals: Totals::default(), board: None }
    }

    /// Reads what is new.
    pub(crate) fn catch_up(&mut self) -> Result<(), HistoryError> {
        let read = self.follower.catch_up();
        if !matches!(read, Ok(0)) {
            self.totals.add(&self.follower.history);
            self.board = None;
        }
        match read {
            // Nothing has been written yet.
            Err(HistoryError::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(()),
            read => read.map(drop),
        }
    }

    /// What the page shows, as JSON.
    pub(crate) fn board(&mut self) -> String {
        let draw = || board(&self.name, &self.follower.history, &self.totals).to_string();
        self.board.get_or_insert_with(draw).clone()
    }

    /// The numbers for Prometheus.
    pub(crate) fn metrics(&self) -> String {
        prometheus::text(&self.name, &self.follower.history, &self.totals)
    }
}
