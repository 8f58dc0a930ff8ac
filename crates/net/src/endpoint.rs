//! The endpoint: where a process listens for peers and dials them.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nettorrent_swarm::view::PeerId;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::address::Address;
use crate::connection::{Connection, Slot};
use crate::dial_race::DialRaces;
use crate::handshake::{Encryption, Terms, shake};
use crate::hello::{Hello, Purpose};
use crate::identity::Identity;
use crate::limits::Limits;
use crate::refusal::{HandshakeError, Refusal};
use crate::role::Role;
use crate::shaper::{Shaper, Shapers};
use crate::shared_folder::{News, SharedFolder};
use crate::socket_count::SocketCount;
use crate::tcp::Tcp;
use crate::transport::{ByteStream, Listener, Transport};
use crate::turned_away::{Refusals, TurnedAway};
use crate::ways::ways;
use crate::wire::Wire;
use nettorrent_swarm::link_spec::LinkSpec;

// How many connections wait for the host to take them. Each keeps its handshake's place meanwhile.
const MAX_ARRIVALS: usize = 64;

/// How long last words may take.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(2);

/// What an endpoint is made of.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How others are reached.
    pub transport: Arc<dyn Transport>,
    /// Where to listen; port 0 lets the system choose.
    pub listen: Address,
    /// Who we are.
    pub identity: Identity,
    /// What we say we want.
    pub purpose: Purpose,
    /// Whether links are encrypted.
    pub encryption: Encryption,
    /// As what kind of network to send, for experiments.
    pub link: Option<LinkSpec>,
    /// As what kind of network to receive; only the rate counts.
    pub receive_link: Option<LinkSpec>,
    /// What others may cost us.
    pub limits: Limits,
    /// A directory for large bodies; peers that do not have the same are spoken to over the wire alone.
    pub folder: Option<Arc<SharedFolder>>,
}

impl Settings {
    /// Listens at any address and port of this machine, encrypts, and has usual limits.
    pub fn new(identity: Identity, purpose: Purpose) -> Self {
        Self {
            transport: Arc::new(Tcp),
            listen: (Ipv4Addr::UNSPECIFIED, 0).into(),
            identity,
            purpose,
            encryption: Encryption::On,
            link: None,
            receive_link: None,
            limits: Limits::default(),
            folder: None,
        }
    }
}

/// What comes from outside.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there are a few dozen of them at most, and most are connections")]
pub enum Arrival {
    /// Somebody has connected and passed the handshake. Start it, or drop it to hang up.
    Incoming(Connection),
    /// Somebody was turned away, or turned away. From one machine these come seldom, with their number.
    Refused(TurnedAway),
}

/// Why an endpoint could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen at {address}: {source}; choose another address or port, or port 0 for any that is free")]
pub struct BindError {
    address: Address,
    source: io::Error,
}

/// Why nobody could be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There is no way to it, or nobody listens there.
    #[error("{} cannot be reached: {source}; check that it runs and that no firewall is between", .address.brief())]
    Unreachable {
        /// Whom we dialled.
        address: Address,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody is there, but no link came about.
    #[error("no link to {}: {source}", .address.brief())]
    Handshake {
        /// Whom we dialled.
        address: Address,
        /// Why not.
        source: Box<HandshakeError>,
    },
}

impl DialError {
    /// Whether the other side dialled at the same time, so that its connection is there or about to be.
    pub fn is_crossed(&self) -> bool {
        matches!(self, Self::Handshake { source, .. } if source.is_crossed())
    }

    /// Whether people should hear of it. That somebody cannot be reached, its membership tells.
    pub(crate) fn is_worth_telling(&self) -> bool {
        matches!(self, Self::Handshake { source, .. } if !matches!(**source, HandshakeError::Deadline(_)))
    }

