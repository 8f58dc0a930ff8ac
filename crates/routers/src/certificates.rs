//! Certificates of a relay: whom peers trust, and what a relay's QUIC socket makes for itself, which clients must do with.
//!
//! A relay without a certificate of its own tells peers by QUIC under which address it sees them. QUIC needs a certificate, and here it
//! proves nothing: whoever could forge the answer could as well drop it. What peers say to each other is encrypted between their keys.

use std::io;
use std::sync::Arc;

use iroh_relay::tls::CaTlsConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, ServerConfig, SignatureScheme};
use rustls_native_certs::load_native_certs;

/// A server's configuration with a certificate that nobody vouches for.
pub(crate) fn self_signed() -> io::Result<ServerConfig> {
    let own = rcgen::generate_simple_self_signed(["relay".to_owned()]).map_err(io::Error::other)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
    with_certificate(vec![own.cert.der().clone()], key)
}

/// A server's configuration with this certificate.
pub(crate) fn with_certificate(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> io::Result<ServerConfig> {
    let versions = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    versions.with_no_client_auth().with_single_cert(chain, key).map_err(io::Error::other)
}

/// Trusts whom browsers trust, even where nothing is installed, and whom this machine does: its administrators may vouch for relays
/// of their own. The variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name others in place of the machine's.
pub(crate) fn trusted() -> CaTlsConfig {
    // Where some cannot be read the others count.
    CaTlsConfig::embedded().with_extra_roots(load_native_certs().certs)
}

/// Trusts anybody: for relays that are asked without TLS anyway.
pub(crate) fn anybody() -> CaTlsConfig {
    CaTlsConfig::custom_server_cert_verifier(Arc::new(|_| Ok(Arc::new(AnyCertificate))))
}

/// Takes any certificate.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
