//! TLS over a wire, with the swarm's authority as the only one.

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::handshake::Role;
use crate::hello::looks_like_hello;
use crate::identity::{Identity, SERVER_NAME, fingerprint_of_certificate};
use crate::refusal::HandshakeError;
use crate::wire::{BoxRead, BoxWrite, Wire, WireRead, WireWrite, bid_farewell};

/// An encrypted stream to someone who holds the secret.
pub(crate) struct Secured {
    pub(crate) read: BoxRead,
    pub(crate) write: BoxWrite,
    /// Of the key that the other side has proven to own.
    pub(crate) fingerprint: u64,
}

type Joined = tokio::io::Join<WireRead, WireWrite>;

/// Sets up TLS; either both sides hold the secret, or both learn that they do not.
pub(crate) async fn secure(wire: Wire, role: Role, identity: &Identity) -> Result<Secured, HandshakeError> {
    let joined = tokio::io::join(wire.read, wire.write);
    let result = match role {
        Role::Dialler => {
            let name = ServerName::try_from(SERVER_NAME).expect("the name is a valid one");
            let connecting = TlsConnector::from(identity.client.clone()).connect(name, joined);
            connecting.into_fallible().await.map(|stream| {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
                (certificates, split(stream))
            })
        }
        Role::Listener => {
            let accepting = TlsAcceptor::from(identity.server.clone()).accept(joined);
            accepting.into_fallible().await.map(|stream| {
                let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
                (certificates, split(stream))
            })
        }
    };
    match result {
        Ok((certificates, (read, write))) => {
            let certificate = certificates.first().ok_or(HandshakeError::Stranger)?;
            let fingerprint =
                fingerprint_of_certificate(certificate).map_err(|error| HandshakeError::from_tls(&error))?;
            Ok(Secured { read, write, fingerprint })
        }
        Err((error, joined)) => Err(explain(error, joined).await),
    }
}

fn split<S: AsyncRead + AsyncWrite + Send + 'static>(stream: S) -> (BoxRead, BoxWrite) {
    let (read, write) = tokio::io::split(stream);
    (Box::new(read), Box::new(write))
}

/// Sees the alert off that tells the other side, and says what happened.
async fn explain(error: std::io::Error, joined: Joined) -> HandshakeError {
    let (mut read, mut write) = joined.into_inner();
    bid_farewell(&mut read, &mut write).await;
    if looks_like_hello(read.first()) {
        return HandshakeError::MixedEncryption;
    }
    HandshakeError::from_stream(error)
}
