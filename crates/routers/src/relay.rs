//! A relay of one's own: for peers that no straight way leads to. It sees who speaks to whom and how much, and nothing of what.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use iroh_relay::server::{CertConfig, QuicConfig, RelayConfig, Server, ServerConfig, TlsConfig};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::certificates::{self_signed, with_certificate};

/// How many free ports are tried: one for TCP may not be free for UDP.
const N_PORTS: usize = 16;

/// A relay that runs, until it is dropped. Must be used within a Tokio runtime.
pub struct Relay {
    server: Server,
    address: SocketAddr,
    is_secure: bool,
}

/// By what others recognise a relay: files in PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate, and those that vouch for it.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why a relay does not run.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// It could not begin.
    #[error("no relay at {address}: {problem}; choose another address or port")]
    Start {
        /// Where it was to listen.
        address: SocketAddr,
        /// What is wrong.
        problem: String,
    },
    /// Its certificate is of no use.
    #[error("the certificate cannot be used: {0}; it takes a chain and its private key, both in PEM")]
    Certificate(String),
    /// It has ended by itself.
    #[error("the relay has ended: {0}")]
    Ended(String),
}

impl Relay {
    /// Begins to listen at a port for TCP and UDP, with 0 at any that is free; with a certificate over HTTPS, without one over HTTP.
    pub async fn start(listen: SocketAddr, certificate: Option<&Certificate>) -> Result<Self, RelayError> {
        if listen.port() != 0 {
            return Self::start_at(listen, certificate).await;
        }
        let mut problem = None;
        for _ in 0..N_PORTS {
            // It is given back before it is taken again; somebody else who takes it meanwhile costs another attempt.
            let free = std::net::TcpListener::bind(listen).and_then(|listener| listener.local_addr());
            match Self::start_at(free.map_err(|error| self::problem(listen, &error))?, certificate).await {
                Err(error @ RelayError::Start { .. }) => problem = Some(error),
                done => return done,
            }
        }
        Err(problem.expect("one port was tried"))
    }

    async fn start_at(listen: SocketAddr, certificate: Option<&Certificate>) -> Result<Self, RelayError> {
        let is_secure = certificate.is_some();
        let mut relay = RelayConfig::new(listen);
        let mut quic = QuicConfig::new(listen);
        match certificate {
            None => quic.server_config = Some(self_signed().map_err(|error| problem(listen, &error))?),
            Some(certificate) => {
                let server_config = certificate.read()?;
                relay.tls = Some(TlsConfig::new(listen, CertConfig::Manual { server_config }));
                // With TLS it wants a port for plain requests too; nobody is told of it.
                relay.http_bind_addr = (Ipv4Addr::LOCALHOST, 0).into();
            }
        }
        let mut config = ServerConfig::default();
        (config.relay, config.quic) = (Some(relay), Some(quic));
        let server = Server::spawn(config).await.map_err(|error| problem(listen, &error))?;
        let address = if is_secure { server.https_addr() } else { server.http_addr() };
        let address = address.ok_or_else(|| problem(listen, &"it has no address"))?;
        Ok(Self { server, address, is_secure })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What peers give as `--relay` who reach it at this host.
    pub fn url(&self, host: &str) -> String {
        format!("{}://{host}:{}", if self.is_secure { "https" } else { "http" }, self.address.port())
    }

    /// Waits until it ends, which it does not do by itself.
    pub async fn ended(&mut self) -> RelayError {
        match self.server.join().await {
            Ok(Ok(())) => RelayError::Ended("it was stopped".to_owned()),
            Ok(Err(error)) => RelayError::Ended(error.to_string()),
            Err(error) => RelayError::Ended(error.to_string()),
        }
    }
}

fn problem(address: SocketAddr, problem: &impl ToString) -> RelayError {
    RelayError::Start { address, problem: problem.to_string() }
}

impl Certificate {
    fn read(&self) -> Result<rustls::ServerConfig, RelayError> {
        let unusable =
            |path: &Path, why: &dyn std::fmt::Display| RelayError::Certificate(format!("{}: {why}", path.display()));
        let chain = CertificateDer::pem_file_iter(&self.chain).and_then(Iterator::collect);
        let chain: Vec<_> = chain.map_err(|error| unusable(&self.chain, &error))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unusable(&self.key, &error))?;
        with_certificate(chain, key).map_err(|error: io::Error| unusable(&self.chain, &error))
    }
}
