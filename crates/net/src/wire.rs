//! The two halves of a byte stream, whatever it runs over, with a count of what passes.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::net::TcpStream;

use crate::socket_count::{SocketBytes, SocketCount};

/// How much of what came first is remembered, to tell what the other side speaks when it makes no sense.
pub(crate) const FIRST_LEN: usize = 32;

/// A half that bytes come from.
pub(crate) type BoxRead = Box<dyn AsyncRead + Send + Unpin>;
/// A half that bytes go to.
pub(crate) type BoxWrite = Box<dyn AsyncWrite + Send + Unpin>;

/// A byte stream before anything has been said on it.
pub struct Wire {
    pub(crate) read: WireRead,
    pub(crate) write: WireWrite,
    pub(crate) count: Arc<WireCount>,
    /// Where the other end is, if that is a place on a network.
    pub(crate) address: Option<SocketAddr>,
}

/// Bytes at the socket: with heads and encryption. Of this one, and of all that its endpoint has.
#[derive(Debug)]
pub(crate) struct WireCount {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) all: Arc<SocketCount>,
}

/// How many bytes may wait in the system to be sent, about.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MOST_UNSENT: u32 = 64 << 10;

impl WireCount {
    fn add_sent(&self, n_bytes: usize) {
        let sent = n_bytes as u64;
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.all.add(SocketBytes { sent, ..SocketBytes::default() });
    }

    fn add_received(&self, n_bytes: usize) {
        let received = n_bytes as u64;
        self.received.fetch_add(received, Ordering::Relaxed);
        self.all.add(SocketBytes { received, ..SocketBytes::default() });
    }
}

impl Wire {
    /// A socket whose bytes are counted with those of others.
    pub(crate) fn counted(stream: TcpStream, all: Arc<SocketCount>) -> Self {
        // IPv4 that comes through an IPv6 socket is still IPv4.
        let address =
            stream.peer_addr().ok().map(|address| SocketAddr::new(address.ip().to_canonical(), address.port()));
        // Frames are written whole, so there is nothing that waiting for more could add. Where it cannot be set, frames
        // arrive all the same.
        let _ = stream.set_nodelay(true);
        keep_queue_short(&stream);
        let (read, write) = stream.into_split();
        Self::new(Box::new(read), Box::new(write), address, all)
    }

    fn new(read: BoxRead, write: BoxWrite, address: Option<SocketAddr>, all: Arc<SocketCount>) -> Self {
        let count = Arc::new(WireCount { sent: AtomicU64::new(0), received: AtomicU64::new(0), all });
        Self {
            read: WireRead { inner: read, count: count.clone(), first: [0; FIRST_LEN], n_first: 0 },
            write: WireWrite { inner: write, count: count.clone() },
            count,
            address,
        }
    }
}

/// Has the system take little more than it can send at once. What it has taken cannot be overtaken: on a link of 10 Mbit/s a probe behind
/// the usual four megabytes would be seconds late, and its sender given up.
fn keep_queue_short(stream: &TcpStream) {
    // Where it cannot be set, links work all the same.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(MOST_UNSENT);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = stream;
}

impl From<TcpStream> for Wire {
    fn from(stream: TcpStream) -> Self {
        Self::counted(stream, Arc::default())
    }
}

impl From<DuplexStream> for Wire {
    fn from(stream: DuplexStream) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self::new(Box::new(read), Box::new(write), None, Arc::default())
    }
}

/// The reading half.
pub(crate) struct WireRead {
    inner: BoxRead,
    count: Arc<WireCount>,
    first: [u8; FIRST_LEN],
    n_first: usize,
}

impl WireRead {
    /// The first bytes that came, as far as they have come.
    pub(crate) fn first(&self) -> &[u8] {
        &self.first[..self.n_first]
    }
}

impl AsyncRead for WireRead {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buffer))?;
        let new = &buffer.filled()[before..];
        self.count.add_received(new.len());
        if self.n_first < FIRST_LEN {
            let at = self.n_first;
            let n = new.len().min(FIRST_LEN - at);
            self.first[at..at + n].copy_from_slice(&new[..n]);
            self.n_first += n;
        }
        Poll::Ready(Ok(()))
    }
}

/// The writing half.
pub(crate) struct WireWrite {
    inner: BoxWrite,
    count: Arc<WireCount>,
}

impl AsyncWrite for WireWrite {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.count.add_sent(n);
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let n = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, slices))?;
        self.count.add_sent(n);
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Ends a stream so that what was written last still arrives: a socket that is closed while bytes lie unread in it takes
/// back what it has sent.
pub(crate) async fn shut_down_gracefully(read: &mut (impl AsyncRead + Unpin), write: &mut (impl AsyncWrite + Unpin)) {
    const PATIENCE: Duration = Duration::from_millis(500);
    const MOST_BYTES: u64 = 1 << 20;
    let farewell = async {
        write.shutdown().await?;
        tokio::io::copy(&mut read.take(MOST_BYTES), &mut tokio::io::sink()).await
    };
    // Whether it worked does not matter to anybody any more.
    let _ = tokio::time::timeout(PATIENCE, farewell).await;
}
