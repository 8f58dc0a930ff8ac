//! TLS between keys: both sides prove that they hold the private half of a key (RFC 7250, raw public keys). Whose key it is and
//! what its holder may do is not asked here.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring as provider, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
    SupportedCipherSuite,
};

use crate::keys::{PrivateKey, PublicKey};

/// What every dialler asks for, since TLS wants a name and keys have none.
pub(crate) const SERVER_NAME: &str = "peer.nettorrent.internal";

const PROTOCOL: &[u8] = b"nettorrent/2";

const NOT_TLS13: &str = "only TLS 1.3 is spoken here";

/// How a key is used in TLS, by who dials and by who listens.
#[derive(Clone)]
pub(crate) struct TlsKeys {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl TlsKeys {
    pub(crate) fn new(key: &PrivateKey) -> Result<Self, Error> {
        let provider = Arc::new(CryptoProvider { cipher_suites: preferred_suites(), ..provider::default_provider() });
        let private = provider.key_provider.load_private_key(key.to_der())?;
        let own = Arc::new(CertifiedKey::new(vec![CertificateDer::from(key.public().to_info())], private));
        let verifier = Arc::new(AnyKey(provider.signature_verification_algorithms));
        Ok(Self {
            client: Arc::new(client_config(&provider, own.clone(), verifier.clone())?),
            server: Arc::new(server_config(&provider, own, verifier)?),
        })
    }
}

/// The key that the other side of a connection has proven to hold.
pub(crate) fn proven_key(certificates: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    PublicKey::from_info(certificates?.first()?)
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    verifier: Arc<AnyKey>,
) -> Result<ClientConfig, Error> {
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    own: Arc<CertifiedKey>,
    verifier: Arc<AnyKey>,
) -> Result<ServerConfig, Error> {
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Links last for a whole training, so resuming one saves nothing, and tickets would be bytes and state for nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// Takes any Ed25519 key whose holder has signed the handshake.
#[derive(Debug)]
struct AnyKey(WebPkiSupportedAlgorithms);

impl AnyKey {
    fn check(key: &CertificateDer<'_>) -> Result<(), Error> {
        PublicKey::from_info(key).map(|_| ()).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
    }

    fn verify(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let info = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &info, signature, &self.0)
    }
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Self::check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General(NOT_TLS13.into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Self::check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General(NOT_TLS13.into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, key, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// AES-128-GCM costs the least where the processor computes AES; elsewhere it is ChaCha20.
fn preferred_suites() -> Vec<SupportedCipherSuite> {
    if processor_has_aes() {
        vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256]
    } else {
        vec![TLS13_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384]
    }
}

fn processor_has_aes() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    return std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    return false;
}
