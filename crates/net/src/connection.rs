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
use crate::sharing::Sharing;
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
    pub(crate) sharing: Option<Sharing>,
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

#[cfg(test)]
mod tests {
    use super::Slot;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn slots_are_counted_and_given_back() {
        let taken = Arc::new(AtomicUsize::new(0));
        let first = Slot::take(&taken, 1);
        assert!(first.is_some() && Slot::take(&taken, 1).is_none());
        drop(first);
        assert!(Slot::take(&taken, 1).is_some());
    }
}
