//! TLS 1.3 over a wire. All of it is rustls' work; here its connection is driven.
//!
//! A link reads and writes at the same time, where there are threads to spare on two of them. So each half waits for its own
//! side of the wire by itself, and holds the connection only while it opens or seals what lies in memory.

use std::io::{self, BufRead, IoSlice, Write};
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use crate::hello::looks_like_hello;
use crate::key_tls::{SERVER_NAME, TlsKeys, proven_key};
use crate::keys::PublicKey;
use crate::refusal::HandshakeError;
use crate::role::Role;
use crate::transport::{BoxRead, BoxWrite};
use crate::wire::{Wire, shut_down_gracefully};

// What the other side may send before it has proven anything; an honest side sends about 1.5 KiB.
const MAX_UNPROVEN: usize = 16 << 10;
// Idle links, of which there may be hundreds, read into no more than this.
const MIN_IN_LEN: usize = 16 << 10;
// Enough to make system calls cheap, and little enough to stay in the second-level cache.
const MAX_IN_LEN: usize = 256 << 10;
const OUT_LEN: usize = 256 << 10;

/// An encrypted stream to whoever holds a key.
pub(crate) struct Secured {
    pub(crate) read: BoxRead,
    pub(crate) write: BoxWrite,
    /// The key that the other side has proven to hold.
    pub(crate) key: PublicKey,
}

/// Sets up TLS. Then each side knows the other's key, and not yet whether it wants anything to do with its holder.
pub(crate) async fn secure(mut wire: Wire, role: Role, keys: &TlsKeys) -> Result<Secured, HandshakeError> {
    match agree(&mut wire, role, keys).await {
        Ok((connection, key)) => {
            let tls = Tls(Arc::new(Mutex::new(connection)));
            let read = TlsRead { source: wire.read, tls: tls.clone(), buffer: vec![0; MIN_IN_LEN], sealed: 0..0 };
            let write = TlsWrite { sink: wire.write, tls, out: Vec::new(), n_written: 0, has_ended: false };
            Ok(Secured { read: Box::new(read), write: Box::new(write), key })
        }
        Err(error) => {
            shut_down_gracefully(&mut wire.read, &mut wire.write).await;
            Err(if looks_like_hello(wire.read.first()) { HandshakeError::MixedEncryption } else { error })
        }
    }
}

/// Carries what rustls says back and forth until both sides agree, or one does not; also returns the other side's key.
async fn agree(wire: &mut Wire, role: Role, keys: &TlsKeys) -> Result<(Connection, PublicKey), HandshakeError> {
    let mut connection = match role {
        Role::Dialler => {
            let name = ServerName::try_from(SERVER_NAME).expect("the name is a valid one");
            Connection::from(ClientConnection::new(keys.client.clone(), name).map_err(tls)?)
        }
        Role::Listener => Connection::from(ServerConnection::new(keys.server.clone()).map_err(tls)?),
    };
    connection.set_buffer_limit(Some(OUT_LEN));
    let (mut buffer, mut n_received) = (vec![0; 4 << 10], 0);
    loop {
        send(&mut connection, wire).await.map_err(HandshakeError::from_stream)?;
        if !connection.is_handshaking() {
            break;
        }
        if n_received > MAX_UNPROVEN {
            return Err(HandshakeError::NotNetTorrent);
        }
        let n_read = wire.read.read(&mut buffer).await.map_err(HandshakeError::from_stream)?;
        if n_read == 0 {
            return Err(HandshakeError::HungUp);
        }
        n_received += n_read;
        if let Err(error) = take_in(&mut connection, &buffer[..n_read]) {
            // An alert may be waiting that tells the other side. If it cannot be sent, nobody is there to read it.
            let _ = send(&mut connection, wire).await;
            return Err(HandshakeError::from_stream(error));
        }
    }
    let key = proven_key(connection.peer_certificates()).ok_or(HandshakeError::NotNetTorrent)?;
    Ok((connection, key))
}

async fn send(connection: &mut Connection, wire: &mut Wire) -> io::Result<()> {
    let mut bytes = Vec::new();
    while connection.wants_write() {
        connection.write_tls(&mut bytes)?;
    }
    wire.write.write_all(&bytes).await?;
    wire.write.flush().await
}

