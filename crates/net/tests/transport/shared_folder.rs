//! Links between peers that share a directory: large bodies go through it, and nobody notices a difference.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use nettorrent_net::close_reason::CloseReason;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::handshake::Encryption;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_swarm::link_spec::LinkSpec;
use nettorrent_swarm::wire::{Frame, Kind};

use crate::pairs::{End, Over, Transport, frame, incoming, over_all, settings};

const MIN_BYTES: usize = 10_000;

fn open(path: &Path) -> Arc<SharedFolder> {
    SharedFolder::with_min_bytes(path, MIN_BYTES).unwrap()
}

/// Two ends, each with its own view of a directory.
async fn linked(transport: Transport, folders: [Option<Arc<SharedFolder>>; 2]) -> (End, End) {
    let link = transport.link.map(|link| link.parse::<LinkSpec>().unwrap());
    let [one, other] = folders;
    let settings = |join_index, folder| Settings { link, folder, ..settings(join_index, transport.encryption) };
    let (dialler, _) = Endpoint::bind(settings(0, one)).await.unwrap();
    let (listener, mut arrivals) = Endpoint::bind(settings(1, other)).await.unwrap();
    let dialled = dialler.dial(listener.local_address(), None).await.unwrap();
    (End::of(dialled), End::of(incoming(&mut arrivals).await))
}

/// The same over plain TCP, when both have found out that they share a directory.
async fn sharing(path: &Path) -> (End, End) {
    let transport = Transport { over: Over::Tcp, encryption: Encryption::Off, link: None };
    let (one, other) = linked(transport, [Some(open(path)), Some(open(path))]).await;
    wait_for_agreement(&one, &other).await;
    (one, other)
}

async fn wait_for_agreement(one: &End, other: &End) {
    while !(one.link.shares_folder() && other.link.shares_folder()) {
        tokio::task::yield_now().await;
    }
}

fn n_files(path: &Path) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

async fn wait_for_files(path: &Path, n: usize) {
    while n_files(path) != n {
        tokio::task::yield_now().await;
    }
}

const SIZES: [usize; 8] = [3, MIN_BYTES, 0, 4 << 20, 255, 300 << 10, MIN_BYTES - 1, 1 << 20];

