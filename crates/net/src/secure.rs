//! TLS over a wire, with the swarm's authority as the only one: rustls shakes hands, [`records`](crate::records) do the rest.

use std::sync::Arc;

use rustls::ExtractedSecrets;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, UnbufferedConnectionCommon, UnbufferedStatus};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::hello::looks_like_hello;
use crate::identity::{Identity, SERVER_NAME, fingerprint_of_certificate};
use crate::records::{HEADER_LEN, Key, RECORDS_PER_KEY, RecordReader, RecordWriter, Rekeying};
use crate::refusal::HandshakeError;
use crate::wire::{BoxRead, BoxWrite, Wire, shut_down_gracefully};

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one who called.
    Dialler,
    /// The one who was called.
    Listener,
}

// What the other side may send before it has proven anything; an honest side sends about 1.5 KiB.
const MAX_INCOMING: usize = 16 << 10;

/// An encrypted stream to someone who holds the secret.
pub(crate) struct Secured {
    pub(crate) read: BoxRead,
    pub(crate) write: BoxWrite,
    /// Of the key that the other side has proven to own.
    pub(crate) fingerprint: u64,
}

/// Sets up TLS; either both sides hold the secret, or both learn that they do not.
pub(crate) async fn secure(mut wire: Wire, role: Role, identity: &Identity) -> Result<Secured, HandshakeError> {
    match agree(&mut wire, role, identity).await {
        Ok(agreed) => agreed.into_streams(wire, RECORDS_PER_KEY),
        Err(error) => {
            shut_down_gracefully(&mut wire.read, &mut wire.write).await;
            Err(if looks_like_hello(wire.read.first()) { HandshakeError::MixedEncryption } else { error })
        }
    }
}

async fn agree(wire: &mut Wire, role: Role, identity: &Identity) -> Result<Agreed, HandshakeError> {
    match role {
        Role::Dialler => {
            let name = ServerName::try_from(SERVER_NAME).expect("the name is a valid one");
            drive(UnbufferedClientConnection::new(identity.client.clone(), name).map_err(tls)?, wire).await
        }
        Role::Listener => drive(UnbufferedServerConnection::new(identity.server.clone()).map_err(tls)?, wire).await,
    }
}

/// What a handshake has brought.
struct Agreed {
    fingerprint: u64,
    secrets: ExtractedSecrets,
    rekeying: Arc<Rekeying>,
    // What came behind the handshake: records that nobody has looked at yet.
    early: Vec<u8>,
}

impl Agreed {
    fn into_streams(self, wire: Wire, records_per_key: u64) -> Result<Secured, HandshakeError> {
        let Self { fingerprint, secrets, rekeying, early } = self;
        let (send, receive) = (Key::new(secrets.tx).map_err(tls)?, Key::new(secrets.rx).map_err(tls)?);
        let read = RecordReader::new(wire.read, receive, rekeying.clone(), early);
        let write = RecordWriter::new(wire.write, send, rekeying, records_per_key);
        Ok(Secured { read: Box::new(read), write: Box::new(write), fingerprint })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is for `map_err`")]
fn tls(error: rustls::Error) -> HandshakeError {
    HandshakeError::from_tls(&error)
}

/// What clients and servers have in common, since rustls has them as two types.
trait TlsSide {
    type Data;

    fn common(&mut self) -> &mut UnbufferedConnectionCommon<Self::Data>;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    /// The keys, and who knows the next ones.
    fn into_keys(self) -> Result<(ExtractedSecrets, Arc<Rekeying>), rustls::Error>;
}

impl TlsSide for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn common(&mut self) -> &mut UnbufferedConnectionCommon<Self::Data> {
        self
    }

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn into_keys(self) -> Result<(ExtractedSecrets, Arc<Rekeying>), rustls::Error> {
        self.dangerous_into_kernel_connection().map(|(secrets, next)| (secrets, Arc::new(Rekeying::new(next)) as _))
    }
}

impl TlsSide for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn common(&mut self) -> &mut UnbufferedConnectionCommon<Self::Data> {
        self
    }

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn into_keys(self) -> Result<(ExtractedSecrets, Arc<Rekeying>), rustls::Error> {
        self.dangerous_into_kernel_connection().map(|(secrets, next)| (secrets, Arc::new(Rekeying::new(next)) as _))
    }
}

