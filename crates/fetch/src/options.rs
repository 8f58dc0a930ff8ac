//! How a fetch is to go about it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a caller may choose; the default suits a person at a terminal.
#[derive(Clone, Debug)]
pub struct FetchOptions {
    /// An address tried before all others: the file is at `MIRROR/FILENAME`.
    pub mirror: Option<String>,
    /// Fetch anew and replace what is cached.
    pub force: bool,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long to wait when no bytes come.
    pub idle_timeout: Duration,
    /// Whether a proxy named in the environment is used.
    pub proxy: ProxyChoice,
    /// Set by another thread to end the fetch at the next piece of a file; what arrived is kept.
    pub stop: Arc<AtomicBool>,
}

/// Whether requests go through a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyChoice {
    /// Straight to the address.
    Direct,
    /// As `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` say.
    FromEnvironment,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self {
            mirror: None,
            force: false,
            connect_timeout: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(30),
            proxy: ProxyChoice::FromEnvironment,
            stop: Arc::default(),
        }
    }
}

impl FetchOptions {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
