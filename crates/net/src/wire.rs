//! The two halves of a byte stream, with a count of what passes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::address::Address;
use crate::route::RouteNow;
use crate::socket_count::{SocketBytes, SocketCount};
use crate::transport::{BoxRead, BoxWrite, ByteStream};

/// How much of what came first is remembered, to tell what the other side speaks when it makes no sense.
pub(crate) const FIRST_LEN: usize = 32;

/// A byte stream before anything has been said on it.
pub struct Wire {
    pub(crate) read: WireRead,
    pub(crate) write: WireWrite,
    pub(crate) count: Arc<WireCount>,
    /// Where the other end is.
    pub(crate) address: Address,
    /// By which way it goes.
    pub(crate) route: RouteNow,
}

/// Bytes at the socket: with heads and encryption. Of this one, and of all that its endpoint has.
#[derive(Debug)]
pub(crate) struct WireCount {
    pub(crate) sent: AtomicU64,
    pub(crate) received: AtomicU64,
    pub(crate) all: Arc<SocketCount>,
}

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
    /// A stream whose bytes are counted with those of others.
    pub(crate) fn counted(stream: ByteStream, all: Arc<SocketCount>) -> Self {
        let ByteStream { read, write, address, route } = stream;
        let count = Arc::new(WireCount { sent: AtomicU64::new(0), received: AtomicU64::new(0), all });
        Self {
            read: WireRead { inner: read, count: count.clone(), first: [0; FIRST_LEN], n_first: 0 },
            write: WireWrite { inner: write, count: count.clone() },
            count,
            address,
            route,
        }
    }
}

impl<S: Into<ByteStream>> From<S> for Wire {
    fn from(stream: S) -> Self {
        Self::counted(stream.into(), Arc::default())
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
    let shutdown = async {
        write.shutdown().await?;
        tokio::io::copy(&mut read.take(MOST_BYTES), &mut tokio::io::sink()).await
    };
    // Whether it worked does not matter to anybody any more.
    let _ = tokio::time::timeout(PATIENCE, shutdown).await;
}
