//! Which workers there still are: each computes on a thread of its own, which must have ended before Python does.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The workers of a run.
#[derive(Clone, Default)]
pub(crate) struct AtWork(Arc<Count>);

#[derive(Default)]
struct Count {
    n_workers: Mutex<usize>,
    has_fallen: Condvar,
}

/// One of them, as long as this lives.
pub(crate) struct Presence(Arc<Count>);

impl AtWork {
    /// There is one more.
    pub(crate) fn enter(&self) -> Presence {
        *self.0.n_workers.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Presence(self.0.clone())
    }

    /// Waits until there is none, but no longer than this: one whose code never returns holds nobody up for ever.
    pub(crate) fn wait(&self, patience: Duration) {
        let n_workers = self.0.n_workers.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.0.has_fallen.wait_timeout_while(n_workers, patience, |n_workers| *n_workers > 0));
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        *self.0.n_workers.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.has_fallen.notify_all();
    }
}
