//! What goes through all sockets of an endpoint: counted where bytes are read and written, and read by anybody.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that an endpoint's sockets have carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketBytes {
    /// What went out: with handshakes, heads and encryption, also of those who were turned away.
    pub sent: u64,
    /// What came in.
    pub received: u64,
    /// Of `sent`, the bodies of strategies' frames. A body that goes through a shared directory is not among them.
    pub payload_sent: u64,
    /// Of `received`, the bodies of strategies' frames.
    pub payload_received: u64,
}

/// The same, while it grows.
#[derive(Debug, Default)]
pub struct SocketCount {
    sent: AtomicU64,
    received: AtomicU64,
    payload_sent: AtomicU64,
    payload_received: AtomicU64,
}

impl SocketCount {
    /// So much more has gone through one of them.
    pub fn add(&self, more: SocketBytes) {
        let counters = [&self.sent, &self.received, &self.payload_sent, &self.payload_received];
        let SocketBytes { sent, received, payload_sent, payload_received } = more;
        for (counter, more) in counters.into_iter().zip([sent, received, payload_sent, payload_received]) {
            // Most calls are about one of the four; all links of an endpoint count here, so what is not needed is not
            // touched.
            if more > 0 {
                counter.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// How much it is by now.
    pub fn get(&self) -> SocketBytes {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SocketBytes {
            sent: load(&self.sent),
            received: load(&self.received),
            payload_sent: load(&self.payload_sent),
            payload_received: load(&self.payload_received),
        }
    }
}
