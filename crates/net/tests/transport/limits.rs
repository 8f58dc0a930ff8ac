//! Nobody can make us hold, or do, more than we allow.

use nettorrent_net::close_reason::CloseReason;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::handshake::Encryption;
use nettorrent_net::limits::Limits;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::pairs::{End, PATIENCE, connections, frame, incoming, over_all, refused, settings};

#[test]
fn a_slow_reader_does_not_make_the_sender_hold_more_than_the_limit() {
    const MOST: usize = 20 << 20;
    over_all(async |transport| {
        let limits = Limits { max_queued_bytes: MOST, ..Limits::default() };
        let (one, other) = connections(transport, limits).await;
        let mut one = End::of(one);
        // It is never read, so it takes one frame of this size and no second.
        let _other = End::with_inbox(other, 0);
        let body = frame(0, 4 << 20);
        let mut n_sent = 0;
        let reason = loop {
            assert!(one.link.queued_bytes() <= MOST + body.n_bytes());
            one.link.send(body.clone());
            n_sent += body.n_bytes();
            assert!(n_sent < 20 * MOST, "the sender has no end");
            tokio::task::yield_now().await;
            if let Some(event) = one.inbox.try_next() {
                break event.event;
            }
        };
        let text = format!("{reason:?}");
        assert!(text.contains("TooSlow"), "{text}");
        assert_eq!(one.link.queued_bytes(), 0);
    });
}

#[test]
fn a_reader_that_comes_back_gets_everything() {
    over_all(async |transport| {
        let (one, other) = connections(transport, Limits::default()).await;
        let one = End::of(one);
        let mut other = End::with_inbox(other, 0);
        for number in 0..20 {
            one.link.send(frame(number, 3 << 20));
        }
        // The sender comes to a halt before everything is out.
        let mut before = usize::MAX;
        while one.link.queued_bytes() < before {
            before = one.link.queued_bytes();
            for _ in 0..1000 {
                tokio::task::yield_now().await;
            }
        }
        assert!(before > 0, "60 MB went into an inbox for 4");
        for number in 0..20 {
            assert_eq!(other.frame().await.head, frame(number, 3 << 20).head);
        }
    });
}

#[test]
fn who_waits_until_the_queue_is_drained_may_send_any_amount() {
    over_all(async |transport| {
        let limits = Limits { max_queued_bytes: 8 << 20, ..Limits::default() };
        let (one, other) = connections(transport, limits).await;
        let (one, mut other) = (End::of(one), End::of(other));
        let sending = async {
            for number in 0..30 {
                one.link.drained_to(2 << 20).await;
                one.link.send(frame(number, 2 << 20));
            }
        };
        let receiving = async {
            for number in 0..30 {
                assert_eq!(other.frame().await.head, frame(number, 2 << 20).head);
            }
        };
        tokio::join!(sending, receiving);
        // Nobody waits for a link that has ended.
        one.link.send(frame(0, 4 << 20));
        drop(other);
        one.link.drained_to(0).await;
    });
}

#[tokio::test]
async fn links_beyond_the_limit_are_refused_until_one_ends() {
    let limits = Limits { max_links: 1, ..Limits::default() };
    let (listener, mut arrivals) = Endpoint::bind(Settings { limits, ..settings(0, Encryption::On) }).await.unwrap();
    let (one, _) = Endpoint::bind(settings(1, Encryption::On)).await.unwrap();
    let (other, _) = Endpoint::bind(settings(2, Encryption::On)).await.unwrap();

    let dialled = one.dial(listener.local_address(), None).await.unwrap();
    let mut first = End::of(incoming(&mut arrivals).await);
    assert_eq!(listener.n_links(), 1);
    let (second, (_, turned_away)) = tokio::join!(other.dial(listener.local_address(), None), refused(&mut arrivals));
    for text in [second.unwrap_err().to_string(), turned_away] {
        assert!(text.contains("all of the 1 links are taken"), "{text}");
    }

    drop(dialled);
    assert!(matches!(first.closed().await, CloseReason::Theirs | CloseReason::Vanished));
    let retry = async {
        // The slot is free when the link's task has ended, which is soon after it has said so.
        loop {
            match other.dial(listener.local_address(), None).await {
                Ok(connection) => break connection,
                Err(error) => assert!(error.to_string().contains("links are taken"), "{error}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, retry).await.unwrap();
}

#[tokio::test]
async fn strangers_who_say_nothing_make_way() {
    let limits = Limits { max_handshakes: 2, ..Limits::default() };
    let (listener, mut arrivals) = Endpoint::bind(Settings { limits, ..settings(0, Encryption::On) }).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(listener.local_address().tcp().unwrap()).await.unwrap());
    }
    let (address, reason) = refused(&mut arrivals).await;
    assert_eq!(address, silent[0].local_addr().unwrap().into());
    assert!(reason.contains("too many connections"), "{reason}");

    let (honest, _) = Endpoint::bind(settings(1, Encryption::On)).await.unwrap();
    honest.dial(listener.local_address(), None).await.unwrap();
    let arrived = async {
        loop {
            if let Arrival::Incoming(connection) = arrivals.recv().await.unwrap() {
                break connection;
            }
        }
    };
    let connection = tokio::time::timeout(PATIENCE, arrived).await.unwrap();
    assert_eq!(connection.peer(), honest.identity().peer);
}

#[tokio::test]
async fn strangers_who_say_nothing_are_given_up() {
    let limits = Limits { handshake: Duration::from_millis(20), ..Limits::default() };
    let (listener, mut arrivals) = Endpoint::bind(Settings { limits, ..settings(0, Encryption::On) }).await.unwrap();
    let _silent = TcpStream::connect(listener.local_address().tcp().unwrap()).await.unwrap();
    let (_, reason) = tokio::time::timeout(PATIENCE, refused(&mut arrivals)).await.unwrap();
    assert!(reason.contains("did not finish the handshake within 20ms"), "{reason}");
}

#[tokio::test]
async fn strangers_who_knock_again_and_again_are_told_of_once() {
    let (listener, mut arrivals) = Endpoint::bind(settings(0, Encryption::On)).await.unwrap();
    for _ in 0..200 {
        let mut stranger = TcpStream::connect(listener.local_address().tcp().unwrap()).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        // The end of the stream comes when it has been turned away.
        let _ = stranger.read_to_end(&mut Vec::new()).await;
    }
    let (honest, _) = Endpoint::bind(settings(1, Encryption::On)).await.unwrap();
    honest.dial(listener.local_address(), None).await.unwrap();
    let mut n_told = 0;
    while let Arrival::Refused(_) = arrivals.recv().await.unwrap() {
        n_told += 1;
    }
    // A slow machine may take longer than the ten seconds after which it is told of again.
    assert!((1..20).contains(&n_told), "{n_told} times");
}
