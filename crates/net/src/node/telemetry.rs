//! What peers tell the first member of the view about themselves, for its records.

use std::time::Duration;

use bytes::Bytes;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::wire::{Frame, Kind};
use tokio::time::Instant;

use super::{Node, Tell};
use crate::inbox::{self, LinkEvent};
use crate::report::Report;

/// How long the first member waits, when all is done, for what others have yet to tell.
const HEAR_OUT: Duration = Duration::from_secs(2);

impl Node {
    pub(super) fn send_telemetry(&mut self, bytes: Bytes) {
        let first = self.peer.view().members[0];
        if first != self.endpoint.identity().peer {
            self.contacts.send(first, self.membership.address_of(first), Frame::new(Kind::Telemetry, bytes));
        }
    }

    pub(super) fn on_telemetry(&mut self, from: PeerId, bytes: &Bytes, report: Tell<'_>) {
        if self.peer.view().rank(from).is_some() && self.telemetry.admits(self.now(), from, bytes.len()) {
            report(Report::Telemetry { from, bytes }, &*self.peer);
        }
    }

    /// The others end at the same time, and the last that they tell about themselves may still be on its way: until they have closed
    /// their links, but not for long.
    pub(super) async fn hear_others_out(&mut self, report: Tell<'_>) {
        let view = self.peer.view().clone();
        if view.members[0] != self.endpoint.identity().peer {
            return;
        }
        let until = Instant::now() + HEAR_OUT;
        while view.members.iter().any(|&peer| self.contacts.has_link(peer)) {
            let Ok(Some(LinkEvent { peer, link, event })) = tokio::time::timeout_at(until, self.inbox.next()).await
            else {
                return;
            };
            match event {
                inbox::Event::Frame(frame) if frame.head.kind == Kind::Telemetry => {
                    self.on_telemetry(peer, &frame.body, report);
                }
                inbox::Event::Frame(_) => {}
                inbox::Event::Closed(_) => drop(self.contacts.on_closed(peer, link)),
            }
        }
    }
}
