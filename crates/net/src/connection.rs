//! A connection that has passed its handshake and carries nothing yet.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nettorrent_swarm::view::PeerId;

use crate::frames::FrameReader;
use crate::hello::Hello;
use crate::inbox::InboxSender;
use crate::limits::Limits;
use crate::link::Link;
use crate::shaper::Shapers;
use crate::wire::{BoxRead, BoxWrite, WireCount};

/// Who called whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// We dialled.
    Outgoing,
    /// They dialled.
    Incoming,
}

/// Two sides that know and want each other. Frames flow once it is [started](Connection::start), so that its owner can note
/// down whose link it is before the first one arrives; dropping it hangs up.
pub struct Connection {
    pub(crate) hello: Hello,
    pub(crate) direction: Direction,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) reader: FrameReader<BoxRead>,
    pub(crate) writer: BoxWrite,
    pub(crate) count: Arc<WireCount>,
    pub(crate) limits: Limits,
    pub(crate) shapers: Shapers,
    pub(crate) slot: Option<Slot>,
}

impl Connection {
    /// Who is at the other end.
    pub fn peer(&self) -> PeerId {
        self.hello.peer
    }

    /// What it said about itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Who called whom.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Where the other end is, if that is a place on a network.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Slows it down as the shapers say.
    #[must_use]
    pub fn shaped(mut self, shapers: Shapers) -> Self {
        self.shapers = shapers;
        self
    }

    /// Lets frames flow; those that arrive go to the inbox. Must be called within a Tokio runtime.
    pub fn start(self, inbox: InboxSender) -> Link {
        Link::start(self, inbox)
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("hello", &self.hello)
            .field("direction", &self.direction)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// One of the places for links that a process has; given back when dropped.
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Takes a place out of so many, counted by `taken`.
    pub(crate) fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < most).then_some(n + 1))
            .ok()
            .map(|_| Self(taken.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Which of two connections to the same peer both sides keep, without asking each other: the one that the lower name has
/// dialled. Of two in the same direction it is the newer, since who dials again has lost the older one.
pub fn prefer(own: PeerId, other: PeerId, existing: Direction, new: Direction) -> Kept {
    let by_the_lower = if own < other { Direction::Outgoing } else { Direction::Incoming };
    if existing != new && existing == by_the_lower { Kept::Existing } else { Kept::New }
}

/// What [`prefer`] keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// The connection that was there.
    Existing,
    /// The connection that came.
    New,
}

#[cfg(test)]
mod tests {
    use super::{Direction, Kept, Slot, prefer};
    use nettorrent_swarm::view::PeerId;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn both_sides_keep_the_same_of_two_crossing_connections() {
        use Direction::{Incoming, Outgoing};
        let (low, high) = (PeerId::new(1, 9), PeerId::new(2, 3));
        // Two connections: one dialled by the lower name, one by the higher. Each side sees them in either order.
        let by_low = |own: PeerId| if own == low { Outgoing } else { Incoming };
        let by_high = |own: PeerId| if own == low { Incoming } else { Outgoing };
        for (own, other) in [(low, high), (high, low)] {
            assert_eq!(prefer(own, other, by_low(own), by_high(own)), Kept::Existing);
            assert_eq!(prefer(own, other, by_high(own), by_low(own)), Kept::New);
            for direction in [Incoming, Outgoing] {
                assert_eq!(prefer(own, other, direction, direction), Kept::New);
            }
        }
    }

    #[test]
    fn slots_are_counted_and_given_back() {
        let taken = Arc::new(AtomicUsize::new(0));
        let first = Slot::take(&taken, 1);
        assert!(first.is_some() && Slot::take(&taken, 1).is_none());
        drop(first);
        assert!(Slot::take(&taken, 1).is_some());
    }
}
