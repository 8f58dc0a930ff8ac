//! Two ends of one link, over whichever transport.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nettorrent_net::address::Address;
use nettorrent_net::close_reason::CloseReason;
use nettorrent_net::connection::Connection;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::in_process::InProcess;
use nettorrent_net::inbox::{Event, Inbox, LinkEvent, inbox};
use nettorrent_net::limits::Limits;
use nettorrent_net::link::Link;
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::Secret;
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::wire::{Frame, Kind};
use tokio::sync::mpsc::Receiver;

/// How long a test waits for something that should take milliseconds, before it says that it does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The same by a clock that moves on when nothing else does, and so passes hours in no time.
const EVER: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    pub(crate) over: Over,
    pub(crate) encryption: Encryption,
    pub(crate) link: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Memory,
    Tcp,
}

/// All of them.
pub(crate) fn transports() -> Vec<Transport> {
    let mut all = Vec::new();
    for over in [Over::Memory, Over::Tcp] {
        for encryption in [Encryption::Off, Encryption::On] {
            for link in [None, Some("5gbit/2ms")] {
                all.push(Transport { over, encryption, link });
            }
        }
    }
    all
}

/// Runs a test over each transport, with a word about which one when it fails.
pub(crate) fn over_all<F: Future<Output = ()>>(test: impl Fn(Transport) -> F) {
    for transport in transports() {
        println!("over {transport:?}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let run = async { tokio::time::timeout(PATIENCE, test(transport)).await };
        runtime.block_on(run).unwrap_or_else(|_| panic!("nothing happened for {PATIENCE:?} over {transport:?}"));
    }
}

pub(crate) fn founder() -> Founder {
    Founder::from_secret(&Secret::from_bytes([42; 32]))
}

pub(crate) fn peer_purpose() -> Purpose {
    Purpose::Peer { generation: 0, job: [1; 32] }
}

pub(crate) fn terms(join_index: u32, encryption: Encryption) -> Terms {
    Terms { encryption, ..Terms::new(founder().member(join_index).unwrap(), peer_purpose()) }
}

pub(crate) fn settings(join_index: u32, encryption: Encryption) -> Settings {
    Settings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        encryption,
        ..Settings::new(founder().member(join_index).unwrap(), peer_purpose())
    }
}

/// Join indices 0 (who dialled) and 1 (who was dialled).
pub(crate) async fn connections(transport: Transport, limits: Limits) -> (Connection, Connection) {
    let link = transport.link.map(|link| link.parse::<LinkSpec>().unwrap());
    let usual = |join_index| Settings { link, limits, ..settings(join_index, transport.encryption) };
    let network = Arc::new(InProcess::default());
    let settings = |join_index| match transport.over {
        Over::Memory => Settings { transport: network.clone(), listen: Address::InProcess(0), ..usual(join_index) },
        Over::Tcp => Settings { transport: Arc::new(Tcp), ..usual(join_index) },
    };
    let (dialler, _) = Endpoint::bind(settings(0)).await.unwrap();
    let (listener, mut arrivals) = Endpoint::bind(settings(1)).await.unwrap();
    let dialled = dialler.dial(listener.local_address(), Some(listener.identity().peer)).await.unwrap();
    (dialled, incoming(&mut arrivals).await)
}

pub(crate) async fn incoming(arrivals: &mut Receiver<Arrival>) -> Connection {
    match arrivals.recv().await.unwrap() {
        Arrival::Incoming(connection) => connection,
        Arrival::Refused(turned_away) => panic!("{turned_away}"),
    }
}

pub(crate) async fn refused(arrivals: &mut Receiver<Arrival>) -> (Address, String) {
    match arrivals.recv().await.unwrap() {
        Arrival::Incoming(connection) => panic!("{connection:?} came in"),
        Arrival::Refused(turned_away) => (turned_away.address, turned_away.reason.to_string()),
    }
}

/// A link with an inbox of its own.
pub(crate) struct End {
    pub(crate) link: Link,
    pub(crate) inbox: Inbox,
}

impl End {
    pub(crate) fn of(connection: Connection) -> Self {
        Self::with_inbox(connection, 8 << 20)
    }

    pub(crate) fn with_inbox(connection: Connection, max_bytes: usize) -> Self {
        let (sender, inbox) = inbox(max_bytes);
        Self { link: connection.start(sender), inbox }
    }

    async fn event(&mut self) -> LinkEvent {
        let event = tokio::time::timeout(EVER, self.inbox.next()).await;
        event.unwrap_or_else(|_| panic!("nothing more came from {:?}", self.link)).unwrap()
    }

    pub(crate) async fn frame(&mut self) -> Frame {
        let event = self.event().await;
        assert_eq!((event.peer, event.link), (self.link.peer(), self.link.id()));
        match event.event {
            Event::Frame(frame) => frame,
            Event::Closed(reason) => panic!("{:?} closed: {reason}", self.link),
        }
    }

    pub(crate) async fn closed(&mut self) -> CloseReason {
        let event = self.event().await;
        assert_eq!(event.peer, self.link.peer());
        match event.event {
            Event::Frame(frame) => panic!("{:?} of {} bytes", frame.head, frame.body.len()),
            Event::Closed(reason) => reason,
        }
    }
}

pub(crate) async fn linked(transport: Transport) -> (End, End) {
    let (one, other) = connections(transport, Limits::default()).await;
    (End::of(one), End::of(other))
}

/// A frame whose bytes depend on its number.
pub(crate) fn frame(number: u32, n_bytes: usize) -> Frame {
    let body: Vec<u8> = (0..n_bytes as u32).map(|at| (at.wrapping_mul(number | 1) >> 3) as u8).collect();
    Frame::in_round(Kind::Strategy, 3, number, u64::from(number) << 40, Bytes::from(body))
}
