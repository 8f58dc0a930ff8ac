//! Who does not belong here is turned away, and both sides learn why in words that help.

use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::hello::{Purpose, VERSION};
use nettorrent_net::ticket::Secret;
use nettorrent_net::trust_store::NO_JOIN_INDEX;
use nettorrent_swarm::view::PeerId;
use nettorrent_swarm::wire::{Head, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::pairs::{PATIENCE, founder, incoming, refused, settings};

/// What the one who dials and the one who is dialled are told.
async fn told(dialler: Settings, listener: Settings) -> [String; 2] {
    let (dialler, _) = Endpoint::bind(dialler).await.unwrap();
    let (listener, mut arrivals) = Endpoint::bind(listener).await.unwrap();
    let meeting = async { tokio::join!(dialler.dial(listener.local_address(), None), refused(&mut arrivals)) };
    let (dialled, (_, turned_away)) = tokio::time::timeout(PATIENCE, meeting).await.unwrap();
    [dialled.unwrap_err().to_string(), turned_away]
}

fn with_secret(secret: u8, join_index: u32, encryption: Encryption) -> Settings {
    let identity = Founder::from_secret(&Secret::from_bytes([secret; 32])).member(join_index).unwrap();
    Settings { identity, ..settings(join_index, encryption) }
}

#[tokio::test]
async fn another_secret_is_named_on_both_sides() {
    for encryption in [Encryption::On, Encryption::Off] {
        let told = told(with_secret(1, 0, encryption), with_secret(2, 1, encryption)).await;
        for text in told {
            assert!(text.contains("was the ticket from another swarm?"), "{encryption:?}: {text}");
        }
    }
}

#[tokio::test]
async fn encryption_on_one_side_only_is_named_on_both_sides() {
    for (dialler, listener) in [(Encryption::On, Encryption::Off), (Encryption::Off, Encryption::On)] {
        for text in told(settings(0, dialler), settings(1, listener)).await {
            assert!(text.contains("one side encrypts, the other does not"), "{dialler:?} dialled: {text}");
        }
    }
}

#[tokio::test]
async fn another_job_is_named_on_both_sides() {
    for encryption in [Encryption::On, Encryption::Off] {
        let other_job = Purpose::Peer { generation: 0, job: [0xab; 32] };
        let dialler = Settings { purpose: other_job, ..settings(0, encryption) };
        let [dialler, listener] = told(dialler, settings(1, encryption)).await;
        assert!(dialler.contains("this side trains job abababab and the other side job 01010101"), "{dialler}");
        assert!(listener.contains("this side trains job 01010101 and the other side job abababab"), "{listener}");
    }
}

#[tokio::test]
async fn a_link_to_oneself_is_refused() {
    for encryption in [Encryption::On, Encryption::Off] {
        let (endpoint, mut arrivals) = Endpoint::bind(settings(0, encryption)).await.unwrap();
        let (dialled, (_, turned_away)) =
            tokio::join!(endpoint.dial(endpoint.local_address(), None), refused(&mut arrivals));
        for text in [dialled.unwrap_err().to_string(), turned_away] {
            assert!(text.contains("own address"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_name_that_belongs_to_another_key_is_refused() {
    let mut dialler = settings(0, Encryption::On);
    dialler.identity.peer = PeerId::new(0, 12345);
    for text in told(dialler, settings(1, Encryption::On)).await {
        assert!(text.contains("is not the one of peer 0"), "{text}");
    }
}

#[tokio::test]
async fn another_peer_than_the_one_expected_is_refused() {
    for encryption in [Encryption::On, Encryption::Off] {
        let (dialler, _) = Endpoint::bind(settings(0, encryption)).await.unwrap();
        let (listener, mut arrivals) = Endpoint::bind(settings(1, encryption)).await.unwrap();
        let expected = PeerId::new(9, 0xabc);
        let (dialled, (_, turned_away)) =
            tokio::join!(dialler.dial(listener.local_address(), Some(expected)), refused(&mut arrivals));
        for text in [dialled.unwrap_err().to_string(), turned_away] {
            assert!(text.contains("9/abc was expected at this address"), "{text}");
        }
    }
}

#[tokio::test]
async fn newcomers_and_visitors_come_in_whatever_the_job() {
    for encryption in [Encryption::On, Encryption::Off] {
        for purpose in [Purpose::Joiner { job: None }, Purpose::Joiner { job: Some([1; 32]) }, Purpose::Observer] {
            let identity = founder().visitor(0).unwrap();
            let dialler = Settings { identity, purpose, ..settings(0, encryption) };
            let (dialler, _) = Endpoint::bind(dialler).await.unwrap();
            let (listener, mut arrivals) = Endpoint::bind(settings(1, encryption)).await.unwrap();
            let dialled = dialler.dial(listener.local_address(), None).await.unwrap();
            let accepted = incoming(&mut arrivals).await;
            assert_eq!(accepted.hello().purpose, purpose);
            assert_eq!(accepted.peer().join_index(), NO_JOIN_INDEX);
            assert_eq!(dialled.peer(), listener.identity().peer);
            // Each is told how the other sees it.
            assert_eq!(&accepted.hello().seen, listener.local_address());
            assert_eq!(&dialled.hello().seen, accepted.address());
        }
    }
}

#[tokio::test]
async fn nobody_at_an_address_is_said_so() {
    let (endpoint, _) = Endpoint::bind(settings(0, Encryption::On)).await.unwrap();
    let (gone, _) = Endpoint::bind(settings(1, Encryption::On)).await.unwrap();
    let address = gone.local_address().clone();
    drop(gone);
    // The task that listens ends at its next turn.
    tokio::task::yield_now().await;
    let text = endpoint.dial(&address, None).await.unwrap_err().to_string();
    assert!(text.contains(&format!("{address} cannot be reached")), "{text}");
    let taken = Settings { listen: endpoint.local_address().clone(), ..settings(2, Encryption::On) };
    let text = Endpoint::bind(taken).await.unwrap_err().to_string();
    assert!(text.contains("choose another address or port"), "{text}");
}

#[tokio::test]
async fn two_who_dial_each_other_at_once_get_one_connection() {
    for encryption in [Encryption::On, Encryption::Off] {
        for _ in 0..20 {
            let (one, mut to_one) = Endpoint::bind(settings(0, encryption)).await.unwrap();
            let (other, mut to_other) = Endpoint::bind(settings(1, encryption)).await.unwrap();
            let (dialled_one, dialled_other) =
                tokio::join!(one.dial(other.local_address(), None), other.dial(one.local_address(), None));
            let dialled = [&dialled_one, &dialled_other];
            assert_eq!(dialled.iter().filter(|dialled| dialled.is_ok()).count(), 1, "{dialled:?}");
            let crossed = dialled.iter().filter_map(|dialled| dialled.as_ref().err());
            crossed.for_each(|error| assert!(error.is_crossed(), "{error}"));
            // Who was refused gets the other's connection.
            let accepted = if dialled_one.is_ok() { &mut to_other } else { &mut to_one };
            loop {
                if let Arrival::Incoming(_) = accepted.recv().await.unwrap() {
                    break;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_refusal_arrives_even_if_the_refused_one_has_said_more_than_anybody_reads() {
    let (listener, mut arrivals) = Endpoint::bind(settings(0, Encryption::Off)).await.unwrap();
    let mut stranger = TcpStream::connect(listener.local_address().tcp().unwrap()).await.unwrap();
    let mut words = Head { kind: Kind::Hello, view: 0, round: 0, part: 0, n_bytes: 12 }.to_bytes().to_vec();
    let newer = VERSION + 1;
    words.extend(b"NetTorr\0");
    words.extend(newer.to_le_bytes());
    words.resize(200_000, 0xff);
    stranger.write_all(&words).await.unwrap();
    let mut told = Vec::new();
    let (_, reason) = refused(&mut arrivals).await;
    assert!(reason.contains(&format!("version {newer}")), "{reason}");
    // A socket that is closed with unread bytes in it resets the connection instead of ending it.
    stranger.shutdown().await.unwrap();
    stranger.read_to_end(&mut told).await.unwrap();
    assert!(told.len() > 36);
}
