//! In which order the ways to an address are tried.

use crate::address::Address;
use crate::tcp::Tcp;
use crate::transport::Transport;

/// The ways to an address, in the order in which to try them. At a key's sockets is whoever is there: two networks can use the same
/// addresses, so whatever comes of TCP, the key itself is tried after it.
pub(crate) fn ways<'a>(transport: &'a dyn Transport, to: &Address) -> impl Iterator<Item = &'a dyn Transport> {
    let by_tcp: Option<&dyn Transport> = matches!(to, Address::Key(key) if !key.sockets().is_empty()).then_some(&Tcp);
    by_tcp.into_iter().chain([transport])
}
