//! What comes over a node's links: connections that arrive, calls that come through, frames, and ends.

use nettorrent_swarm::Input;
use nettorrent_swarm::wire::Kind;

use super::{Node, Tell};
use crate::churn::Sign;
use crate::close_reason::CloseReason;
use crate::contacts::Dialled;
use crate::endpoint::Arrival;
use crate::hello::Purpose;
use crate::inbox::{self, LinkEvent};
use crate::membership;
use crate::report::Report;

/// How many events of links are looked at before anything else has its turn.
const MOST_AT_ONCE: usize = 65;

impl Node {
    pub(super) fn on_arrival(&mut self, arrival: Arrival, report: Tell<'_>) {
        match arrival {
            Arrival::Refused(turned_away) => report(Report::Refused(turned_away.to_string()), &*self.peer),
            Arrival::Incoming(connection) => match connection.hello().purpose {
                Purpose::Peer { .. } => {
                    let peer = connection.peer();
                    self.contacts.add(connection.start(self.inbox_sender.clone()));
                    self.greet(peer, report);
                }
                Purpose::Joiner { .. } | Purpose::Observer => {
                    self.visitors.add(connection, self.inbox_sender.clone());
                }
            },
        }
    }

    pub(super) fn on_dialled(&mut self, dialled: Dialled, report: Tell<'_>) {
        let peer = dialled.peer;
        if let Err(problem) = self.contacts.on_dialled(dialled, &self.inbox_sender) {
            self.on_refused(problem.refusal_by_them());
            if problem.is_worth_telling() {
                report(Report::Refused(format!("{peer}: {problem}")), &*self.peer);
            }
            let input = if problem.shows_end() { membership::Input::Refused } else { membership::Input::Unreachable };
            self.on_members(input(peer), report);
        } else if self.contacts.has_link(peer) {
            self.greet(peer, report);
        }
    }

    /// Looks at what came over a link, and at what has come meanwhile: asking the system anew for each frame would cost more than the
    /// frames.
    pub(super) fn on_link_events(&mut self, first: LinkEvent, report: Tell<'_>) {
        self.on_link_event(first, report);
        for _ in 1..MOST_AT_ONCE {
            let Some(event) = self.inbox.try_next() else { break };
            self.on_link_event(event, report);
        }
    }

    fn on_link_event(&mut self, event: LinkEvent, report: Tell<'_>) {
        let LinkEvent { peer, link, event } = event;
        if let inbox::Event::Frame(frame) = &event
            && !self.visitors.has(link)
        {
            let sign = sign_of(frame.head.kind);
            self.churn.hear(self.now(), peer, sign);
            if sign == Sign::Training {
                self.idleness.hear(peer);
            }
        }
        match event {
            inbox::Event::Frame(frame) if self.visitors.has(link) => self.answer(link, &frame, report),
            inbox::Event::Frame(frame) => match frame.head.kind {
                Kind::Membership | Kind::Probe => {
                    self.on_members(membership::Input::Packet { from: peer, bytes: frame.body }, report);
                }
                Kind::Telemetry => self.on_telemetry(peer, &frame.body, report),
                Kind::Service => self.on_trust_message((peer, link), &frame, report),
                Kind::Hello => self.contacts.cut(peer),
                Kind::Agreement | Kind::Snapshot | Kind::Strategy | Kind::Tested | Kind::Layers | Kind::Pace => {
                    // What is said for a later view is kept until then, so only those may say it who can be in that view.
                    if frame.head.view <= self.peer.view().number || self.membership.lists(peer) {
                        self.on_input(Input::Frame { from: peer, frame }, report);
                    }
                }
            },
            inbox::Event::Closed(reason) => {
                if let CloseReason::Shared(problem) = &reason {
                    report(Report::Refused(format!("{peer} was cut off: {problem}")), &*self.peer);
                }
                self.visitors.remove(link);
                // What was on its way may be lost, so the round cannot end: the members have to agree anew.
                if self.contacts.on_closed(peer, link) {
                    self.on_members(membership::Input::Broken(peer), report);
                }
                if !self.contacts.has_link(peer) {
                    self.churn.disconnect(peer);
                    self.on_input(Input::LinkEnded(peer), report);
                }
            }
        }
    }
}

/// What a message shows of who sends it.
fn sign_of(kind: Kind) -> Sign {
    match kind {
        Kind::Membership | Kind::Probe | Kind::Telemetry | Kind::Service | Kind::Hello => Sign::Life,
        Kind::Agreement | Kind::Snapshot | Kind::Strategy | Kind::Tested | Kind::Layers | Kind::Pace => Sign::Training,
    }
}
