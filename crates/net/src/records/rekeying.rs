//! The next keys of a connection, which both sides compute from the last ones; known to its two halves in common.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use rustls::kernel::KernelConnection;
use rustls::{ConnectionTrafficSecrets, Error};

use super::key::Key;

/// Who knows the next keys of a connection: rustls, or a test.
pub(crate) trait NextKeys: Send {
    /// For what we send.
    fn for_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
    /// For what we receive.
    fn for_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error>;
}

impl<Side: Send> NextKeys for KernelConnection<Side> {
    fn for_sending(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_tx_secret()
    }

    fn for_receiving(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.update_rx_secret()
    }
}

/// What the two halves of a connection have in common.
pub(crate) struct Rekeying<K: ?Sized = dyn NextKeys> {
    // Whether the other side wants us to change our key.
    is_requested: AtomicBool,
    next_keys: Mutex<K>,
}

impl<K: NextKeys> Rekeying<K> {
    pub(crate) fn new(next_keys: K) -> Self {
        Self { is_requested: AtomicBool::new(false), next_keys: Mutex::new(next_keys) }
    }
}

impl Rekeying {
    /// The other side wants us to change our key before we say anything more. However often it asks, we answer once.
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    /// Whether it does; it counts once.
    pub(super) fn take_request(&self) -> bool {
        // A load is cheaper than a swap, and there is nearly never a request.
        self.is_requested.load(Ordering::Relaxed) && self.is_requested.swap(false, Ordering::Relaxed)
    }

    pub(super) fn key_for_sending(&self) -> Result<Key, Error> {
        self.next_keys.lock().unwrap_or_else(PoisonError::into_inner).for_sending().and_then(Key::new)
    }

    pub(super) fn key_for_receiving(&self) -> Result<Key, Error> {
        self.next_keys.lock().unwrap_or_else(PoisonError::into_inner).for_receiving().and_then(Key::new)
    }
}
