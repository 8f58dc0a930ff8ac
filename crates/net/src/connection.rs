//! A connection that has passed its handshake and carries nothing yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nettorrent_swarm::view::PeerId;
use tokio::sync::watch;

use crate::address::Address;
use crate::cover::Cover;
use crate::frames::FrameReader;
use crate::hello::Hello;
use crate::inbox::{InboxSender, LinkId};
use crate::limits::Limits;
use crate::link::{Handle, Link};
use crate::link_state::LinkState;
use crate::link_task::Task;
use crate::role::Role;
use crate::route::RouteNow;
use crate::shaper::{Pace, Shapers};
use crate::sharing::Sharing;
use crate::traffic::TrafficCount;
use crate::transport::{BoxRead, BoxWrite};
use crate::wire::WireCount;

/// Two sides that know and want each other. Frames flow once it is [started](Connection::start), so that its owner can note
/// down whose link it is before the first one arrives; dropping it hangs up.
pub struct Connection {
    pub(crate) hello: Hello,
    pub(crate) cover: Option<Cover>,
    pub(crate) role: Role,
    pub(crate) address: Address,
    pub(crate) route: RouteNow,
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

    /// Which side of it this is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Where the other end is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Slows it down as the shapers say.
    #[must_use]
    pub fn shaped(mut self, shapers: Shapers) -> Self {
        self.shapers = shapers;
        self
    }

    /// Lets frames flow; those that arrive go to the inbox. Must be called within a Tokio runtime.
    pub fn start(self, inbox: InboxSender) -> Link {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Self { hello, cover, role, route, reader, writer, count, limits, shapers, sharing, slot, .. } = self;
        let id = LinkId(NEXT.fetch_add(1, Ordering::Relaxed));
        let state = Arc::new(LinkState::new(limits, TrafficCount::new(count), reader.owed()));
        let sharing = sharing.map(Arc::new);
        let inbox = inbox.of_link(hello.peer, id);
        let task = Task { state: state.clone(), sharing: sharing.clone(), inbox, reader, writer };
        tokio::spawn(async move {
            task.run(shapers.send.map(Pace::new), shapers.receive).await;
            drop(slot);
        });
        Link::new(Handle { id, hello, cover, role, route, state, sharing })
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("hello", &self.hello)
            .field("role", &self.role)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// One of the places for links that a process has; given back when dropped.
pub(crate) struct Slot(Arc<watch::Sender<usize>>);

impl Slot {
    /// Takes a place out of so many, counted by `taken`.
    pub(crate) fn take(taken: &Arc<watch::Sender<usize>>, most: usize) -> Option<Self> {
        let is_taken = taken.send_if_modified(|n| {
            let is_free = *n < most;
            *n += usize::from(is_free);
            is_free
        });
        is_taken.then(|| Self(taken.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::Slot;
    use std::sync::Arc;
    use tokio::sync::watch;

    #[test]
    fn slots_are_counted_and_given_back() {
        let taken = Arc::new(watch::Sender::new(0));
        let first = Slot::take(&taken, 1);
        assert!(first.is_some() && Slot::take(&taken, 1).is_none());
        drop(first);
        assert!(Slot::take(&taken, 1).is_some());
    }
}
