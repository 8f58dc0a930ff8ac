//! Where a node's time goes and how fast it is, from what happens in its loop and from what its links count.

use std::time::Duration;

use nettorrent_swarm::record::{Event, Record, Spent};
use nettorrent_swarm::{Input, Peer, PeerId, Waiting};
use tokio::time::Instant;

use crate::inbox::LinkId;
use crate::outflow::{Meter, Outflow, bytes_per_s};
use crate::speed::Speed;

/// What is measured of a node. All times are since it began.
pub(crate) struct Meters {
    speed: Speed,
    /// Where time went since the last round, and what the links had let out by then.
    spent: Spent,
    sent: Meter,
    /// For whom the peer has waited since then.
    waiting: Waiting,
    measures_waits: bool,
    /// What the links had let out by the last tick, and when that was.
    sent_by_tick: Meter,
    last_tick: Duration,
}

/// An input that the peer is at.
pub(crate) struct Handling {
    began: Instant,
    what: What,
}

enum What {
    Computed,
    Received,
    Other,
}

impl Meters {
    /// Nothing measured yet; `measures_waits` says whether to find out for whom the peer waits.
    pub(crate) fn new(measures_waits: bool) -> Self {
        Self {
            speed: Speed::default(),
            spent: Spent::default(),
            sent: Meter::default(),
            waiting: Waiting::default(),
            measures_waits,
            sent_by_tick: Meter::default(),
            last_tick: Duration::ZERO,
        }
    }

    /// The peer is handed an input.
    pub(crate) fn begin(&mut self, now: Duration, input: &Input) -> Handling {
        let what = match input {
            Input::Done { .. } => What::Computed,
            Input::Frame { .. } => What::Received,
            _ => What::Other,
        };
        let began = Instant::now();
        self.waiting.pass(now);
        Handling { began, what }
    }

    /// It has handled it: what it computed was encoded to be sent, or what it received was decoded.
    pub(crate) fn end(&mut self, handling: &Handling) {
        match handling.what {
            What::Computed => self.spent.encode += handling.began.elapsed(),
            What::Received => self.spent.decode += handling.began.elapsed(),
            What::Other => {}
        }
    }

    /// So the peer stands until something else happens.
    pub(crate) fn go_on(&mut self, peer: &dyn Peer) {
        if self.measures_waits {
            self.waiting.go_on(peer.status());
        }
    }

    /// Adds what was measured to what the peer tells; returns for whom it waited, if this is the end of a round.
    pub(crate) fn complete(
        &mut self,
        now: Duration,
        record: &mut Record,
        outflows: impl Iterator<Item = (LinkId, Outflow)>,
    ) -> Vec<(PeerId, Duration)> {
        match record.event {
            Event::Batch { n_samples, .. } => {
                self.speed.count(now, n_samples);
                Vec::new()
            }
            Event::Round { wait_s, .. } | Event::Synced { wait_s, .. } => {
                let sent = self.sent.since_last(outflows);
                self.spent.send += sent.iter().map(|outflow| outflow.busy).sum::<Duration>();
                self.spent.write_into(record);
                self.waiting.take(Duration::from_secs_f64(wait_s))
            }
            _ => Vec::new(),
        }
    }

    /// How many bytes a second the links carry, if they had enough to do since the last tick to tell.
    pub(crate) fn uplink(&mut self, now: Duration, outflows: impl Iterator<Item = (LinkId, Outflow)>) -> Option<f64> {
        let outflows = self.sent_by_tick.since_last(outflows);
        let elapsed = now.saturating_sub(std::mem::replace(&mut self.last_tick, now));
        bytes_per_s(&outflows, elapsed)
    }

    /// What the peer trains in a second, over the last rounds.
    pub(crate) fn samples_per_s(&self, now: Duration) -> f64 {
        self.speed.per_second(now)
    }
}
