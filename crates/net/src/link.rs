//! A link: frames to and from one peer, sent without waiting and received into an inbox.

use std::sync::Arc;

use nettorrent_swarm::view::PeerId;
use nettorrent_swarm::wire::Frame;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cover::Cover;
use crate::hello::Hello;
use crate::inbox::LinkId;
use crate::link_state::{Closing, LinkState};
use crate::outflow::Outflow;
use crate::role::Role;
use crate::route::{Route, RouteNow};
use crate::service::{Unreadable, from_body, to_frame};
use crate::sharing::Sharing;
use crate::traffic::Traffic;

/// Frames to and from one peer. Clones are handles to the same link; it is closed when the last one is dropped.
#[derive(Clone)]
pub struct Link {
    handle: Arc<Handle>,
}

/// One link as its owner sees it.
pub(crate) struct Handle {
    pub(crate) id: LinkId,
    pub(crate) hello: Hello,
    pub(crate) cover: Option<Cover>,
    pub(crate) role: Role,
    pub(crate) route: RouteNow,
    pub(crate) state: Arc<LinkState>,
    pub(crate) sharing: Option<Arc<Sharing>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.state.close(Closing::AfterSending);
    }
}

impl Link {
    /// The first handle to a link whose tasks run.
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle: Arc::new(handle) }
    }

    /// Queues a frame; never waits. On a link that has ended, it does nothing: the reason is in the inbox.
    ///
    /// Whoever queues more than [`Limits::max_queued_bytes`](crate::limits::Limits::max_queued_bytes) before the other side
    /// takes it loses the link. Those who have that much to send wait for [`drained_to`](Self::drained_to) in between.
    pub fn send(&self, frame: Frame) {
        self.handle.state.send(frame);
    }

    /// Sends a question, an answer or a message between members. Some of these hold secrets, so on a link that is not encrypted they are
    /// covered.
    pub fn say(&self, message: &impl Serialize) {
        let mut frame = to_frame(message);
        if let Some(cover) = &self.handle.cover {
            frame = Frame::new(frame.head.kind, cover.close(&frame.body));
        }
        self.send(frame);
    }

    /// Reads what the other end has [said](Self::say); it is not trusted.
    pub(crate) fn read<T: DeserializeOwned>(&self, frame: &Frame) -> Result<T, Unreadable> {
        match &self.handle.cover {
            Some(cover) => from_body(&cover.open(&frame.body).ok_or(Unreadable::Covered)?),
            None => from_body(&frame.body),
        }
    }

    /// Closes the link, after what is queued has been sent; what arrives from now on is dropped.
    pub fn close(&self) {
        self.handle.state.close(Closing::AfterSending);
    }

    /// How much waits to be handed to the socket.
    pub fn queued_bytes(&self) -> usize {
        self.handle.state.n_queued()
    }

    /// Whether something waits to be sent, or a frame has arrived in part.
    pub(crate) fn is_busy(&self) -> bool {
        self.queued_bytes() > 0 || self.handle.state.is_owed()
    }

    /// Waits until no more than so much waits to be sent, or the link has ended.
    pub async fn drained_to(&self, n_bytes: usize) {
        self.handle.state.drained_to(n_bytes).await;
    }

    /// Its number in this process.
    pub fn id(&self) -> LinkId {
        self.handle.id
    }

    /// Who is at the other end.
    pub fn peer(&self) -> PeerId {
        self.handle.hello.peer
    }

    /// What the other end said about itself.
    pub fn hello(&self) -> &Hello {
        &self.handle.hello
    }

    /// Which side of it this is.
    pub fn role(&self) -> Role {
        self.handle.role
    }

    /// By which way its bytes go now.
    pub fn route(&self) -> Route {
        (self.handle.route)()
    }

    /// Whether large frames to the other end go through a directory that both share.
    pub fn shares_folder(&self) -> bool {
        self.handle.sharing.as_ref().is_some_and(|sharing| sharing.is_agreed())
    }

    /// What it has let out so far, and how long that kept it busy.
    pub fn outflow(&self) -> Outflow {
        self.handle.state.outflow.get()
    }

    /// What it has carried so far.
    pub fn traffic(&self) -> Traffic {
        self.handle.state.traffic.get()
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Handle { id, hello, role, .. } = &*self.handle;
        write!(f, "Link {} to {:?} ({role:?})", id.0, hello.peer)
    }
}
