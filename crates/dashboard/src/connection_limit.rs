//! A listener with few connections at a time, each of which has little time to ask: who watches must not take from the process that
//! trains the files it may open, and who asks nothing must not keep others from asking.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

/// A browser has a handful.
const MOST_CONNECTIONS: usize = 64;
const MOST_PER_ADDRESS: usize = 32;
/// How long a request may take to come, from the beginning of the connection or the last answer on. The page asks every second, and
/// who asks less often may connect again.
const LONGEST_REQUEST: Duration = Duration::from_secs(20);

/// Closes an earlier connection where there are too many.
pub(crate) struct ConnectionLimit {
    listener: TcpListener,
    /// Those that are open, oldest first.
    guests: VecDeque<Guest>,
}

/// A connection as the listener knows it.
struct Guest {
    address: IpAddr,
    was_answered: Arc<AtomicBool>,
    /// That it is gone says that the connection has to go, and the other way round.
    close: oneshot::Sender<()>,
}

/// A connection that counts until it is closed.
pub(crate) struct Connection {
    stream: TcpStream,
    /// When the request has taken too long.
    deadline: Pin<Box<Sleep>>,
    was_answered: Arc<AtomicBool>,
    /// None if it has to go.
    closing: Option<oneshot::Receiver<()>>,
}

impl ConnectionLimit {
    pub(crate) fn new(listener: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(listener)?, guests: VecDeque::new() })
    }

    fn admit(&mut self, stream: TcpStream, address: IpAddr) -> Connection {
        self.guests.retain(|guest| !guest.close.is_closed());
        self.make_room(address);
        let (close, closing) = oneshot::channel();
        let was_answered = Arc::new(AtomicBool::new(false));
        self.guests.push_back(Guest { address, was_answered: was_answered.clone(), close });
        Connection { stream, deadline: Box::pin(sleep(LONGEST_REQUEST)), was_answered, closing: Some(closing) }
    }

    /// Has one go if there are too many: who has too many itself loses one of its own. The first to go is the oldest that was never
    /// answered, as it most likely asks nothing.
    fn make_room(&mut self, address: IpAddr) {
        let has_many = self.guests.iter().filter(|guest| guest.address == address).count() >= MOST_PER_ADDRESS;
        if !has_many && self.guests.len() < MOST_CONNECTIONS {
            return;
        }
        let may_go = self.guests.iter().enumerate().filter(|(_, guest)| !has_many || guest.address == address);
        let first = may_go.min_by_key(|(at, guest)| (guest.was_answered.load(Ordering::Relaxed), *at));
        if let Some((at, _)) = first {
            self.guests.remove(at);
        }
    }
}

impl Connection {
    /// Whether it may go on; if not now, it is woken when it may not any more.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.closing.take_if(|closing| Pin::new(closing).poll(context).is_ready());
        if self.closing.is_none() {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Listener for ConnectionLimit {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        (self.admit(stream, address.ip()), address)
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
        // However much comes in between: a request that comes byte by byte would never be over.
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(context)?;
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        if result.is_ready() {
            self.was_answered.store(true, Ordering::Relaxed);
            self.deadline.as_mut().reset(Instant::now() + LONGEST_REQUEST);
        }
        result
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
    use std::io::ErrorKind;
    use std::net::IpAddr;
    use std::time::Duration;

    use axum::serve::Listener;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::time::{sleep, timeout};

    use super::{Connection, ConnectionLimit, LONGEST_REQUEST, MOST_CONNECTIONS, MOST_PER_ADDRESS};

    fn listener() -> ConnectionLimit {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        ConnectionLimit::new(listener).unwrap()
    }

    /// So many connections, of which those are kept open that the listener has accepted.
    async fn connect(listener: &mut ConnectionLimit, n: usize) -> Vec<(TcpStream, Connection)> {
        let mut all = Vec::new();
        for _ in 0..n {
            let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            all.push((caller, listener.accept().await.0));
        }
        all
    }

    async fn is_open(connection: &mut Connection) -> bool {
        match timeout(Duration::ZERO, connection.read_u8()).await {
            Ok(result) => result.is_ok(),
            Err(_) => true,
        }
    }

    #[tokio::test]
    async fn who_has_asked_nothing_makes_way() {
        let mut listener = listener();
        let mut first = connect(&mut listener, MOST_PER_ADDRESS).await;
        first[0].1.write_all(b"an answer").await.unwrap();
        let coming = timeout(Duration::from_secs(60), connect(&mut listener, 2)).await;
        let mut more = coming.expect("nobody who comes has to wait");
        let mut open = Vec::new();
        for (_, connection) in first.iter_mut().chain(&mut more) {
            open.push(is_open(connection).await);
        }
        assert_eq!(open.iter().filter(|is_open| **is_open).count(), MOST_PER_ADDRESS);
        assert_eq!(open[..4], [true, false, false, true], "the oldest without an answer go first");
    }

    #[tokio::test]
    async fn one_address_cannot_take_the_room_of_others() {
        let mut listener = listener();
        let mut all = Vec::new();
        // One caller, and then many from another machine, as far as the listener knows.
        for k in 0..4 * MOST_CONNECTIONS {
            let caller = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.listener.accept().await.unwrap();
            let address = IpAddr::from([192, 0, 2, u8::from(k > 0)]);
            all.push((caller, listener.admit(stream, address)));
        }
        assert!(is_open(&mut all[0].1).await);
        assert_eq!(listener.guests.len(), 1 + MOST_PER_ADDRESS);
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_nothing_or_little_is_let_go() {
        let mut listener = listener();
        let (_caller, mut connection) = connect(&mut listener, 1).await.remove(0);
        let silence = timeout(2 * LONGEST_REQUEST, connection.read_u8()).await.expect("it goes on for ever");
        assert_eq!(silence.unwrap_err().kind(), ErrorKind::TimedOut);

        let (mut caller, mut connection) = connect(&mut listener, 1).await.remove(0);
        let drip = async {
            // It is not over before the reader has gone.
            while caller.write_all(b"x").await.is_ok() {
                sleep(LONGEST_REQUEST / 4).await;
            }
        };
        let reader = async {
            let mut n_read = 0;
            loop {
                match connection.read_u8().await {
                    Ok(_) => n_read += 1,
                    Err(error) => break (n_read, error.kind()),
                }
                assert!(n_read < 100, "it goes on for ever");
            }
        };
        let (n_read, kind) = tokio::select! {
            ended = reader => ended,
            () = drip => panic!("the reader is there"),
        };
        assert!(n_read <= 5 && kind == ErrorKind::TimedOut, "{n_read} bytes, {kind}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_again_after_an_answer_has_as_much_time_again() {
        let mut listener = listener();
        let (mut caller, mut connection) = connect(&mut listener, 1).await.remove(0);
        for _ in 0..5 {
            sleep(LONGEST_REQUEST * 3 / 4).await;
            caller.write_all(b"?").await.unwrap();
            connection.read_u8().await.unwrap();
            connection.write_all(b"!").await.unwrap();
        }
    }
}
