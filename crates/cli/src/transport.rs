//! How peers are reached: by TCP, and where a relay is named, through routers too.

use std::sync::Arc;

use nettorrent_net::ticket::Ticket;
use nettorrent_net::transport::Transport;

/// What a program says that was built without the second transport.
#[cfg(not(feature = "routers"))]
pub(crate) const WITHOUT_ROUTERS: &str =
    "this program was built without the second transport: build it with --features routers, or take a released one";

/// TCP, and through routers or by this relay to those whom TCP does not reach.
#[cfg(feature = "routers")]
pub(crate) fn with_relay(url: &str) -> anyhow::Result<Arc<dyn Transport>> {
    Ok(Arc::new(nettorrent_routers::Routers::with_relay(url, nettorrent_routers::Insist::Yes)?))
}

/// See there.
#[cfg(not(feature = "routers"))]
pub(crate) fn with_relay(_: &str) -> anyhow::Result<Arc<dyn Transport>> {
    anyhow::bail!("--relay: {WITHOUT_ROUTERS}")
}

/// What reaches the peers that a ticket names: if it names a key, through routers too, and by no other relay than the ticket's.
#[cfg(feature = "routers")]
pub(crate) fn of_ticket(ticket: &Ticket) -> Arc<dyn Transport> {
    use nettorrent_net::address::Address;
    use nettorrent_routers::{Insist, Routers};
    let relay = ticket.addresses.iter().find_map(|address| match address {
        Address::Key(key) => key.relay(),
        Address::Tcp(_) | Address::InProcess(_) => None,
    });
    match relay.and_then(|relay| Routers::with_relay(relay, Insist::No).ok()) {
        Some(routers) => Arc::new(routers),
        None => Arc::new(nettorrent_net::tcp::Tcp),
    }
}

/// What reaches the peers that a ticket names: of keys, those that TCP reaches.
#[cfg(not(feature = "routers"))]
pub(crate) fn of_ticket(_: &Ticket) -> Arc<dyn Transport> {
    Arc::new(nettorrent_net::tcp::Tcp)
}
