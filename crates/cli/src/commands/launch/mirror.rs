//! Writes down here, and shows, what happens elsewhere.

use nettorrent_history::{Event, Line};
use nettorrent_launch::{News, Transcript};
use nettorrent_session::event_log::Fate;
use nettorrent_session::live_log::Topology;
use nettorrent_swarm::printable::printable;

use crate::notice::Notice;
use crate::swarm::progress_view::{ProgressView, Shown};

/// A run that goes on elsewhere, as it is shown here.
pub(super) struct Mirror<'a> {
    transcript: Transcript<'a>,
    view: Option<ProgressView>,
    json: bool,
}

impl<'a> Mirror<'a> {
    /// Shows it, and keeps its events.
    pub(super) fn new(transcript: Transcript<'a>, json: bool) -> Self {
        Self { transcript, view: None, json }
    }

    pub(super) fn on_news(&mut self, news: &News<'_>) {
        match news {
            News::Ready(_) => {}
            News::Ticket(ticket) => {
                let kept = self.transcript.keep_ticket(ticket);
                kept.unwrap_or_else(|error| self.tell(&format!("the ticket is not kept: {error}")));
            }
            News::Event(line) => self.on_event(line),
            // It comes from another machine.
            News::Said { host, text } => self.tell(&format!("{host}: {}", printable(text))),
            News::Ended { host, status } if !status.success() => self.tell(&format!("{host}: ended with {status}")),
            News::Ended { .. } => {}
        }
    }

    fn on_event(&mut self, line: &Line) {
        let line = self.transcript.keep(line);
        if let Event::Start(start) = &line.event {
            let shown = Shown { epochs: start.epochs, n_train: start.n_train, measure: start.measure };
            self.view = Some(ProgressView::new(&shown, Topology::OneOfMany, self.json));
        }
        self.view.iter_mut().for_each(|view| view.show(&line, Fate::Written));
    }

    fn tell(&self, text: &str) {
        match &self.view {
            Some(view) => view.tell(text),
            None => Notice { json: self.json }.tell(text),
        }
    }

    pub(super) fn finish(&mut self) {
        self.view.iter_mut().for_each(ProgressView::finish);
    }
}
