//! Who a peer is: a key of its own, in a certificate that whoever holds the swarm's secret can issue and check.
//!
//! From the secret everyone derives the same certificate authority, and issues a certificate for a fresh key to himself. So
//! holding the secret is what a handshake proves, and nobody needs to be asked for certificates.

use std::sync::Arc;

use aws_lc_rs::digest;
use aws_lc_rs::signature::Ed25519KeyPair;
use nettorrent_swarm::view::PeerId;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ED25519, PublicKeyData,
};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::cipher_suite::{
    TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs as provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite};

use crate::ticket::{Secret, SwarmId};

/// The join index in the name of those who have none: joiners and observers.
pub const NO_JOIN_INDEX: u32 = (1 << 24) - 1;

/// What every certificate names, since peers have no names of their own that a certificate could prove.
pub(crate) const SERVER_NAME: &str = "peer.nettorrent.internal";

const PROTOCOL: &[u8] = b"nettorrent/1";

/// A peer's name and keys, for as long as its process lives.
#[derive(Clone)]
pub struct Identity {
    /// Its name: a join index, and the fingerprint of its key.
    pub peer: PeerId,
    pub(crate) secret: Secret,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

/// Certificates or keys could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The authority's or the own certificate.
    #[error("no certificate could be made from the swarm's secret: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The key, or what TLS makes of it.
    #[error("TLS could not be set up with the swarm's certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// The key that everyone derives.
    #[error("no key could be derived from the swarm's secret")]
    Key,
}

impl Identity {
    /// A fresh identity for who has no join index yet.
    pub fn joiner(secret: &Secret) -> Result<Self, IdentityError> {
        Self::new(secret, NO_JOIN_INDEX)
    }

    /// A fresh identity for this join index.
    pub fn new(secret: &Secret, join_index: u32) -> Result<Self, IdentityError> {
        Self::with_key(secret, join_index, &KeyPair::generate_for(&PKCS_ED25519)?)
    }

    /// The identity of a peer whose swarm is all in this process, where nobody else can be: the same one every time, so that a run is the
    /// same every time. Its name comes from no key, so it cannot be used where links are encrypted.
    pub fn within_process(join_index: u32) -> Result<Self, IdentityError> {
        let secret = Secret::from_bytes([0; 32]);
        let identity = Self::with_key(&secret, join_index, &derived_key(&secret, "peer within a process")?)?;
        Ok(Self { peer: PeerId::new(join_index, u64::from(join_index)), ..identity })
    }

    fn with_key(secret: &Secret, join_index: u32, own_key: &KeyPair) -> Result<Self, IdentityError> {
        let (authority, certificate) = certificates(secret, own_key)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let chain = vec![certificate];
        let provider = Arc::new(CryptoProvider { cipher_suites: preferred_suites(), ..provider::default_provider() });
        let private_key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own_key.serialize_der()));
        Ok(Self {
            peer: PeerId::new(join_index, fingerprint_of_key(&own_key.subject_public_key_info())),
            secret: secret.clone(),
            client: Arc::new(client_config(&provider, roots.clone(), chain.clone(), private_key.clone_key())?),
            server: Arc::new(server_config(&provider, roots, chain, private_key)?),
        })
    }

    /// The same keys under the name of another join index.
    #[must_use]
    pub fn with_join_index(&self, join_index: u32) -> Self {
        Self { peer: PeerId::new(join_index, fingerprint(self.peer)), ..self.clone() }
    }

    /// The swarm that it belongs to.
    pub fn swarm(&self) -> SwarmId {
        self.secret.swarm_id()
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity").field("peer", &self.peer).field("swarm", &self.swarm()).finish_non_exhaustive()
    }
}

/// The part of a name that comes from the key.
pub(crate) fn fingerprint(peer: PeerId) -> u64 {
    peer.0 & ((1 << PeerId::FINGERPRINT_BITS) - 1)
}

/// The fingerprint of the key in a certificate that TLS has checked already.
pub(crate) fn fingerprint_of_certificate(certificate: &CertificateDer<'_>) -> Result<u64, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    Ok(fingerprint_of_key(&parsed.subject_public_key_info()))
}

