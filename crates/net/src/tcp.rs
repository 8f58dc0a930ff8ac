//! Streams over TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::address::Address;
use crate::addresses::reachable_addresses;
use crate::route::Route;
use crate::transport::{ByteStream, Doing, Listener, Transport, wrong_transport};

/// How many bytes may wait in the system to be sent, about.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MOST_UNSENT: u32 = 64 << 10;

/// How long a key's sockets have to answer: a first packet that is lost is sent again after a second.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The network that every machine has.
#[derive(Clone, Copy, Debug)]
pub struct Tcp;

impl Transport for Tcp {
    fn listen<'a>(&'a self, at: &'a Address) -> Doing<'a, Box<dyn Listener>> {
        Box::pin(async move {
            let at = at.tcp().ok_or_else(|| wrong_transport(at))?;
            let listener = TcpListener::bind(at).await?;
            let local = listener.local_addr()?;
            Ok(Box::new(Listening { listener, local }) as Box<dyn Listener>)
        })
    }

    fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream> {
        Box::pin(async move {
            match to {
                Address::Tcp(to) => Ok(stream(TcpStream::connect(*to).await?, *to)),
                Address::Key(key) => first_of(key.sockets()).await,
                Address::InProcess(_) => Err(wrong_transport(to)),
            }
        })
    }
}

/// Connects to all at once, and keeps the first that answers: of a key's sockets most may lie behind routers, which say nothing.
async fn first_of(sockets: &[SocketAddr]) -> io::Result<ByteStream> {
    let mut calls = JoinSet::new();
    for &to in sockets {
        calls.spawn(async move { TcpStream::connect(to).await.map(|connected| stream(connected, to)) });
    }
    let first = async {
        while let Some(called) = calls.join_next().await {
            if let Ok(Ok(stream)) = called {
                return Some(stream);
            }
        }
        None
    };
    let found = timeout(PATIENCE, first).await.ok().flatten();
    // Not "refused": that would say that its process has ended, and who refused may be somebody else.
    found.ok_or_else(|| io::Error::new(io::ErrorKind::HostUnreachable, "none of its addresses answers to TCP"))
}

struct Listening {
    listener: TcpListener,
    local: SocketAddr,
}

impl Listener for Listening {
    fn address(&self) -> Address {
        self.local.into()
    }

    fn reachable_at(&self) -> Vec<Address> {
        reachable_addresses(self.local).into_iter().map(Address::Tcp).collect()
    }

    fn accept(&mut self) -> Doing<'_, ByteStream> {
        Box::pin(async {
            let (accepted, from) = self.listener.accept().await?;
            Ok(stream(accepted, from))
        })
    }
}

fn stream(stream: TcpStream, other: SocketAddr) -> ByteStream {
    // Frames are written whole, so there is nothing that waiting for more could add. Where it cannot be set, frames arrive
    // all the same.
    let _ = stream.set_nodelay(true);
    keep_queue_short(&stream);
    let (read, write) = stream.into_split();
    // IPv4 that comes through an IPv6 socket is still IPv4.
    let address = SocketAddr::new(other.ip().to_canonical(), other.port()).into();
    ByteStream { read: Box::new(read), write: Box::new(write), address, route: Route::Tcp.fixed() }
}

/// Has the system take little more than it can send at once. What it has taken cannot be overtaken: on a link of 10 Mbit/s a
/// probe behind the usual four megabytes would be seconds late, and its sender given up.
fn keep_queue_short(stream: &TcpStream) {
    // Where it cannot be set, links work all the same.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(MOST_UNSENT);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = stream;
}