/// Shows rustls all that came. What lies behind the handshake it keeps for who reads first.
fn take_in(connection: &mut Connection, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.read_tls(&mut bytes)?;
        connection.process_new_packets().map_err(to_io)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
fn tls(error: rustls::Error) -> HandshakeError {
    HandshakeError::from_tls(&error)
}

fn to_io(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A connection that both halves use.
#[derive(Clone)]
struct Tls(Arc<Mutex<Connection>>);

impl Tls {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        // If rustls panicked, so has the link, and what it says any more reaches nobody.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A source of what it opens.
struct TlsRead<R> {
    source: R,
    tls: Tls,
    buffer: Vec<u8>,
    // What of it rustls has not seen yet.
    sealed: Range<usize>,
}

impl<R: AsyncRead + Unpin> TlsRead<R> {
    /// Opens the next record and hands on what there is room for; whether there was one, or the end.
    fn open(&mut self, out: &mut ReadBuf<'_>) -> io::Result<bool> {
        let mut tls = self.tls.lock();
        loop {
            let processed = tls.process_new_packets();
            let mut plain = tls.reader();
            match plain.fill_buf() {
                // Nothing is the end.
                Ok(bytes) => {
                    let n_taken = bytes.len().min(out.remaining());
                    out.put_slice(&bytes[..n_taken]);
                    plain.consume(n_taken);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            // What came before a failure has been heard by now. It stays: who asks again is told again.
            processed.map_err(to_io)?;
            if self.sealed.is_empty() {
                return Ok(false);
            }
            self.sealed.start += tls.read_tls(&mut &self.buffer[self.sealed.clone()])?;
        }
    }

    /// Reads more. If there is no more, rustls knows whether the other side has said goodbye: an end without one is an
    /// error, or whoever can cut the connection could make half a conversation look like a whole one.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut room = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.source).poll_read(cx, &mut room))?;
        let n_read = room.filled().len();
        self.sealed = 0..n_read;
        if n_read == 0 {
            self.tls.lock().read_tls(&mut io::empty())?;
        }
        Poll::Ready(Ok(()))
    }

    /// Much is coming if all room was filled, so from now on more may come at once.
    fn grow(&mut self) {
        if self.sealed.end == self.buffer.len() && self.buffer.len() < MAX_IN_LEN {
            self.buffer.resize(MAX_IN_LEN, 0);
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for TlsRead<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while out.remaining() > 0 && !self.open(out)? {
            self.grow();
            ready!(self.poll_fill(cx))?;
        }
        Poll::Ready(Ok(()))
    }
}

/// A sink that seals what is written to it.
struct TlsWrite<W> {
    sink: W,
    tls: Tls,
    // Sealed records, and how much of them has been written.
    out: Vec<u8>,
    n_written: usize,
    has_ended: bool,
}

impl<W: AsyncWrite + Unpin> TlsWrite<W> {
    /// Seals what comes next in the slices; returns how much that was.
    fn seal(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut tls = self.tls.lock();
        let n_taken = tls.writer().write_vectored(slices)?;
        while tls.wants_write() {
            tls.write_tls(&mut self.out)?;
        }
        Ok(n_taken)
    }

    /// Writes what has been sealed.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.n_written < self.out.len() {
            match ready!(Pin::new(&mut self.sink).poll_write(cx, &self.out[self.n_written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n_bytes => self.n_written += n_bytes,
            }
        }
        self.out.clear();
        self.n_written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for TlsWrite<W> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // rustls would take it and keep it.
        if self.has_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_drain(cx))?;
        let n_taken = match self.seal(slices)? {
            // It was time for a new key.
            0 => self.seal(slices)?,
            n_taken => n_taken,
        };
        // What the wire does not take now it takes before the next records, or when flushed.
        if let Poll::Ready(result) = self.poll_drain(cx) {
            result?;
        }
        Poll::Ready(Ok(n_taken))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.sink).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.has_ended {
            self.has_ended = true;
            self.tls.lock().send_close_notify();
            self.seal(&[])?;
        }
        ready!(self.poll_drain(cx))?;
        Pin::new(&mut self.sink).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::{Secured, secure};
    use crate::key_tls::TlsKeys;
    use crate::keys::PrivateKey;
    use crate::role::Role;
    use crate::wire::Wire;
    use std::io;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from_seed(&[seed; 32])
    }

    /// The dialler's and the listener's end.
    async fn pair(one: DuplexStream, other: DuplexStream) -> (Secured, Secured) {
        let (dialler, listener) = (TlsKeys::new(&key(1)).unwrap(), TlsKeys::new(&key(2)).unwrap());
        let (one, other) = tokio::join!(
            secure(Wire::from(one), Role::Dialler, &dialler),
            secure(Wire::from(other), Role::Listener, &listener)
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!((one.key, other.key), (key(2).public(), key(1).public()));
        (one, other)
    }

    /// Says much, hears much, says goodbye, and hears that.
    async fn converse(mut end: Secured, own: u8, other: u8) {
        const N_BYTES: usize = 3_000_000;
        let sent = vec![own; N_BYTES];
        let speaking = async {
            end.write.write_all(&sent).await.unwrap();
            end.write.shutdown().await.unwrap();
            assert_eq!(end.write.write(b"one more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        };
        let mut heard = Vec::new();
        let hearing = async { end.read.read_to_end(&mut heard).await.unwrap() };
        tokio::join!(speaking, hearing);
        assert!(heard == vec![other; N_BYTES]);
    }

    #[tokio::test]
    async fn both_speak_at_the_same_time() {
        // Less than a record fits, and many do.
        for n_bytes in [1000, 1 << 20] {
            let (one, other) = tokio::io::duplex(n_bytes);
            let (one, other) = pair(one, other).await;
            tokio::join!(converse(one, 1, 2), converse(other, 2, 1));
        }
    }

    #[tokio::test]
    async fn what_comes_with_the_end_of_the_handshake_is_heard() {
        // From what comes whole to what does not even bring the end of its first record.
        for n_early in [1, 100, 3_000, 10_000, 16_000, 40_000] {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let [own, other] = [1, 2].map(|seed| TlsKeys::new(&key(seed)).unwrap());
            let early: Vec<u8> = (0..n_early).map(|at| (at * 7) as u8).collect();
            let talking = async {
                let mut theirs = secure(Wire::from(theirs), Role::Dialler, &other).await.unwrap();
                // Nobody has read the end of the handshake yet.
                theirs.write.write_all(&early).await.unwrap();
                theirs.write.shutdown().await.unwrap();
                theirs
            };
            let (ours, _theirs) = tokio::join!(secure(Wire::from(ours), Role::Listener, &own), talking);
            let mut heard = Vec::new();
            ours.unwrap().read.read_to_end(&mut heard).await.unwrap();
            assert!(heard == early, "{n_early}");
        }
    }

    #[tokio::test]
    async fn an_end_without_a_goodbye_is_an_error() {
        for role in [Role::Dialler, Role::Listener] {
            let (one, other) = tokio::io::duplex(1 << 20);
            let (dialler, listener) = pair(one, other).await;
            let (mut ours, mut theirs) = match role {
                Role::Dialler => (dialler, listener),
                Role::Listener => (listener, dialler),
            };
            theirs.write.write_all(b"half a sent").await.unwrap();
            theirs.write.flush().await.unwrap();
            drop(theirs);
            let mut heard = Vec::new();
            let error = ours.read.read_to_end(&mut heard).await.unwrap_err();
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::UnexpectedEof, &b"half a sent"[..]));
        }
    }

    #[tokio::test]
    async fn a_stream_that_has_failed_stays_so() {
        // What the dialler says goes through our hands once the handshake is over.
        let (one, mut from_one) = tokio::io::duplex(1 << 20);
        let (mut to_other, other) = tokio::io::duplex(1 << 20);
        let between = async {
            tokio::io::copy_bidirectional(&mut from_one, &mut to_other).await.unwrap();
        };
        let (mut one, mut other) = tokio::select! {
            ends = pair(one, other) => ends,
            () = between => panic!("nobody has hung up"),
        };
        let mut records = Vec::new();
        for part in [b"good", b"evil", b"good"] {
            one.write.write_all(part).await.unwrap();
            one.write.flush().await.unwrap();
            let at = records.len();
            records.resize(at + 5 + part.len() + 17, 0);
            from_one.read_exact(&mut records[at..]).await.unwrap();
        }
        records[26 + 5] ^= 1;
        to_other.write_all(&records).await.unwrap();
        // What came before the changed record is heard, and nothing after it, however often one asks.
        let mut buffer = [0; 100];
        assert_eq!(other.read.read(&mut buffer).await.unwrap(), 4);
        for _ in 0..3 {
            assert_eq!(other.read.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        assert_eq!(buffer[..5], *b"good\0");
    }
}
