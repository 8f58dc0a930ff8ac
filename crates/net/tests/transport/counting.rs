//! What an endpoint counts at its sockets is what its links carry: to the byte, heads and records of TLS included.

use bytes::Bytes;
use nettorrent_net::endpoint::Endpoint;
use nettorrent_net::handshake::Encryption;
use nettorrent_swarm::wire::{Frame, HEAD_LEN, Kind};

use crate::pairs::{End, frame, incoming, refused, settings};

/// What TLS 1.3 adds to a record: its head, its kind and its tag.
const RECORD_OVERHEAD: u64 = 5 + 1 + 16;
/// The longest record.
const RECORD_LEN: u64 = 16 << 10;

/// Sends frames of these sizes, and a few of another kind; what that took at the socket beside the bodies.
async fn overhead(encryption: Encryption, sizes: &[usize]) -> u64 {
    let (dialler, _) = Endpoint::bind(settings(0, encryption)).await.unwrap();
    let (listener, mut arrivals) = Endpoint::bind(settings(1, encryption)).await.unwrap();
    let dialled = dialler.dial(listener.local_address(), None).await.unwrap();
    let (one, mut other) = (End::of(dialled), End::of(incoming(&mut arrivals).await));
    let before = dialler.sockets().get();
    assert!(before.sent > 0 && before.received > 0, "handshakes count");
    assert_eq!((before.payload_sent, before.payload_received), (0, 0), "but are nothing that a strategy says");

    let said = Frame::new(Kind::Membership, Bytes::from_static(&[7; 100]));
    for (number, &n_bytes) in sizes.iter().enumerate() {
        one.link.send(frame(number as u32, n_bytes));
        one.link.send(said.clone());
    }
    for _ in 0..2 * sizes.len() {
        other.frame().await;
    }
    let (ours, theirs) = (dialler.sockets().get(), listener.sockets().get());
    let payload = sizes.iter().sum::<usize>() as u64;
    assert_eq!((ours.payload_sent, theirs.payload_received), (payload, payload));
    assert_eq!((ours.payload_received, theirs.payload_sent), (0, 0));
    assert_eq!((ours.sent, theirs.sent), (one.link.traffic().wire_sent, other.link.traffic().wire_sent));
    assert_eq!(ours.sent, theirs.received);
    let (n_frames, n_others) = (2 * sizes.len() as u64, 100 * sizes.len() as u64);
    ours.sent - before.sent - payload - n_others - n_frames * HEAD_LEN as u64
}

#[tokio::test]
async fn sockets_carry_bodies_heads_and_what_tls_adds() {
    let sizes = [0, 1, 255, 64 << 10, 256 << 10, 1 << 20, 3];
    assert_eq!(overhead(Encryption::Off, &sizes).await, 0);
    let sealed = overhead(Encryption::On, &sizes).await;
    let payload = sizes.iter().sum::<usize>() as u64;
    assert_eq!(sealed % RECORD_OVERHEAD, 0, "whole records");
    assert!(sealed >= payload / RECORD_LEN * RECORD_OVERHEAD, "{sealed}");
    assert!(sealed * 100 < payload, "{sealed}: more than a hundredth of {payload}");
}

#[tokio::test]
async fn who_is_turned_away_costs_bytes_too() {
    let (stranger, _) = Endpoint::bind(settings(0, Encryption::Off)).await.unwrap();
    let (listener, mut arrivals) = Endpoint::bind(settings(1, Encryption::On)).await.unwrap();
    stranger.dial(listener.local_address(), None).await.unwrap_err();
    refused(&mut arrivals).await;
    assert!(listener.sockets().get().received > 0 && stranger.sockets().get().sent > 0);
}
