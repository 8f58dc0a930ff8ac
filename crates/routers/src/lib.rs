//! The second transport: QUIC between keys, through routers, and by a relay where there is no other way.
//!
//! [`Routers`] listens at one port, for TCP and for QUIC (the crate `iroh`). Who dials a key tries its sockets by TCP first, then
//! QUIC straight or through routers, then the relay. Without a relay nothing is said to anybody but the peers. [`Relay`] is a relay
//! of one's own.

mod arrivals;
mod certificates;
mod relay;
mod routers;
mod stream;

pub use relay::{Certificate, Relay, RelayError};
pub use routers::{Insist, NoRelay, Routers};