#[test]
fn large_frames_arrive_in_order_and_equal_and_the_wire_carries_little() {
    over_all(async |transport| {
        if transport.over == Over::Memory {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let (mut one, mut other) = linked(transport, [Some(open(place.path())), Some(open(place.path()))]).await;
        wait_for_agreement(&one, &other).await;
        for (number, n_bytes) in SIZES.into_iter().enumerate() {
            one.link.send(frame(number as u32, n_bytes));
            other.link.send(frame(number as u32 + 100, n_bytes));
        }
        for (number, n_bytes) in SIZES.into_iter().enumerate() {
            for (end, number) in [(&mut other, number as u32), (&mut one, number as u32 + 100)] {
                let (found, expected) = (end.frame().await, frame(number, n_bytes));
                assert_eq!(found.head, expected.head);
                assert!(found.body == expected.body, "a body of {n_bytes} bytes differs");
                assert!(n_bytes == 0 || found.body.try_into_mut().is_ok(), "a body of {n_bytes} bytes is shared");
            }
        }
        one.link.drained_to(0).await;
        other.link.drained_to(0).await;
        let sent = one.link.traffic().wire_sent;
        assert!(sent < 20_000, "{sent} bytes on the wire");
        // Tokens alone, and in the end not even these.
        wait_for_files(place.path(), 2).await;
        drop((one, other));
        wait_for_files(place.path(), 0).await;
    });
}

#[test]
fn last_words_arrive_before_their_file_is_removed() {
    over_all(async |transport| {
        if transport.over == Over::Memory {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let (mut one, mut other) = linked(transport, [Some(open(place.path())), Some(open(place.path()))]).await;
        wait_for_agreement(&one, &other).await;
        for number in 0..3 {
            one.link.send(frame(number, 3 << 20));
        }
        one.link.close();
        for number in 0..3 {
            assert!(other.frame().await == frame(number, 3 << 20));
        }
        assert!(matches!(other.closed().await, CloseReason::Theirs));
        assert!(matches!(one.closed().await, CloseReason::Ourselves));
        // The tokens go with the last handles.
        wait_for_files(place.path(), 2).await;
        drop((one, other));
        wait_for_files(place.path(), 0).await;
    });
}

#[test]
fn who_has_another_directory_or_none_uses_the_wire() {
    over_all(async |transport| {
        if transport.over == Over::Memory {
            return;
        }
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for other in [Some(open(there.path())), None] {
            let (one, mut other) = linked(transport, [Some(open(here.path())), other]).await;
            for number in 0..3 {
                one.link.send(frame(number, 1 << 20));
                assert!(other.frame().await == frame(number, 1 << 20));
            }
            assert!(!one.link.shares_folder() && !other.link.shares_folder());
            assert!(one.link.traffic().wire_sent > 3 << 20);
        }
    });
}

#[tokio::test]
async fn a_directory_that_vanishes_is_done_without() {
    let place = tempfile::tempdir().unwrap();
    let (one, mut other) = sharing(place.path()).await;
    one.link.send(frame(0, 1 << 20));
    assert!(other.frame().await == frame(0, 1 << 20));
    drop(place);
    for number in 1..3 {
        one.link.send(frame(number, 1 << 20));
        assert!(other.frame().await == frame(number, 1 << 20));
    }
    assert!(one.link.traffic().wire_sent > 2 << 20);
}

#[tokio::test]
async fn who_has_lost_its_directory_is_spoken_to_over_the_wire() {
    let place = tempfile::tempdir().unwrap();
    let broken = tempfile::tempdir().unwrap();
    let link = broken.path().join("shared");
    std::fs::create_dir(&link).unwrap();
    let gone = open(&link);
    drop(broken);
    let transport = Transport { over: Over::Tcp, encryption: Encryption::On, link: None };
    for _ in 0..2 {
        let (mut one, mut other) = linked(transport, [Some(open(place.path())), Some(gone.clone())]).await;
        one.link.send(frame(1, 1 << 20));
        other.link.send(frame(2, 1 << 20));
        assert!(other.frame().await == frame(1, 1 << 20));
        assert!(one.frame().await == frame(2, 1 << 20));
    }
}

/// A word of a link about a file, as somebody might make it up.
fn stored(head: [u8; 24], name: [u8; 16]) -> Vec<u8> {
    [&[1][..], &head, &name, &[0; 32]].concat()
}

#[tokio::test]
async fn whoever_makes_up_words_or_files_is_cut_off() {
    let name = |byte: u8| format!("nettorrent-{}", format!("{byte:02x}").repeat(16));
    let head = frame(1, 1000).head.to_bytes();
    let too_long = {
        let mut head = head;
        head[3] = 0x7f;
        head
    };
    for (word, wanted) in [
        (stored(head, [1; 16]), "cannot be read"),
        (stored(head, [2; 16]), "has 999 bytes, and 1000 were announced"),
        (stored(head, [3; 16]), "is not what was announced"),
        (stored(head, [4; 16]), "is no ordinary file"),
        (stored(too_long, [3; 16]), "makes no sense"),
        (stored(head, [3; 16])[..50].to_vec(), "makes no sense"),
        (b"\x01../../../../etc/passwd".to_vec(), "makes no sense"),
        // It has taken what it was not given.
        (vec![2], "makes no sense"),
        (vec![9], "makes no sense"),
        (vec![], "makes no sense"),
    ] {
        let place = tempfile::tempdir().unwrap();
        let (_one, mut other) = {
            let (one, other) = sharing(place.path()).await;
            std::fs::write(place.path().join(name(2)), [0; 999]).unwrap();
            std::fs::write(place.path().join(name(3)), [0; 1000]).unwrap();
            std::fs::create_dir(place.path().join(name(4))).unwrap();
            one.link.send(Frame::new(Kind::Hello, Bytes::from(word)));
            (one, other)
        };
        let reason = other.closed().await;
        assert!(matches!(reason, CloseReason::Shared(_)) && reason.to_string().contains(wanted), "{reason}");
        for byte in [2, 3, 4] {
            assert!(place.path().join(name(byte)).exists(), "nothing is removed that is another's");
        }
    }
}

#[tokio::test]
async fn files_are_not_looked_for_where_no_directory_is_shared() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let transport = Transport { over: Over::Tcp, encryption: Encryption::On, link: None };
    let (one, mut other) = linked(transport, [Some(open(here.path())), Some(open(there.path()))]).await;
    one.link.send(Frame::new(Kind::Hello, Bytes::from(stored(frame(1, 1000).head.to_bytes(), [1; 16]))));
    let reason = other.closed().await;
    assert!(reason.to_string().contains("none is shared with it"), "{reason}");
}
