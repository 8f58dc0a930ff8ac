//! The two halves of a QUIC connection's one stream, as a link uses them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use iroh::Endpoint;
use iroh::endpoint::{Connection, RecvStream, SendStream, WeakConnectionHandle};
use nettorrent_net::address::Address;
use nettorrent_net::key_address::KeyAddress;
use nettorrent_net::route::{Route, RouteNow};
use nettorrent_net::transport::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

/// How long what was written last may take to arrive after its link was given up.
const LINGER: Duration = Duration::from_secs(5);

/// What must live as long as a half: without it, the connection ends at once.
struct Held {
    connection: Connection,
    _endpoint: Endpoint,
}

/// A stream with its connection, as links know them.
pub(crate) fn byte_stream(
    (send, receive): (SendStream, RecvStream),
    connection: Connection,
    endpoint: &Endpoint,
) -> ByteStream {
    let sockets: Vec<_> = connection.paths().iter().filter_map(|path| ip_of(path.remote_addr())).take(1).collect();
    let key = KeyAddress::new(*connection.remote_id().as_bytes(), None, &sockets);
    let address = Address::Key(key.expect("without a relay there is nothing to refuse"));
    let route = route_of(connection.weak_handle());
    let held = Arc::new(Held { connection, _endpoint: endpoint.clone() });
    ByteStream {
        read: Box::new(ReadHalf { stream: receive, _held: held.clone() }),
        write: Box::new(WriteHalf { stream: Some(send), arrived: None, held }),
        address,
        route,
    }
}

fn ip_of(address: &iroh::TransportAddr) -> Option<std::net::SocketAddr> {
    match address {
        iroh::TransportAddr::Ip(socket) => Some(*socket),
        _ => None,
    }
}

/// By which way a connection goes; once it has ended, by which it went when that was asked last.
fn route_of(connection: WeakConnectionHandle) -> RouteNow {
    let was_relayed = AtomicBool::new(false);
    Arc::new(move || {
        if let Some(connection) = connection.upgrade() {
            let paths = connection.paths();
            // Before one is chosen, the first is taken.
            let path = paths.iter().find(iroh::endpoint::Path::is_selected).or_else(|| paths.iter().next());
            path.iter().for_each(|path| was_relayed.store(path.is_relay(), Ordering::Relaxed));
        }
        if was_relayed.load(Ordering::Relaxed) { Route::Relayed } else { Route::Direct }
    })
}

struct ReadHalf {
    stream: RecvStream,
    _held: Arc<Held>,
}

impl AsyncRead for ReadHalf {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        AsyncRead::poll_read(Pin::new(&mut self.stream), cx, buffer)
    }
}

struct WriteHalf {
    // Gone when it is dropped.
    stream: Option<SendStream>,
    // Ready when all has arrived, or never will.
    arrived: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    held: Arc<Held>,
}

impl WriteHalf {
    fn stream(&mut self) -> Pin<&mut SendStream> {
        Pin::new(self.stream.as_mut().expect("it is there until it is dropped"))
    }
}

impl AsyncWrite for WriteHalf {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(self.stream(), cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_flush(self.stream(), cx)
    }

    /// Says that this was all, and waits until it has arrived: nobody else would send it once the process has ended.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.arrived.is_none() {
            self.arrived = Some(finish(&mut self.stream()));
        }
        if let Some(arrived) = &mut self.arrived {
            ready!(arrived.as_mut().poll(cx));
        }
        Poll::Ready(Ok(()))
    }
}

/// Ends a stream.
fn finish(stream: &mut SendStream) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    // It may have been ended before, or by the other side.
    let _ = stream.finish();
    let stopped = stream.stopped();
    Box::pin(async { _ = stopped.await })
}

impl Drop for WriteHalf {
    /// What was written still arrives, as with TCP, where the system sees to it.
    fn drop(&mut self) {
        let (Some(mut stream), Ok(runtime)) = (self.stream.take(), Handle::try_current()) else { return };
        if self.held.connection.close_reason().is_some() {
            return;
        }
        let held = self.held.clone();
        runtime.spawn(async move {
            let _ = tokio::time::timeout(LINGER, finish(&mut stream)).await;
            drop(held);
        });
    }
}
