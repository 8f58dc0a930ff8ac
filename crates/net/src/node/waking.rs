//! What a node does when its time has come: timers, membership, and how its peer's work gets on.

use std::time::Duration;

use nettorrent_swarm::Input;
use tokio::time::Instant;

use super::{JOIN_DEADLINES, NOBODY_LEFT, Node, Tell};
use crate::churn::Sign;
use crate::membership::{self, WorkState};
use crate::report::Report;

/// How many deadlines the thread that computes may always be at something, however quick it usually is.
const LEAST_PATIENCE: u32 = 2;
/// How many deadlines a block may take to be written until another member is to keep the network.
const DISK_PATIENCE: u32 = 10;

impl Node {
    pub(super) fn next_wake(&self) -> Instant {
        let wake_at = self.timers.wake_at();
        self.began + self.membership.wake_at().map_or(wake_at, |at| at.min(wake_at))
    }

    pub(super) fn on_wake(&mut self, report: Tell<'_>) {
        let now = self.now();
        if self.timers.take_tick(now) {
            report(Report::Tick, &*self.peer);
            self.check_joining(now);
            self.check_certificates(report);
            self.tell_of_folder(report);
            self.tell_of_ticket(report);
            self.tell_of_routes(report);
            if let Some(bytes_per_s) = self.meters.uplink(now, self.contacts.outflows()) {
                self.on_input(Input::Uplink(bytes_per_s), report);
            }
        }
        while let Some(token) = self.timers.take_due(now) {
            self.on_input(Input::Timer(token), report);
        }
        if self.membership.wake_at().is_some_and(|at| at <= now) {
            let work = self.work_state(now);
            self.on_members(membership::Input::Work(work), report);
            let heard = self.contacts.heard();
            heard.iter().for_each(|peer| self.churn.hear(now, *peer, Sign::Life));
            self.on_members(membership::Input::Heard(heard), report);
            self.on_members(membership::Input::Wake, report);
        }
    }

    /// How the peer's work gets on.
    fn work_state(&mut self, now: Duration) -> WorkState {
        let deadline = self.settings.membership.deadline;
        if self.compute.is_stuck(deadline.saturating_mul(LEAST_PATIENCE)) {
            return WorkState::Stuck;
        }
        let status = self.peer.status();
        // A disk is what it waits for only if it waits for nobody.
        let has_time = |since: Duration| now.saturating_sub(since) < deadline.saturating_mul(DISK_PATIENCE);
        let waits_for_disk = self.writes_since.is_some_and(has_time) && status.waits_for.is_empty();
        let is_busy = self.compute.is_busy() || self.contacts.are_busy() || waits_for_disk;
        self.idleness.look(now, deadline, status, is_busy).map_or(WorkState::Busy, WorkState::Waiting)
    }

    /// Whoever asked to be let in may find that all others have ended meanwhile.
    fn check_joining(&mut self, now: Duration) {
        if self.membership.view().is_some() {
            self.joins_by = None;
        } else if self.contacts.has_links() {
            self.joins_by = self.joins_by.map(|_| now + JOIN_DEADLINES * self.settings.membership.deadline);
        }
        if self.joins_by.is_some_and(|by| now > by) {
            self.failure.get_or_insert_with(|| NOBODY_LEFT.to_owned());
        }
    }
}
