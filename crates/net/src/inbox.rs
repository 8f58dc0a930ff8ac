//! The inbox: what the links of a process have received, for one reader, bounded in bytes.
//!
//! When it is full, links stop reading, and TCP tells the senders to wait.

use std::sync::Arc;

use nettorrent_swarm::view::PeerId;
use nettorrent_swarm::wire::{Frame, MAX_BODY_LEN};
use tokio::sync::{Semaphore, mpsc};

use crate::close_reason::CloseReason;

// Room is counted in KiB, as the semaphore has too few permits to count bytes. Even an empty frame takes one, which bounds
// the number of events.
const UNIT: usize = 1 << 10;

/// Tells links of one process apart, among them several with the same peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Something happened on a link.
#[derive(Debug)]
pub struct LinkEvent {
    /// Who is at the other end.
    pub peer: PeerId,
    /// Which of the links.
    pub link: LinkId,
    /// What happened.
    pub event: Event,
}

/// What can happen on a link.
#[derive(Debug)]
pub enum Event {
    /// A frame arrived.
    Frame(Frame),
    /// The link has ended; nothing more comes from it.
    Closed(CloseReason),
}

/// Where links put what they receive; clones belong to the same inbox.
#[derive(Clone)]
pub struct InboxSender {
    events: mpsc::UnboundedSender<LinkEvent>,
    room: Arc<Semaphore>,
}

/// Where the events come out, in the order in which links received them.
pub struct Inbox {
    events: mpsc::UnboundedReceiver<LinkEvent>,
    room: Arc<Semaphore>,
}

/// An inbox that holds about so many bytes, at least one of the longest frames.
pub fn inbox(max_bytes: usize) -> (InboxSender, Inbox) {
    let n_units = max_bytes.max(MAX_BODY_LEN + UNIT) / UNIT;
    let room = Arc::new(Semaphore::new(n_units.min(Semaphore::MAX_PERMITS)));
    let (sender, receiver) = mpsc::unbounded_channel();
    (InboxSender { events: sender, room: room.clone() }, Inbox { events: receiver, room })
}

impl Inbox {
    /// The next event; waits for it. There is no end as long as a sender lives.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        let event = self.events.recv().await?;
        self.make_room(&event);
        Some(event)
    }

    /// The next event, if there is one already.
    pub fn try_next(&mut self) -> Option<LinkEvent> {
        let event = self.events.try_recv().ok()?;
        self.make_room(&event);
        Some(event)
    }

    fn make_room(&self, event: &LinkEvent) {
        if let Event::Frame(frame) = &event.event {
            self.room.add_permits(n_units(frame) as usize);
        }
    }
}

/// Nobody reads the inbox any more.
#[derive(Debug)]
pub(crate) struct NobodyReads;

impl InboxSender {
    /// For what comes over one link.
    pub(crate) fn of_link(self, peer: PeerId, link: LinkId) -> LinkInbox {
        LinkInbox { peer, link, sender: self }
    }
}

/// Where one link puts what it receives.
#[derive(Clone)]
pub(crate) struct LinkInbox {
    peer: PeerId,
    link: LinkId,
    sender: InboxSender,
}

impl LinkInbox {
    /// Waits for room, then delivers.
    pub(crate) async fn frame(&self, frame: Frame) -> Result<(), NobodyReads> {
        let n_units = n_units(&frame);
        let room = match self.sender.room.try_acquire_many(n_units) {
            Ok(room) => room,
            Err(_) => self.sender.room.acquire_many(n_units).await.map_err(|_| NobodyReads)?,
        };
        // It is given back when the event is taken out.
        room.forget();
        self.put(Event::Frame(frame))
    }

    /// Delivers at once: a link ends only once, so this is bounded too.
    pub(crate) fn closed(&self, reason: CloseReason) {
        // If nobody reads any more, nobody wants to know.
        let _ = self.put(Event::Closed(reason));
    }

    fn put(&self, event: Event) -> Result<(), NobodyReads> {
        self.sender.events.send(LinkEvent { peer: self.peer, link: self.link, event }).map_err(|_| NobodyReads)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Links that wait for room would wait for ever.
        self.room.close();
    }
}

fn n_units(frame: &Frame) -> u32 {
    (frame.body.len() / UNIT + 1) as u32
}