    /// Why the other side did not want the link, if it said so.
    pub(crate) fn refusal_by_them(&self) -> Option<Refusal> {
        let Self::Handshake { source, .. } = self else { return None };
        match **source {
            HandshakeError::RefusedByThem(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether it shows that the process is no more that was dialled: nobody listens there, or another does.
    pub(crate) fn shows_end(&self) -> bool {
        match self {
            Self::Unreachable { source, .. } => source.kind() == io::ErrorKind::ConnectionRefused,
            // Behind a key's sockets may be somebody else.
            Self::Handshake { source, address } => {
                let is_another = matches!(**source, HandshakeError::Refused(Refusal::WrongPeer { .. }));
                is_another && matches!(address, Address::Tcp(_) | Address::InProcess(_))
            }
        }
    }
}

/// A process's place on the network; clones are handles to the same. It stops listening when the last one is dropped, and
/// its links live on.
#[derive(Clone)]
pub struct Endpoint {
    inner: Arc<Inner>,
    _listening: Arc<Listening>,
}

struct Inner {
    transport: Arc<dyn Transport>,
    local: Address,
    reachable_at: Vec<Address>,
    terms: Mutex<Terms>,
    shapers: Shapers,
    dial_races: DialRaces,
    n_links: Arc<watch::Sender<usize>>,
    sockets: Arc<SocketCount>,
    refusals: Refusals,
}

/// An endpoint on its way, with those who come to it.
pub type Binding = Pin<Box<dyn Future<Output = Result<(Endpoint, mpsc::Receiver<Arrival>), BindError>> + Send>>;

/// The tasks of a listener.
struct Listening([AbortHandle; 2]);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Endpoint {
    /// Begins to listen. Whoever comes is in the channel, which must be read: connections wait there.
    pub fn bind(settings: Settings) -> Binding {
        // In a box, it is compiled here, once, and not again wherever somebody waits for it.
        Box::pin(Self::begin(settings))
    }

    async fn begin(settings: Settings) -> Result<(Self, mpsc::Receiver<Arrival>), BindError> {
        let Settings { transport, listen, identity, purpose, encryption, link, receive_link, limits, folder } =
            settings;
        let listener = transport.listen(&listen).await.map_err(|source| BindError { address: listen, source })?;
        let shapers = Shapers { send: link.map(Shaper::new), receive: receive_link.map(Shaper::new) };
        let inner = Arc::new(Inner {
            transport,
            local: listener.address(),
            reachable_at: listener.reachable_at(),
            terms: Mutex::new(Terms { identity, purpose, encryption, limits, expected: None, folder }),
            shapers,
            dial_races: DialRaces::default(),
            n_links: Arc::default(),
            sockets: Arc::default(),
            refusals: Refusals::default(),
        });
        let (sender, arrivals) = mpsc::channel(MAX_ARRIVALS);
        let telling = tokio::spawn(tell_refusals(inner.clone(), sender.clone()));
        let accepting = tokio::spawn(accept_loop(listener, inner.clone(), sender));
        let listening = Arc::new(Listening([telling, accepting].map(|task| task.abort_handle())));
        Ok((Self { inner, _listening: listening }, arrivals))
    }

    /// Connects to a peer; to this one only, if it is named.
    pub async fn dial(&self, address: &Address, expected: Option<PeerId>) -> Result<Connection, DialError> {
        let mut problem = None;
        for transport in ways(&*self.inner.transport, address) {
            match self.dial_by(transport, address, expected).await {
                Err(error) if !error.is_crossed() => problem = Some(error),
                done => return done,
            }
        }
        Err(problem.expect("there is always a way to try"))
    }

    async fn dial_by(
        &self,
        transport: &dyn Transport,
        address: &Address,
        expected: Option<PeerId>,
    ) -> Result<Connection, DialError> {
        let terms = Terms { expected, ..self.inner.terms().clone() };
        let handshake_failed = |source| DialError::Handshake { address: address.clone(), source: Box::new(source) };
        let connecting = tokio::time::timeout(terms.limits.handshake, transport.connect(address));
        let stream = match connecting.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(DialError::Unreachable { address: address.clone(), source }),
            Err(_) => return Err(handshake_failed(HandshakeError::Deadline(terms.limits.handshake))),
        };
        self.inner.connect(stream, Role::Dialler, &terms).await.map_err(handshake_failed)
    }

    /// Who we are.
    pub fn identity(&self) -> Identity {
        self.inner.terms().identity.clone()
    }

    /// Where it listens.
    pub fn local_address(&self) -> &Address {
        &self.inner.local
    }

    /// Where others can reach it, best first: for a ticket.
    pub fn addresses(&self) -> &[Address] {
        &self.inner.reachable_at
    }

    /// What there is to know about the shared directory, if there is one.
    pub(crate) fn folder_news(&self) -> Vec<News> {
        let folder = self.inner.terms().folder.clone();
        folder.map_or_else(Vec::new, |folder| folder.news())
    }

    /// What its sockets carry.
    pub fn sockets(&self) -> Arc<SocketCount> {
        self.inner.sockets.clone()
    }

    /// How many connections and links there are.
    pub fn n_links(&self) -> usize {
        *self.inner.n_links.borrow()
    }

    /// Waits a moment until its links have ended, with all that was said on them: over TCP the system would send the last words of a
    /// process that has ended, over QUIC nobody does.
    pub(crate) async fn settle(&self) {
        let mut n_links = self.inner.n_links.subscribe();
        // Who takes nothing any more is not waited for.
        let _ = tokio::time::timeout(SETTLE_TIMEOUT, n_links.wait_for(|n_links| *n_links == 0)).await;
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Endpoint of {:?} at {}", self.inner.terms().identity.peer, self.inner.local)
    }
}

impl Inner {
    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn_away(&self, address: Address, reason: HandshakeError) {
        // If both called at once, the other call is the one that counts.
        if !reason.is_crossed() {
            self.refusals.count(address, reason);
        }
    }

    async fn connect(&self, stream: ByteStream, role: Role, terms: &Terms) -> Result<Connection, HandshakeError> {
        let mut attempt = self.dial_races.begin();
        let mut slot = None;
        let judge = |hello: &Hello| {
            let both_take_part = [&terms.purpose, &hello.purpose].iter().all(|p| matches!(p, Purpose::Peer { .. }));
            if both_take_part {
                attempt.consent(terms.identity.peer, hello.peer)?;
            }
            slot = Slot::take(&self.n_links, terms.limits.max_links);
            let most = u32::try_from(terms.limits.max_links).unwrap_or(u32::MAX);
            if slot.is_some() { Ok(()) } else { Err(Refusal::TooMany { most }) }
        };
        let connection = shake(Wire::counted(stream, self.sockets.clone()), role, terms, judge).await?;
        attempt.complete();
        Ok(Connection { slot, shapers: self.shapers.clone(), ..connection })
    }
}

async fn accept_loop(mut listener: Box<dyn Listener>, inner: Arc<Inner>, arrivals: mpsc::Sender<Arrival>) {
    // After a failure to accept, which is mostly that too many files are open.
    const PAUSE: Duration = Duration::from_millis(100);
    let mut under_way = UnderWay::default();
    loop {
        let Ok(stream) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let address = stream.address.clone();
        let terms = inner.terms().clone();
        if let Some(oldest) = under_way.make_room(terms.limits.max_handshakes) {
            inner.turn_away(oldest, HandshakeError::PushedOut);
        }
        let (inner, arrivals, from) = (inner.clone(), arrivals.clone(), address.clone());
        let task = tokio::spawn(async move {
            match inner.connect(stream, Role::Listener, &terms).await {
                // If nobody takes it, it is hung up.
                Ok(connection) => drop(arrivals.send(Arrival::Incoming(connection)).await),
                Err(reason) => inner.turn_away(from, reason),
            }
        });
        under_way.tasks.push_back((task.abort_handle(), address));
    }
}

/// Tells who was turned away, as often as that is wanted.
async fn tell_refusals(inner: Arc<Inner>, arrivals: mpsc::Sender<Arrival>) {
    while arrivals.send(Arrival::Refused(inner.refusals.next().await)).await.is_ok() {}
}

/// Handshakes with those who dialled us, oldest first.
#[derive(Default)]
struct UnderWay {
    tasks: VecDeque<(AbortHandle, Address)>,
}

impl UnderWay {
    /// Gives up the oldest one if there are too many. Honest handshakes are quick, so it is most likely somebody who says
    /// nothing; waiting for him instead would lock out everybody.
    fn make_room(&mut self, most: usize) -> Option<Address> {
        self.tasks.retain(|(task, _)| !task.is_finished());
        if self.tasks.len() < most.max(1) {
            return None;
        }
        let (task, address) = self.tasks.pop_front()?;
        task.abort();
        Some(address)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        for (task, _) in &self.tasks {
            task.abort();
        }
    }
}
