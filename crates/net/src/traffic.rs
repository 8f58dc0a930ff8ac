//! What a link has carried: counted by its tasks and read by anybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nettorrent_swarm::wire::{Frame, Kind};

use crate::frames::Written;
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

/// The same, while it grows.
pub(crate) struct TrafficCount {
    frames_sent: AtomicU64,
    payload_sent: AtomicU64,
    frames_received: AtomicU64,
    payload_received: AtomicU64,
    wire: Arc<WireCount>,
}

impl TrafficCount {
    /// Nothing yet, but what the wire has carried.
    pub(crate) fn new(wire: Arc<WireCount>) -> Self {
        let zero = || AtomicU64::new(0);
        Self { frames_sent: zero(), payload_sent: zero(), frames_received: zero(), payload_received: zero(), wire }
    }

    pub(crate) fn add_sent(&self, written: Written) {
        if written.n_frames > 0 {
            self.frames_sent.fetch_add(written.n_frames as u64, Ordering::Relaxed);
            self.payload_sent.fetch_add(written.n_body_bytes as u64, Ordering::Relaxed);
            let payload_sent = written.n_strategy_bytes as u64;
            self.wire.all.add(SocketBytes { payload_sent, ..SocketBytes::default() });
        }
    }

    pub(crate) fn add_received(&self, frame: &Frame) {
        self.frames_received.fetch_add(1, Ordering::Relaxed);
        self.payload_received.fetch_add(frame.body.len() as u64, Ordering::Relaxed);
        if frame.head.kind == Kind::Strategy {
            let payload_received = frame.body.len() as u64;
            self.wire.all.add(SocketBytes { payload_received, ..SocketBytes::default() });
        }
    }

    pub(crate) fn get(&self) -> Traffic {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            frames_sent: load(&self.frames_sent),
            payload_sent: load(&self.payload_sent),
            frames_received: load(&self.frames_received),
            payload_received: load(&self.payload_received),
            wire_sent: load(&self.wire.sent),
            wire_received: load(&self.wire.received),
        }
    }
}