/// What rustls wants next.
enum Step {
    GoOn,
    Send,
    Receive,
    Done,
    HungUp,
    Fail(rustls::Error),
}

/// Carries what rustls says back and forth until both sides agree, or one does not.
///
/// rustls is shown one record after the other, so that it sees the whole handshake and nothing of what comes behind: that is
/// sealed under keys which by then are ours to use.
async fn drive<S: TlsSide>(mut side: S, wire: &mut Wire) -> Result<Agreed, HandshakeError> {
    let (mut incoming, mut outgoing) = (Vec::new(), Vec::new());
    let mut n_shown = 0;
    loop {
        let (n_discarded, step) = step(&mut side, &mut incoming[..n_shown], &mut outgoing);
        incoming.drain(..n_discarded);
        n_shown -= n_discarded;
        match step {
            Step::GoOn => {}
            Step::Send => {
                wire.write.write_all(&outgoing).await.map_err(HandshakeError::from_stream)?;
                wire.write.flush().await.map_err(HandshakeError::from_stream)?;
                outgoing.clear();
            }
            Step::Receive => {
                if n_shown == incoming.len() {
                    receive(wire, &mut incoming).await?;
                }
                n_shown = end_of_record(&incoming, n_shown);
            }
            // A handshake ends with a record, or it is none.
            Step::Done if n_shown > 0 => return Err(HandshakeError::NotNetTorrent),
            Step::Done => {
                let certificate = side.common().peer_certificates().and_then(<[_]>::first);
                let fingerprint =
                    fingerprint_of_certificate(certificate.ok_or(HandshakeError::Stranger)?).map_err(tls)?;
                let (secrets, rekeying) = side.into_keys().map_err(tls)?;
                return Ok(Agreed { fingerprint, secrets, rekeying, early: incoming });
            }
            Step::HungUp => return Err(HandshakeError::HungUp),
            Step::Fail(error) => {
                // An alert may be waiting that tells the other side; rustls must be asked for it once, and not again. If
                // it cannot be sent, nobody is there to read it.
                let _ = self::step(&mut side, &mut incoming[..n_shown], &mut outgoing);
                let _ = wire.write.write_all(&outgoing).await;
                return Err(tls(error));
            }
        }
    }
}

async fn receive(wire: &mut Wire, incoming: &mut Vec<u8>) -> Result<(), HandshakeError> {
    if incoming.len() >= MAX_INCOMING {
        return Err(HandshakeError::NotNetTorrent);
    }
    incoming.reserve_exact(MAX_INCOMING - incoming.len());
    match wire.read.read_buf(incoming).await.map_err(HandshakeError::from_stream)? {
        0 => Err(HandshakeError::HungUp),
        _ => Ok(()),
    }
}

/// Where the record ends that lies behind so many bytes, or around them; as far as it has come, so that rustls can refuse what
/// is no record without waiting for its end.
fn end_of_record(incoming: &[u8], n_shown: usize) -> usize {
    let mut end = 0;
    while end <= n_shown {
        let header = incoming.get(end..).and_then(<[u8]>::first_chunk);
        let Some([_, _, _, high, low]) = header else { return incoming.len() };
        end += HEADER_LEN + usize::from(u16::from_be_bytes([*high, *low]));
    }
    end.min(incoming.len())
}

