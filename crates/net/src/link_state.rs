//! What a link's handles and its tasks have in common: the frames that wait to be sent, how it is to end, what it has carried.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use nettorrent_swarm::wire::Frame;
use tokio::sync::Notify;

use crate::frames::{Outgoing, Written};
use crate::limits::Limits;
use crate::outflow::OutflowCount;
use crate::traffic::TrafficCount;

/// What a link's handles and its tasks have in common.
pub(crate) struct LinkState {
    pub(crate) limits: Limits,
    pub(crate) traffic: TrafficCount,
    pub(crate) outflow: OutflowCount,
    // Whether a frame has arrived in part.
    owed: Arc<AtomicBool>,
    queue: Mutex<Queue>,
    // With what has left the queue and not yet been handed to the socket, or lies in files that have not been read.
    n_queued: AtomicUsize,
    // Said whenever that has become less.
    drained: Notify,
    is_closing: AtomicBool,
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

impl LinkState {
    /// Of a link that has nothing to send yet, whose reader says whether a frame has arrived in part.
    pub(crate) fn new(limits: Limits, traffic: TrafficCount, owed: Arc<AtomicBool>) -> Self {
        Self {
            limits,
            traffic,
            outflow: OutflowCount::default(),
            owed,
            queue: Mutex::default(),
            n_queued: AtomicUsize::new(0),
            drained: Notify::new(),
            is_closing: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing in here panics while it holds the lock, and a half-pushed frame does not exist.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame, unless the link is being closed.
    pub(crate) fn send(&self, frame: Frame) {
        let queue = self.lock();
        if queue.closing.is_none() {
            self.push(queue, frame);
        }
    }

    /// Queues a frame also when the link is being closed: for what the other side waits for.
    pub(crate) fn say(&self, frame: Frame) {
        self.push(self.lock(), frame);
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

    pub(crate) fn close(&self, closing: Closing) {
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
        self.n_queued.store(0, Ordering::Relaxed);
        self.is_closing.store(true, Ordering::Relaxed);
        drop(queue);
        drop(frames);
        self.drained.notify_waiters();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// How much waits to be handed to the socket.
    pub(crate) fn n_queued(&self) -> usize {
        self.n_queued.load(Ordering::Relaxed)
    }

    /// Whether the rest of a frame is waited for.
    pub(crate) fn is_owed(&self) -> bool {
        self.owed.load(Ordering::Relaxed)
    }

    /// Waits until no more than so much waits to be sent, or the link has ended.
    pub(crate) async fn drained_to(&self, n_bytes: usize) {
        loop {
            let drained = self.drained.notified();
            if self.n_queued() <= n_bytes {
                return;
            }
            drained.await;
        }
    }

    /// The next queued frame, and whether the link is to be closed.
    pub(crate) fn pop(&self) -> (Option<Frame>, Option<Closing>) {
        let mut queue = self.lock();
        (queue.frames.pop_front(), queue.closing)
    }

    /// Moves all queued frames to those on their way.
    pub(crate) fn take(&self, outgoing: &mut Outgoing) -> Option<Closing> {
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

    /// More waits than was thought: a notice goes out for a frame that waits until it has been read.
    pub(crate) fn count_notice(&self, n_bytes: usize) {
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

    /// So much has been handed to the socket.
    pub(crate) fn count_sent(&self, written: Written) {
        self.n_queued.fetch_sub(written.n_bytes, Ordering::Relaxed);
        self.drained.notify_waiters();
        self.traffic.add_sent(written);
    }
}

impl Queue {
    fn remember(&mut self, cx: &Context<'_>) {
        if !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            self.waker = Some(cx.waker().clone());
        }
    }
}
