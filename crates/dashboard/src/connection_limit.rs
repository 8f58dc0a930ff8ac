//! A listener with few connections at a time, none of which is idle for long: who watches must not take from the process that
//! trains the files it may open.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// A browser has a handful.
const MOST_CONNECTIONS: usize = 64;
/// The page asks every second, and who asks less often may connect again.
const LONGEST_SILENCE: Duration = Duration::from_secs(20);

/// Accepts no more while there are as many connections as there may be.
pub(crate) struct ConnectionLimit {
    listener: TcpListener,
    free: Arc<Semaphore>,
}

/// A connection that counts until it is closed.
pub(crate) struct Connection {
    stream: TcpStream,
    /// When nothing has come for too long.
    silence: Pin<Box<Sleep>>,
    _counted: OwnedSemaphorePermit,
}

impl ConnectionLimit {
    pub(crate) fn new(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(listener)?, free: Arc::new(Semaphore::new(MOST_CONNECTIONS)) })
    }
}

impl Listener for ConnectionLimit {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let counted = self.free.clone().acquire_owned().await.expect("it is never closed");
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (Connection { stream, silence: Box::pin(sleep(LONGEST_SILENCE)), _counted: counted }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if result.is_ready() {
            self.silence.as_mut().reset(Instant::now() + LONGEST_SILENCE);
        } else if self.silence.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        result
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::serve::Listener;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpStream;

    use super::{ConnectionLimit, MOST_CONNECTIONS};

    fn listener() -> ConnectionLimit {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        ConnectionLimit::new(listener).unwrap()
    }

    #[tokio::test]
    async fn one_more_waits_until_another_is_gone() {
        let mut listener = listener();
        let address = listener.local_addr().unwrap();
        let mut callers = Vec::new();
        let mut accepted = Vec::new();
        for _ in 0..MOST_CONNECTIONS {
            callers.push(TcpStream::connect(address).await.unwrap());
            accepted.push(listener.accept().await.0);
        }
        callers.push(TcpStream::connect(address).await.unwrap());
        assert_eq!(listener.free.available_permits(), 0);
        accepted.pop();
        listener.accept().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_is_let_go() {
        let mut listener = listener();
        let _caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut connection, _) = listener.accept().await;
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
    }
}