/// Lets rustls do one thing; also returns how much of what came in it has done with.
fn step<S: TlsSide>(side: &mut S, incoming: &mut [u8], outgoing: &mut Vec<u8>) -> (usize, Step) {
    let UnbufferedStatus { discard, state } = side.process(incoming);
    let step = match state {
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let at = outgoing.len();
            outgoing.resize(at + MAX_INCOMING + 1024, 0);
            let encoded = data.encode(&mut outgoing[at..]);
            outgoing.truncate(at + encoded.as_ref().copied().unwrap_or(0));
            match encoded {
                Ok(_) => Step::GoOn,
                Err(_) => Step::Fail(rustls::Error::EncryptError),
            }
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            data.done();
            Step::Send
        }
        Ok(ConnectionState::WriteTraffic(_)) => Step::Done,
        Ok(ConnectionState::BlockedHandshake) => Step::Receive,
        // Nothing else comes up in a handshake, but that the other side ends it.
        Ok(_) => Step::HungUp,
        Err(error) => Step::Fail(error),
    };
    // A server may be allowed to speak before it knows to whom.
    let is_too_early = matches!(step, Step::Done) && side.common().is_handshaking();
    (discard, if is_too_early { Step::Receive } else { step })
}

#[cfg(test)]
mod tests {
    use super::{Role, agree, end_of_record, secure};
    use crate::identity::{Identity, SERVER_NAME, fingerprint};
    use crate::ticket::Secret;
    use crate::wire::Wire;
    use rustls::crypto::aws_lc_rs::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    use rustls::pki_types::ServerName;
    use rustls::{CipherSuite, SupportedCipherSuite};
    use std::io;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
    use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

    const SUITES: [SupportedCipherSuite; 3] =
        [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];

    fn identity(seat: u32) -> Identity {
        Identity::new(&Secret::from_bytes([5; 32]), seat).unwrap()
    }

    /// The other side as rustls itself plays it.
    async fn reference(ours: Role, identity: &Identity, stream: DuplexStream) -> TlsStream<DuplexStream> {
        match ours {
            Role::Listener => {
                let name = ServerName::try_from(SERVER_NAME).unwrap();
                TlsStream::from(TlsConnector::from(identity.client.clone()).connect(name, stream).await.unwrap())
            }
            Role::Dialler => TlsStream::from(TlsAcceptor::from(identity.server.clone()).accept(stream).await.unwrap()),
        }
    }

    fn refresh(stream: &mut TlsStream<DuplexStream>) {
        match stream {
            TlsStream::Client(stream) => stream.get_mut().1.refresh_traffic_keys().unwrap(),
            TlsStream::Server(stream) => stream.get_mut().1.refresh_traffic_keys().unwrap(),
        }
    }

    fn suite(stream: &TlsStream<DuplexStream>) -> CipherSuite {
        stream.get_ref().1.negotiated_cipher_suite().unwrap().suite()
    }

