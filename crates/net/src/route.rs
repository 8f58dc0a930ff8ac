//! By which way a link's bytes go.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// By which way a link's bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// Over TCP.
    Tcp,
    /// Within a process.
    Memory,
    /// Over QUIC, straight to the other end, be it through routers.
    Direct,
    /// Over QUIC, by a relay.
    Relayed,
}

/// Says which way it is now: a link may begin at a relay and go straight a moment later.
pub type RouteNow = Arc<dyn Fn() -> Route + Send + Sync>;

impl Route {
    /// The way of a stream that never changes it.
    pub fn fixed(self) -> RouteNow {
        Arc::new(move || self)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "TCP",
            Self::Memory => "memory",
            Self::Direct => "QUIC, direct",
            Self::Relayed => "relayed",
        })
    }
}
