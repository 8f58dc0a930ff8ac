//! The seam to the network: what an endpoint needs of TCP, or of whatever takes its place.
//!
//! A transport makes streams of bytes between addresses, and knows nothing of who speaks over them: identity, encryption and
//! frames come on top, alike for all. Its futures and the halves of its streams are boxed. That costs an indirect call for
//! each system call, which moves up to 256 KiB, so that links need no type parameter for where they lead.

use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::address::Address;
use crate::route::RouteNow;

/// A half that bytes come from.
pub type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
/// A half that bytes go to.
pub type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;
/// What a transport is doing.
pub type Doing<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + 'a>>;

/// A stream of bytes to somewhere, as two halves that are used at the same time.
pub struct ByteStream {
    /// What comes from there.
    pub read: BoxRead,
    /// What goes there.
    pub write: BoxWrite,
    /// Where that is, as far as the transport sees.
    pub address: Address,
    /// By which way it goes.
    pub route: RouteNow,
}

/// A way between addresses.
pub trait Transport: std::fmt::Debug + Send + Sync {
    /// Begins to listen at an address, or at any that is free if that is what it says.
    fn listen<'a>(&'a self, at: &'a Address) -> Doing<'a, Box<dyn Listener>>;

    /// Connects to who listens at an address. Whoever calls this bounds how long it may take.
    fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream>;
}

/// Who listens at an address, until it is dropped.
pub trait Listener: Send {
    /// Where it listens.
    fn address(&self) -> Address;

    /// Where others can reach it, best first.
    fn reachable_at(&self) -> Vec<Address>;

    /// Waits for the next who connects. Nobody may be able to hold up those who come later: where more is needed than that
    /// somebody has come, as a handshake of the transport's own, it goes on elsewhere.
    fn accept(&mut self) -> Doing<'_, ByteStream>;
}

/// The error for an address that belongs to another transport.
pub fn wrong_transport(address: &Address) -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, format!("{address} is not an address of this transport"))
}
