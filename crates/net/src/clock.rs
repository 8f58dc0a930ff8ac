//! What time it is for certificates and tickets that end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Tells the time in seconds since 1970.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The machine's clock. It may be wrong by hours: certificates are renewed long before they expire.
    #[default]
    System,
    /// One that stands still until somebody sets it: swarms within a process have no other, or no two runs would be the same.
    Set(Arc<AtomicU64>),
}

impl Clock {
    /// Now.
    pub fn now(&self) -> u64 {
        match self {
            Self::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            Self::Set(now) => now.load(Ordering::Relaxed),
        }
    }
}
