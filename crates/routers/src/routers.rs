//! The transport: TCP as ever, and QUIC to those whom TCP does not reach.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iroh::dns::{DnsResolver, FallbackMode};
use iroh::endpoint::{PortmapperConfig, QuicTransportConfig, presets};
use iroh::{
    Endpoint, EndpointAddr, NetReportConfig, PublicKey, RelayConfig, RelayMap, RelayMode, RelayUrl, TransportAddr,
};
use iroh_relay::RelayQuicConfig;
use nettorrent_net::address::Address;
use nettorrent_net::addresses::reachable_addresses;
use nettorrent_net::key_address::{KeyAddress, is_relay};
use nettorrent_net::tcp::Tcp;
use nettorrent_net::transport::{ByteStream, Doing, Listener, Transport, wrong_transport};
use tokio::time::timeout;

use crate::arrivals::Arrivals;
use crate::certificates::{anybody, trusted};
use crate::stream::byte_stream;

/// What both ends must speak.
const PROTOCOL: &[u8] = b"nettorrent";
/// What may be written before it has arrived. A probe waits behind it: at 10 Mbit/s for most of a second; and with 50 ms there and
/// back no more than 160 Mbit/s go out.
const SEND_WINDOW: u64 = 1 << 20;
/// How often a port that is free for TCP is looked for until it is free for UDP too.
const N_PORTS: usize = 16;
/// How long a relay may take to answer.
const RELAY_PATIENCE: Duration = Duration::from_secs(10);

/// TCP, and QUIC between keys; clones are the same.
#[derive(Clone)]
pub struct Routers {
    relay: Option<RelayUrl>,
    insist: Insist,
    /// Whether it is nowhere but at the relay.
    is_hidden: bool,
    /// The one that listens. Who does not yet dials with one for each call, for it must not outlive its runtime.
    endpoint: Arc<Mutex<Option<Endpoint>>>,
}

/// What to do if a relay does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insist {
    /// Listen all the same: peers may be reached without it.
    No,
    /// Do not listen.
    Yes,
}

/// A text that names no relay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no relay's URL: it takes http:// or https://, a host and perhaps a port, in at most 64 letters, as http://relay.example.org:3340"
)]
pub struct NoRelay(String);

impl Routers {
    /// Without a relay: straight to keys, through routers that let it pass.
    pub fn direct() -> Self {
        Self { relay: None, insist: Insist::No, is_hidden: false, endpoint: Arc::default() }
    }

    /// With a relay, for those to whom no straight way leads. No other relay is ever asked, whatever an address says.
    pub fn with_relay(url: &str, insist: Insist) -> Result<Self, NoRelay> {
        let parsed = url.parse::<RelayUrl>().ok().filter(|parsed| is_relay(parsed.as_str()));
        let relay = parsed.ok_or_else(|| NoRelay(url.to_owned()))?;
        Ok(Self { relay: Some(relay), insist, ..Self::direct() })
    }

    /// The same, which others reach by the relay alone: where a network lets no UDP out, or nobody is to know the machine's address.
    #[must_use]
    pub fn hidden(self) -> Self {
        Self { is_hidden: true, ..self }
    }

    /// An endpoint of the crate `iroh` that asks nobody but the relay: it looks nothing up, announces nothing, and asks no router for
    /// a port.
    async fn bind(&self, at: &[SocketAddr]) -> io::Result<Endpoint> {
        let windows = QuicTransportConfig::builder().send_window(SEND_WINDOW);
        let mut net_report = NetReportConfig::default();
        net_report.captive_portal_check = false;
        let dns = DnsResolver::builder().with_system_defaults().with_fallback_mode(FallbackMode::Never).build();
        let mut builder = Endpoint::builder(presets::Minimal)
            .alpns(vec![PROTOCOL.to_vec()])
            .transport_config(windows.build())
            .net_report_config(net_report)
            .portmapper_config(PortmapperConfig::Disabled)
            .dns_resolver(dns)
            .relay_mode(RelayMode::Disabled);
        if let Some(relay) = &self.relay {
            // It tells peers by QUIC where it sees them, at the same port.
            let quic = relay.port_or_known_default().map(RelayQuicConfig::new);
            builder = builder.relay_mode(RelayMode::Custom(RelayMap::from(RelayConfig::new(relay.clone(), quic))));
            builder = builder.ca_tls_config(if is_secure(relay) { trusted() } else { anybody() });
        }
        if self.is_hidden || !at.is_empty() {
            builder = builder.clear_ip_transports();
        }
        for address in at.iter().filter(|_| !self.is_hidden) {
            builder = builder.bind_addr(*address).map_err(io::Error::other)?;
        }
        builder.bind().await.map_err(io::Error::other)
    }

