//! A link: frames to and from one peer, sent without waiting and received into an inbox.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use nettorrent_swarm::view::PeerId;
use nettorrent_swarm::wire::{Frame, Kind};
use tokio::sync::Notify;

use crate::connection::{Connection, Direction};
use crate::frames::{Outgoing, Written};
use crate::hello::Hello;
use crate::inbox::{InboxSender, LinkId};
use crate::limits::Limits;
use crate::link_task::Task;
use crate::outflow::{Outflow, OutflowCount};
use crate::shaper::Pace;
use crate::sharing::Sharing;
use crate::socket_count::SocketBytes;
use crate::wire::WireCount;

/// What a link has carried so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames that have been handed to the socket.
    pub frames_sent: u64,
    /// The bytes in their bodies.
    pub payload_sent: u64,
    /// Frames that have arrived.
    pub frames_received: u64,
    /// The bytes in their bodies.
    pub payload_received: u64,
    /// Bytes at the socket: with the handshake, heads and encryption.
    pub wire_sent: u64,
    /// Bytes at the socket: with the handshake, heads and encryption.
    pub wire_received: u64,
}

/// Frames to and from one peer. Clones are handles to the same link; it is closed when the last one is dropped.
#[derive(Clone)]
pub struct Link {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close(Closing::AfterSending);
    }
}

/// What the handles and the link's task have in common.
pub(crate) struct Shared {
    pub(crate) id: LinkId,
    pub(crate) hello: Hello,
    direction: Direction,
    address: Option<SocketAddr>,
    pub(crate) limits: Limits,
    queue: Mutex<Queue>,
    pub(crate) sharing: Option<Sharing>,
    // With what has left the queue and not yet been handed to the socket, or lies in files that have not been read.
    n_queued: AtomicUsize,
    // Said whenever that has become less.
    drained: Notify,
    is_closing: AtomicBool,
    pub(crate) wire: Arc<WireCount>,
    pub(crate) outflow: OutflowCount,
    frames_sent: AtomicU64,
    payload_sent: AtomicU64,
    frames_received: AtomicU64,
    payload_received: AtomicU64,
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Frame>,
    closing: Option<Closing>,
    // Of the link's task.
    waker: Option<Waker>,
    // Whether the task has nothing to send, and must be woken for a frame.
    is_idle: bool,
}

/// How a link is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closing {
    /// What is queued still goes out.
    AfterSending,
    /// Too much is queued.
    TooSlow {
        /// How much.
        n_queued: usize,
    },
}

