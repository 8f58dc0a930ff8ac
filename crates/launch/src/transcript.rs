//! Keeps in a run's folder here what is told of the run elsewhere.

use std::time::Duration;

use nettorrent_history::{Event, Line};
use nettorrent_session::event_log::EventLog;
use nettorrent_session::{RunFolder, SessionError};

/// A run that goes on elsewhere, as it is written down here.
pub struct Transcript<'a> {
    run: &'a RunFolder,
    events: EventLog,
}

impl<'a> Transcript<'a> {
    /// In this folder.
    pub fn new(run: &'a RunFolder) -> Result<Self, SessionError> {
        Ok(Self { run, events: run.open_events(false)? })
    }

    /// Writes an event down; it comes back as it is here, where the run's folder is another.
    pub fn keep(&mut self, line: &Line) -> Line {
        let mut line = line.clone();
        if let Event::Start(start) = &mut line.event {
            start.run = self.run.path().to_owned();
        }
        self.events.write_at(Duration::from_secs_f64(line.at_s.max(0.0)), line.event.clone());
        line
    }

    /// Keeps the ticket, so that the swarm can be asked from here.
    pub fn keep_ticket(&self, ticket: &str) -> Result<(), String> {
        let ticket = ticket.parse().map_err(|_| "it is none".to_owned())?;
        self.run.write_ticket(&ticket).map_err(|error| error.to_string())
    }
}