fn fingerprint_of_key(subject_public_key_info: &[u8]) -> u64 {
    let digest = digest::digest(&digest::SHA256, subject_public_key_info);
    let low = digest.as_ref().last_chunk::<8>().expect("a SHA-256 digest has 32 bytes");
    u64::from_be_bytes(*low) & ((1 << PeerId::FINGERPRINT_BITS) - 1)
}

/// The key for one purpose that all who have the secret derive alike.
fn derived_key(secret: &Secret, purpose: &str) -> Result<KeyPair, IdentityError> {
    let seed: [u8; 32] = secret.derive(purpose);
    let document = Ed25519KeyPair::from_seed_unchecked(&seed)
        .ok()
        .and_then(|key| key.to_pkcs8().ok())
        .ok_or(IdentityError::Key)?;
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(document.as_ref()), &PKCS_ED25519)?)
}

/// The authority that all of the swarm derive alike, and what it says about our own key.
fn certificates(
    secret: &Secret,
    own_key: &KeyPair,
) -> Result<(CertificateDer<'static>, CertificateDer<'static>), IdentityError> {
    let authority_key = derived_key(secret, "certificate authority")?;
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, format!("NetTorrent swarm {}", secret.swarm_id().to_hex()));
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority_certificate = authority.self_signed(&authority_key)?;

    let mut own = CertificateParams::new([SERVER_NAME.to_owned()])?;
    own.distinguished_name.push(DnType::CommonName, "NetTorrent peer");
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let own_certificate = own.signed_by(own_key, &Issuer::new(authority, authority_key))?;
    Ok((authority_certificate.into(), own_certificate.into()))
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut config = ClientConfig::builder_with_details(provider.clone(), Arc::new(NoClock))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    roots: RootCertStore,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(|error| rustls::Error::General(error.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider.clone(), Arc::new(NoClock))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // Links last for a whole training, so resuming one saves nothing, and tickets would be bytes and state for nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
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

/// Certificates here never expire, since a swarm's secret is all that counts. So the clock is not even read: a machine
/// that believes in 1970 takes part like any other.
#[derive(Debug)]
struct NoClock;

impl TimeProvider for NoClock {
    fn current_time(&self) -> Option<UnixTime> {
        // Somewhere within the certificates' validity, which is 1975 to 4096.
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::{Identity, NO_JOIN_INDEX, certificates, fingerprint, fingerprint_of_certificate};
    use crate::ticket::Secret;
    use rcgen::{KeyPair, PKCS_ED25519};

    #[test]
    fn everyone_derives_the_same_authority() {
        let secret = Secret::from_bytes([3; 32]);
        let of = |secret: &Secret| {
            let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
            certificates(secret, &key).unwrap()
        };
        let (one, own_one) = of(&secret);
        let (other, own_other) = of(&secret);
        assert_eq!(one, other);
        assert_ne!(own_one, own_other);
        assert_ne!(one, of(&Secret::from_bytes([4; 32])).0);
    }

    #[test]
    fn names_carry_the_fingerprint_of_the_key() {
        let identity = Identity::new(&Secret::from_bytes([3; 32]), 5).unwrap();
        let key = &identity.client.client_auth_cert_resolver;
        let certified = key.resolve(&[], &[rustls::SignatureScheme::ED25519]).unwrap();
        let seen = fingerprint_of_certificate(&certified.cert[0]).unwrap();
        assert_eq!(fingerprint(identity.peer), seen);
        assert_eq!(identity.peer.join_index(), 5);

        let joiner = Identity::joiner(&Secret::from_bytes([3; 32])).unwrap();
        assert_eq!(joiner.peer.join_index(), NO_JOIN_INDEX);
        let joined = joiner.with_join_index(9);
        assert_eq!((joined.peer.join_index(), fingerprint(joined.peer)), (9, fingerprint(joiner.peer)));
        assert_ne!(fingerprint(joiner.peer), fingerprint(identity.peer));
    }

    #[test]
    fn an_identity_shows_no_secret() {
        let shown = format!("{:?}", Identity::new(&Secret::from_bytes([0x61; 32]), 5).unwrap());
        assert!(!shown.contains("97, 97") && !shown.contains("6161"), "{shown}");
    }
}