impl Link {
    pub(crate) fn start(connection: Connection, inbox: InboxSender) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let Connection { hello, direction, address, reader, writer, count, limits, shapers, sharing, slot } =
            connection;
        let shared = Arc::new(Shared {
            id: LinkId(NEXT.fetch_add(1, Ordering::Relaxed)),
            hello,
            direction,
            address,
            limits,
            queue: Mutex::default(),
            sharing,
            n_queued: AtomicUsize::new(0),
            drained: Notify::new(),
            is_closing: AtomicBool::new(false),
            wire: count,
            outflow: OutflowCount::default(),
            frames_sent: AtomicU64::new(0),
            payload_sent: AtomicU64::new(0),
            frames_received: AtomicU64::new(0),
            payload_received: AtomicU64::new(0),
        });
        let task = Task { shared: shared.clone(), inbox, reader, writer };
        tokio::spawn(async move {
            task.run(shapers.send.map(Pace::new), shapers.receive).await;
            drop(slot);
        });
        Self { handle: Arc::new(Handle { shared }) }
    }

    /// Queues a frame; never waits. On a link that has ended, it does nothing: the reason is in the inbox.
    ///
    /// Whoever queues more than [`Limits::max_queued_bytes`] before the other side takes it loses the link. Those who have
    /// that much to send wait for [`drained_to`](Self::drained_to) in between.
    pub fn send(&self, frame: Frame) {
        let shared = &self.handle.shared;
        let queue = shared.lock();
        if queue.closing.is_none() {
            shared.push(queue, frame);
        }
    }

    /// Closes the link, after what is queued has been sent; what arrives from now on is dropped.
    pub fn close(&self) {
        self.handle.shared.close(Closing::AfterSending);
    }

    /// How much waits to be handed to the socket.
    pub fn queued_bytes(&self) -> usize {
        self.handle.shared.n_queued.load(Ordering::Relaxed)
    }

    /// Waits until no more than so much waits to be sent, or the link has ended.
    pub async fn drained_to(&self, n_bytes: usize) {
        let shared = &self.handle.shared;
        loop {
            let drained = shared.drained.notified();
            if self.queued_bytes() <= n_bytes {
                return;
            }
            drained.await;
        }
    }

    /// Its number in this process.
    pub fn id(&self) -> LinkId {
        self.handle.shared.id
    }

    /// Who is at the other end.
    pub fn peer(&self) -> PeerId {
        self.handle.shared.hello.peer
    }

    /// What the other end said about itself.
    pub fn hello(&self) -> &Hello {
        &self.handle.shared.hello
    }

    /// Who called whom.
    pub fn direction(&self) -> Direction {
        self.handle.shared.direction
    }

    /// Where the other end is, if that is a place on a network.
    pub fn address(&self) -> Option<SocketAddr> {
        self.handle.shared.address
    }

    /// Whether large frames to the other end go through a directory that both share.
    pub fn shares_folder(&self) -> bool {
        self.handle.shared.sharing.as_ref().is_some_and(Sharing::is_agreed)
    }

    /// What it has let out so far, and how long that kept it busy.
    pub fn outflow(&self) -> Outflow {
        self.handle.shared.outflow.get()
    }

    /// What it has carried so far.
    pub fn traffic(&self) -> Traffic {
        let shared = &self.handle.shared;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            frames_sent: load(&shared.frames_sent),
            payload_sent: load(&shared.payload_sent),
            frames_received: load(&shared.frames_received),
            payload_received: load(&shared.payload_received),
            wire_sent: load(&shared.wire.sent),
            wire_received: load(&shared.wire.received),
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = &self.handle.shared;
        write!(f, "Link {} to {:?} ({:?})", shared.id.0, shared.hello.peer, shared.direction)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing in here panics while it holds the lock, and a half-pushed frame does not exist.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, frame: Frame) {
        let n_bytes = frame.n_bytes();
        let n_queued = self.n_queued.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes;
        queue.frames.push_back(frame);
        let must_wake = std::mem::take(&mut queue.is_idle);
        let waker = queue.waker.as_ref().filter(|_| must_wake).cloned();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        if n_queued > self.limits.max_queued_bytes {
            self.close(Closing::TooSlow { n_queued });
        }
    }

    fn close(&self, closing: Closing) {
        let mut queue = self.lock();
        // The first reason counts.
        queue.closing.get_or_insert(closing);
        self.is_closing.store(true, Ordering::Relaxed);
        let waker = queue.waker.clone();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nothing can be sent any more; what was queued is freed.
    pub(crate) fn finish(&self) {
        let mut queue = self.lock();
        queue.closing.get_or_insert(Closing::AfterSending);
        queue.waker = None;
        let frames = std::mem::take(&mut queue.frames);
        self.sharing.iter().for_each(Sharing::forget);
        self.n_queued.store(0, Ordering::Relaxed);
        self.is_closing.store(true, Ordering::Relaxed);
        drop(queue);
        drop(frames);
        self.drained.notify_waiters();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    pub(crate) fn n_queued(&self) -> usize {
        self.n_queued.load(Ordering::Relaxed)
    }

    /// Queues a frame also when the link is being closed: for what the other side waits for.
    pub(crate) fn say(&self, frame: Frame) {
        self.push(self.lock(), frame);
    }

    /// The next queued frame, and whether the link is to be closed.
    pub(crate) fn pop(&self) -> (Option<Frame>, Option<Closing>) {
        let mut queue = self.lock();
        (queue.frames.pop_front(), queue.closing)
    }

    /// Moves queued frames to those on their way.
    pub(crate) async fn take(&self, outgoing: &mut Outgoing) -> Option<Closing> {
        if let Some(sharing) = &self.sharing {
            return sharing.take(self, outgoing).await;
        }
        let mut queue = self.lock();
        queue.frames.drain(..).for_each(|frame| outgoing.push(frame));
        queue.closing
    }

    /// Waits until a frame is queued, or the link is to be closed and all has been taken. Only the link's task may wait.
    pub(crate) async fn wait_for_frames(&self) {
        std::future::poll_fn(|cx| {
            let mut queue = self.lock();
            if !queue.frames.is_empty() || queue.closing.is_some() && self.n_queued() == 0 {
                return Poll::Ready(());
            }
            queue.remember(cx);
            queue.is_idle = true;
            Poll::Pending
        })
        .await;
    }

    /// Waits until the link is to be closed. Only the link's task may wait.
    pub(crate) async fn wait_for_closing(&self) -> Closing {
        std::future::poll_fn(|cx| {
            let mut queue = self.lock();
            if let Some(closing) = queue.closing {
                return Poll::Ready(closing);
            }
            queue.remember(cx);
            Poll::Pending
        })
        .await
    }

    /// More waits than was thought: a word goes out for a frame that waits until it has been read.
    pub(crate) fn count_word(&self, n_bytes: usize) {
        self.n_queued.fetch_add(n_bytes, Ordering::Relaxed);
    }

    /// A frame of this length has been read from its file.
    pub(crate) fn count_taken(&self, n_bytes: usize) {
        self.n_queued.fetch_sub(n_bytes, Ordering::Relaxed);
        self.drained.notify_waiters();
        let waker = self.lock().waker.clone();
        // The task may wait for this to end.
        if let Some(waker) = waker.filter(|_| self.is_closing()) {
            waker.wake();
        }
    }

    pub(crate) fn count_sent(&self, written: Written) {
        self.n_queued.fetch_sub(written.n_bytes, Ordering::Relaxed);
        self.drained.notify_waiters();
        if written.n_frames > 0 {
            self.frames_sent.fetch_add(written.n_frames as u64, Ordering::Relaxed);
            self.payload_sent.fetch_add(written.n_body_bytes as u64, Ordering::Relaxed);
            let payload_sent = written.n_strategy_bytes as u64;
            self.wire.all.add(SocketBytes { payload_sent, ..SocketBytes::default() });
        }
    }

    pub(crate) fn count_received(&self, frame: &Frame) {
        self.frames_received.fetch_add(1, Ordering::Relaxed);
        self.payload_received.fetch_add(frame.body.len() as u64, Ordering::Relaxed);
        if frame.head.kind == Kind::Strategy {
            let payload_received = frame.body.len() as u64;
            self.wire.all.add(SocketBytes { payload_received, ..SocketBytes::default() });
        }
    }
}

impl Queue {
    fn remember(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}
