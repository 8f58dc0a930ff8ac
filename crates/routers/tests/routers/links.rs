//! Links: which way they take, and that bytes arrive.

use std::sync::Arc;

use bytes::Bytes;
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::hello::Purpose;
use nettorrent_net::inbox::{Event, Inbox, inbox};
use nettorrent_net::key_address::KeyAddress;
use nettorrent_net::link::Link;
use nettorrent_net::policy::TicketLimits;
use nettorrent_net::route::Route;
use nettorrent_net::tcp::Tcp;
use nettorrent_net::transport::Transport;
use nettorrent_routers::Routers;
use nettorrent_swarm::wire::{Frame, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::{ANY_PORT, relay, run};

/// More than any queue on the way holds.
const MANY_BYTES: usize = 3 << 20;

type Bound = (Endpoint, mpsc::Receiver<Arrival>);

async fn bind(founder: &Founder, number: u32, transport: impl Transport + 'static) -> Bound {
    let purpose = Purpose::Peer { generation: 0, job: [7; 32] };
    let settings = Settings::new(founder.member(number).unwrap(), purpose);
    Endpoint::bind(Settings { transport: Arc::new(transport), listen: ANY_PORT.into(), ..settings }).await.unwrap()
}

/// A link from one to the other, at this address, and both inboxes.
async fn link(from: &Bound, to: &mut Bound, at: &Address) -> (Link, Inbox, Link, Inbox) {
    let peer = to.0.identity().peer;
    let (dialled, arrived) = tokio::join!(from.0.dial(at, Some(peer)), to.1.recv());
    let Some(Arrival::Incoming(arrived)) = arrived else { panic!("nobody came") };
    let ((one, one_inbox), (other, other_inbox)) = (inbox(64 << 20), inbox(64 << 20));
    (dialled.unwrap().start(one), one_inbox, arrived.start(other), other_inbox)
}

async fn carries_frames(link: &Link, inbox: &mut Inbox) {
    let body: Bytes = (0..MANY_BYTES).map(|k| (k * k) as u8).collect();
    link.send(Frame::new(Kind::Strategy, body.clone()));
    let Some(Event::Frame(frame)) = inbox.next().await.map(|event| event.event) else { panic!("no frame came") };
    assert_eq!(frame.body, body);
}

/// The same key where none of its sockets is known.
fn at_relay(address: &Address) -> Address {
    let Address::Key(key) = address else { panic!("{address} is no key") };
    Address::Key(KeyAddress::new(*key.key(), key.relay().map(str::to_owned), &[]).unwrap())
}

#[test]
fn keys_are_reached_straight_without_any_relay() {
    run(async {
        let (one, other) = (Routers::direct(), Routers::direct());
        let mut listener = one.listen(&ANY_PORT.into()).await.unwrap();
        let address = listener.address();
        // By TCP it is reached at the same port.
        assert_eq!(listener.reachable_at(), [address.clone(), address.tcp().unwrap().into()]);
        let dialling = async {
            let mut stream = other.connect(&address).await.unwrap();
            stream.write.write_all(b"Are you there?").await.unwrap();
            stream.write.shutdown().await.unwrap();
            stream
        };
        let (dialled, accepted) = tokio::join!(dialling, listener.accept());
        let mut accepted = accepted.unwrap();
        let mut heard = Vec::new();
        accepted.read.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"Are you there?");
        assert_eq!([(dialled.route)(), (accepted.route)()], [Route::Direct; 2]);
    });
}

#[test]
fn what_was_written_last_arrives_though_its_writer_is_gone() {
    run(async {
        let (one, other) = (Routers::direct(), Routers::direct());
        let mut listener = one.listen(&ANY_PORT.into()).await.unwrap();
        let address = listener.address();
        let dialling = async {
            let mut stream = other.connect(&address).await.unwrap();
            stream.write.write_all(&vec![5; 500_000]).await.unwrap();
        };
        let ((), accepted) = tokio::join!(dialling, listener.accept());
        let mut heard = Vec::new();
        accepted.unwrap().read.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, vec![5; 500_000]);
    });
}