    /// Says much, hears much, says goodbye, and hears that.
    async fn converse(mut read: impl AsyncRead + Unpin, mut write: impl AsyncWrite + Unpin, own: u8, other: u8) {
        let sent = vec![own; 300_000];
        let speaking = async {
            write.write_all(&sent).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let mut heard = Vec::new();
        let hearing = async { read.read_to_end(&mut heard).await.unwrap() };
        tokio::join!(speaking, hearing);
        assert!(heard == vec![other; 300_000]);
    }

    #[tokio::test]
    async fn we_understand_each_other() {
        let (one, other) = tokio::io::duplex(1 << 20);
        let (dialler, listener) = (identity(1), identity(2));
        let (one, other) = tokio::join!(
            secure(Wire::from(one), Role::Dialler, &dialler),
            secure(Wire::from(other), Role::Listener, &listener)
        );
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!((one.fingerprint, other.fingerprint), (fingerprint(listener.peer), fingerprint(dialler.peer)));
        tokio::join!(converse(one.read, one.write, 1, 2), converse(other.read, other.write, 2, 1));
    }

    #[tokio::test]
    async fn what_we_speak_is_tls_as_others_speak_it() {
        for (role, chosen) in
            [Role::Dialler, Role::Listener].into_iter().flat_map(|role| SUITES.map(|suite| (role, suite)))
        {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let own = identity(1);
            let other = Identity::with_suites(&Secret::from_bytes([5; 32]), 2, vec![chosen]).unwrap();
            let mut wire = Wire::from(ours);
            let (agreed, mut theirs) = tokio::join!(agree(&mut wire, role, &own), reference(role, &other, theirs));
            assert_eq!(suite(&theirs), chosen.suite());
            // We change our key every third record.
            let mut ours = agreed.unwrap().into_streams(wire, 3).unwrap();
            assert_eq!(ours.fingerprint, fingerprint(other.peer));
            // They change theirs now and then, and want us to change ours.
            for n_bytes in [1, 100, 40_000] {
                refresh(&mut theirs);
                let (question, mut answer) = (vec![7; n_bytes], vec![0; n_bytes]);
                theirs.write_all(&question).await.unwrap();
                theirs.flush().await.unwrap();
                ours.read.read_exact(&mut answer).await.unwrap();
                assert!(answer == question);
                ours.write.write_all(&answer).await.unwrap();
                theirs.read_exact(&mut answer).await.unwrap();
                assert!(answer == question);
            }
            let (read, write) = tokio::io::split(theirs);
            tokio::join!(converse(ours.read, ours.write, 1, 2), converse(read, write, 2, 1));
        }
    }

    #[tokio::test]
    async fn what_comes_with_the_end_of_the_handshake_is_heard() {
        // From what comes whole to what does not even bring the end of its first record.
        for n_early in [1, 100, 10_000, 16_000, 40_000] {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let (own, other) = (identity(1), identity(2));
            let early: Vec<u8> = (0..n_early).map(|at| (at * 7) as u8).collect();
            let talking = async {
                let mut theirs = reference(Role::Listener, &other, theirs).await;
                // Nobody has let us read the end of the handshake yet.
                theirs.write_all(&early).await.unwrap();
                theirs.shutdown().await.unwrap();
                theirs
            };
            let mut wire = Wire::from(ours);
            let (agreed, _theirs) = tokio::join!(agree(&mut wire, Role::Listener, &own), talking);
            let agreed = agreed.unwrap();
            assert!(!agreed.early.is_empty(), "nothing came early");
            let mut ours = agreed.into_streams(wire, 3).unwrap();
            let mut heard = Vec::new();
            ours.read.read_to_end(&mut heard).await.unwrap();
            assert!(heard == early, "{n_early}");
        }
    }

    #[test]
    fn records_are_shown_one_by_one() {
        let records = [&[22, 3, 3, 0, 2, 7, 7][..], &[20, 3, 3, 0, 0], &[23, 3, 3, 0, 9, 1]].concat();
        let ends: Vec<_> = (0..18).map(|n_shown| end_of_record(&records, n_shown)).collect();
        assert_eq!(ends, [[7; 7].as_slice(), &[12; 5], &[18; 6]].concat());
        // What is no record is shown as it comes.
        assert_eq!((end_of_record(b"", 0), end_of_record(b"GET", 0), end_of_record(b"GET / HTTP", 0)), (0, 3, 10));
    }

    #[tokio::test]
    async fn an_end_without_a_goodbye_is_an_error() {
        for role in [Role::Dialler, Role::Listener] {
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let (own, other) = (identity(1), identity(2));
            let (ours, mut theirs) =
                tokio::join!(secure(Wire::from(ours), role, &own), reference(role, &other, theirs));
            theirs.write_all(b"half a sent").await.unwrap();
            theirs.flush().await.unwrap();
            drop(theirs);
            let mut heard = Vec::new();
            let error = ours.unwrap().read.read_to_end(&mut heard).await.unwrap_err();
            assert_eq!((error.kind(), heard.as_slice()), (io::ErrorKind::UnexpectedEof, &b"half a sent"[..]));
        }
    }
}
