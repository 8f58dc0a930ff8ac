//! The shaper: makes a fast network as slow as a real one, without asking the operating system.
//!
//! All links of a process share one card, as they would in a machine of their own: it lets bytes out one after the other at
//! its rate, and each arrives after the way's delay. Only frames count, not what encryption and TCP add (about 4 %).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use nettorrent_swarm::link_spec::LinkSpec;

use crate::outflow::Outflow;

// How far ahead the card is booked. Timers come up to a millisecond late and a busy thread later, and the card should not
// stand idle meanwhile; but what is booked stands in the way of other links' frames.
const HORIZON: Duration = Duration::from_millis(4);
// Timers are no finer than a millisecond, so what is due within half of one is due now: early as often as late.
const TOLERANCE: Duration = Duration::from_micros(500);
// Links take turns on the card with pieces of at least a packet and at most this.
const MIN_PIECE: u64 = 1500;
const MAX_PIECE: u64 = 64 << 10;

/// A card that several links share.
#[derive(Debug)]
pub struct Shaper {
    link: LinkSpec,
    // When the last booked byte will have left.
    free_at: Mutex<Option<Instant>>,
}

/// What slows down a process's links; by default nothing does.
#[derive(Clone, Debug, Default)]
pub struct Shapers {
    /// For what is sent.
    pub send: Option<Arc<Shaper>>,
    /// For what is received. Only its rate counts.
    pub receive: Option<Arc<Shaper>>,
}

impl Shaper {
    /// A card with this link.
    pub fn new(link: LinkSpec) -> Arc<Self> {
        Arc::new(Self { link, free_at: Mutex::new(None) })
    }

    /// Waits until so many bytes have come in.
    pub(crate) async fn receive(&self, n_bytes: usize) {
        let now = Instant::now();
        let mut arrived = now;
        if let Some(rate) = self.link.bits_per_second {
            let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
            arrived = free_at.unwrap_or(now).max(now) + time_for(n_bytes, rate);
            *free_at = Some(arrived);
        }
        if arrived > now + TOLERANCE {
            tokio::time::sleep_until(arrived).await;
        }
    }

    /// Books up to `n_bytes` if the card is free soon enough: how many, and when their last one leaves.
    fn book(&self, now: Instant, n_bytes: usize) -> Option<(usize, Instant)> {
        let Some(rate) = self.link.bits_per_second else { return Some((n_bytes, now)) };
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let start = free_at.unwrap_or(now).max(now);
        if start > now + HORIZON {
            return None;
        }
        let within_horizon = u128::from(rate) / 8 * HORIZON.as_nanos() / 1_000_000_000;
        let piece = (within_horizon as u64).clamp(MIN_PIECE, MAX_PIECE) as usize;
        let n_booked = n_bytes.min(piece);
        let leaves = start + time_for(n_booked, rate);
        *free_at = Some(leaves);
        Some((n_booked, leaves))
    }

    /// When it will be possible to book again.
    fn bookable_at(&self) -> Option<Instant> {
        self.free_at.lock().unwrap_or_else(PoisonError::into_inner).map(|free_at| free_at - HORIZON)
    }
}

fn time_for(n_bytes: usize, bits_per_second: u64) -> Duration {
    let nanos = n_bytes as u128 * 8 * 1_000_000_000 / u128::from(bits_per_second);
    Duration::from_nanos(nanos as u64)
}

/// One link's bytes on their way through the card, in order.
#[derive(Debug)]
pub(crate) struct Pace {
    shaper: Arc<Shaper>,
    // When pieces arrive, and how long they are.
    under_way: VecDeque<(Instant, usize)>,
    n_under_way: usize,
    // What the card has let out, and will have by then. The way's delay keeps no link busy.
    outflow: Outflow,
    busy_until: Option<Instant>,
    // Whether bytes have waited for the card since it was asked last.
    is_waiting: bool,
}

impl Pace {
    pub(crate) fn new(shaper: Arc<Shaper>) -> Self {
        let (under_way, outflow) = (VecDeque::new(), Outflow::default());
        Self { shaper, under_way, n_under_way: 0, outflow, busy_until: None, is_waiting: false }
    }

    /// Given that `n_waiting` bytes wait on this link: how many of them may be handed over now. What the card has room for
    /// is booked on the way.
    pub(crate) fn due(&mut self, now: Instant, n_waiting: usize) -> usize {
        if !self.is_waiting {
            self.busy_until = self.busy_until.max(Some(now));
        }
        while self.n_under_way < n_waiting {
            let Some((n_booked, leaves)) = self.shaper.book(now, n_waiting - self.n_under_way) else { break };
            self.count(n_booked, leaves);
            self.under_way.push_back((leaves + self.shaper.link.delay, n_booked));
            self.n_under_way += n_booked;
        }
        self.is_waiting = self.n_under_way < n_waiting;
        self.under_way.iter().take_while(|(arrives, _)| *arrives <= now + TOLERANCE).map(|(_, n)| n).sum()
    }

    /// So many bytes more will have left the card by then.
    fn count(&mut self, n_bytes: usize, leaves: Instant) {
        let busy_until = self.busy_until.unwrap_or(leaves);
        self.outflow.n_bytes += n_bytes as u64;
        self.outflow.busy += leaves.saturating_duration_since(busy_until);
        self.busy_until = Some(busy_until.max(leaves));
    }

    /// What the card has let out of this link since the last call, and how long the link was busy with it.
    pub(crate) fn take_outflow(&mut self) -> Outflow {
        std::mem::take(&mut self.outflow)
    }

    /// Bytes have been handed over.
    pub(crate) fn handed_over(&mut self, mut n_bytes: usize) {
        self.n_under_way -= n_bytes;
        while let Some((_, n)) = self.under_way.front_mut() {
            let taken = n_bytes.min(*n);
            *n -= taken;
            n_bytes -= taken;
            if *n > 0 {
                break;
            }
            self.under_way.pop_front();
        }
    }

    /// When [`due`](Self::due) has to be asked again, given that `n_waiting` bytes wait.
    pub(crate) fn next(&self, n_waiting: usize) -> Option<Instant> {
        let arrival = self.under_way.front().map(|(arrives, _)| *arrives);
        let booking = if self.n_under_way < n_waiting { self.shaper.bookable_at() } else { None };
        match (arrival, booking) {
            (Some(arrival), Some(booking)) => Some(arrival.min(booking)),
            (arrival, booking) => arrival.or(booking),
        }
    }
}
