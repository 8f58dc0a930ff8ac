//! The second transport over loopback: straight, by a relay, after TCP.

#![expect(clippy::unwrap_used, reason = "what helpers of tests unwrap is the test's own")]

mod links;
mod training;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use nettorrent_routers::{Insist, Relay, Routers};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// Runs a test, which must not hang.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.expect("it ends") });
}

/// A relay on this machine, and a transport at it.
async fn relay() -> (Relay, impl Fn() -> Routers) {
    let relay = Relay::start(SocketAddr::from(ANY_PORT), None).await.unwrap();
    let url = relay.url("127.0.0.1");
    (relay, move || Routers::with_relay(&url, Insist::Yes).unwrap())
}