#[test]
fn links_go_by_the_relay_where_there_is_no_other_way() {
    run(async {
        let (_relay, at_it) = relay().await;
        let founder = Founder::new(TicketLimits::default());
        let (one, mut other) = (bind(&founder, 0, at_it()).await, bind(&founder, 1, at_it().hidden()).await);
        let address = other.0.local_address().clone();
        // It names no machine, and is found nowhere else.
        assert_eq!((address.sockets(), other.0.addresses()), (&[][..], std::slice::from_ref(&address)));
        let (there, mut there_inbox, back, mut back_inbox) = link(&one, &mut other, &address).await;
        carries_frames(&there, &mut back_inbox).await;
        carries_frames(&back, &mut there_inbox).await;
        assert_eq!([there.route(), back.route()], [Route::Relayed; 2]);
    });
}

#[test]
fn links_that_begin_at_the_relay_go_straight_when_they_can() {
    run(async {
        let (_relay, at_it) = relay().await;
        let founder = Founder::new(TicketLimits::default());
        let (one, mut other) = (bind(&founder, 0, at_it()).await, bind(&founder, 1, at_it()).await);
        let address = at_relay(other.0.local_address());
        let (there, _there_inbox, _back, mut back_inbox) = link(&one, &mut other, &address).await;
        while there.route() != Route::Direct {
            carries_frames(&there, &mut back_inbox).await;
        }
    });
}

#[test]
fn tcp_comes_first_with_and_without_the_second_transport() {
    run(async {
        let founder = Founder::new(TicketLimits::default());
        let mut listening = bind(&founder, 0, Routers::direct()).await;
        let address = listening.0.local_address().clone();
        assert!(matches!(address, Address::Key(_)));
        for (number, dialling) in [(1, bind(&founder, 1, Routers::direct()).await), (2, bind(&founder, 2, Tcp).await)] {
            let (there, _inbox, back, mut back_inbox) = link(&dialling, &mut listening, &address).await;
            carries_frames(&there, &mut back_inbox).await;
            assert_eq!([there.route(), back.route()], [Route::Tcp; 2], "{number}");
        }
    });
}

#[test]
fn who_finds_somebody_else_at_a_key_s_address_goes_on_to_the_key() {
    run(async {
        let (_relay, at_it) = relay().await;
        let founder = Founder::new(TicketLimits::default());
        let (one, mut wanted) = (bind(&founder, 0, at_it()).await, bind(&founder, 1, at_it().hidden()).await);
        // A machine in another network has this address there.
        let (neighbour, _arrivals) = bind(&founder, 2, Tcp).await;
        let address = wanted.0.local_address().known_as(neighbour.local_address());
        assert_eq!(address.sockets().len(), 1);
        let (there, _there_inbox, _back, mut back_inbox) = link(&one, &mut wanted, &address).await;
        carries_frames(&there, &mut back_inbox).await;
        assert_eq!(there.route(), Route::Relayed);
    });
}

#[test]
fn no_relay_but_the_own_is_ever_asked() {
    run(async {
        let ((_relay, at_it), (_other_relay, at_other)) = (relay().await, relay().await);
        let founder = Founder::new(TicketLimits::default());
        let (one, other) = (bind(&founder, 0, at_it()).await, bind(&founder, 1, at_other().hidden()).await);
        let peer = other.0.identity().peer;
        let problem = one.0.dial(other.0.local_address(), Some(peer)).await.unwrap_err().to_string();
        assert!(problem.contains("no way leads to its key"), "{problem}");
    });
}

#[test]
fn what_names_no_relay_is_refused_before_anything_is_sent() {
    for url in ["", "relay.example.org", "ftp://relay.example.org", "http://relay.example.org/?token=1"] {
        let problem = Routers::with_relay(url, nettorrent_routers::Insist::Yes).unwrap_err().to_string();
        assert!(problem.contains("is no relay's URL"), "{problem}");
    }
}