    /// A port that is free for TCP and UDP.
    async fn bind_both(&self, at: SocketAddr) -> io::Result<(Box<dyn Listener>, Endpoint, SocketAddr)> {
        let n_ports = if at.port() == 0 { N_PORTS } else { 1 };
        let mut problem = None;
        for _ in 0..n_ports {
            let tcp = Tcp.listen(&at.into()).await?;
            let local = tcp.address().tcp().unwrap_or(at);
            match self.bind(&udp_of(local)).await {
                Ok(endpoint) => return Ok((tcp, endpoint, local)),
                Err(error) => problem = Some(error),
            }
        }
        Err(problem.expect("one port was tried"))
    }

    /// Waits until the relay knows us, so that others find us there.
    async fn meet_relay(&self, endpoint: &Endpoint) -> io::Result<()> {
        let Some(relay) = &self.relay else { return Ok(()) };
        match timeout(RELAY_PATIENCE, endpoint.online()).await {
            Err(_) if self.insist == Insist::Yes => {
                let too =
                    if is_secure(relay) { ", and that this machine trusts who signed its certificate" } else { "" };
                let text = format!(
                    "the relay {relay} does not answer: check its address and that no firewall is between{too}"
                );
                Err(io::Error::new(io::ErrorKind::HostUnreachable, text))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn listening(&self) -> MutexGuard<'_, Option<Endpoint>> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(&self, at: &Address) -> io::Result<Listening> {
        let at = at.tcp().ok_or_else(|| wrong_transport(at))?;
        let (tcp, endpoint, local) = self.bind_both(at).await?;
        self.meet_relay(&endpoint).await?;
        *self.listening() = Some(endpoint.clone());
        let found = endpoint.addr();
        let sockets = reachable_addresses(local).into_iter().chain(found.ip_addrs().copied());
        let sockets: Vec<_> = sockets.filter(|_| !self.is_hidden).collect();
        let relay = self.relay.as_ref().map(ToString::to_string);
        let key = KeyAddress::new(*endpoint.id().as_bytes(), relay, &sockets);
        let address = Address::Key(key.ok_or_else(|| io::Error::other("the relay's URL is too long"))?);
        let mut reachable_at = vec![address];
        if !self.is_hidden {
            reachable_at.extend(tcp.reachable_at());
        }
        Ok(Listening { tcp, quic: Arrivals::of(endpoint), reachable_at })
    }

    async fn dial(&self, key: &KeyAddress) -> io::Result<ByteStream> {
        let listening = self.listening().clone();
        let endpoint = match listening {
            Some(endpoint) => endpoint,
            None => self.bind(&[]).await?,
        };
        let id = PublicKey::from_bytes(key.key()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let relay = self.relay.iter().filter(|relay| key.relay() == Some(relay.as_str())).cloned();
        let sockets = key.sockets().iter().copied().map(TransportAddr::Ip);
        let to = EndpointAddr::from_parts(id, sockets.chain(relay.map(TransportAddr::Relay)));
        let connection = endpoint.connect(to, PROTOCOL).await.map_err(unreachable)?;
        let halves = connection.open_bi().await.map_err(unreachable)?;
        Ok(byte_stream(halves, connection, &endpoint))
    }
}

/// Where QUIC listens if TCP listens there: an IPv6 socket takes IPv4 too only with TCP.
fn udp_of(tcp: SocketAddr) -> Vec<SocketAddr> {
    let is_all = tcp.ip() == Ipv6Addr::UNSPECIFIED;
    let v4 = is_all.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, tcp.port())));
    [tcp].into_iter().chain(v4).collect()
}

/// Whether it has to show a certificate.
fn is_secure(relay: &RelayUrl) -> bool {
    relay.scheme() == "https"
}

fn unreachable(error: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::HostUnreachable, format!("no way leads to its key ({error})"))
}

impl Transport for Routers {
    fn listen<'a>(&'a self, at: &'a Address) -> Doing<'a, Box<dyn Listener>> {
        Box::pin(async { self.begin(at).await.map(|listening| Box::new(listening) as Box<dyn Listener>) })
    }

    fn connect<'a>(&'a self, to: &'a Address) -> Doing<'a, ByteStream> {
        match to {
            Address::Key(key) => Box::pin(self.dial(key)),
            _ => Tcp.connect(to),
        }
    }
}

impl fmt::Debug for Routers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Routers").field("relay", &self.relay).field("insist", &self.insist).finish_non_exhaustive()
    }
}

struct Listening {
    tcp: Box<dyn Listener>,
    quic: Arrivals,
    /// First of all by its key.
    reachable_at: Vec<Address>,
}

impl Listener for Listening {
    fn address(&self) -> Address {
        self.reachable_at[0].clone()
    }

    fn reachable_at(&self) -> Vec<Address> {
        self.reachable_at.clone()
    }

    fn accept(&mut self) -> Doing<'_, ByteStream> {
        Box::pin(async {
            tokio::select! {
                stream = self.tcp.accept() => stream,
                Some(stream) = self.quic.next() => Ok(stream),
            }
        })
    }
}
