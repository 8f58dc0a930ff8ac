//! Links that are cut in the middle of a frame, by a relay that stands between the two ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nettorrent_net::close_reason::CloseReason;
use nettorrent_net::handshake::{Encryption, shake};
use nettorrent_net::role::Role;
use nettorrent_net::wire::Wire;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::pairs::{End, frame, terms};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Close,
    Silence,
}

/// Hands on what comes, as long as there is an allowance.
async fn relay(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    fate: Fate,
    left: &AtomicUsize,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let n_read = from.read(&mut buffer).await.unwrap_or(0);
        let n_allowed = n_read.min(left.load(Ordering::Relaxed));
        left.fetch_sub(n_allowed, Ordering::Relaxed);
        if to.write_all(&buffer[..n_allowed]).await.is_err() || n_read == 0 {
            return;
        }
        if n_allowed < n_read {
            match fate {
                Fate::Close => return,
                Fate::Silence => std::future::pending().await,
            }
        }
    }
}

/// Two ends with a relay between them, and what the relay may still hand on from the first to the second.
async fn relayed(encryption: Encryption, fate: Fate) -> (End, End, Arc<AtomicUsize>) {
    let (one, relay_one) = tokio::io::duplex(64 << 10);
    let (other, relay_other) = tokio::io::duplex(64 << 10);
    let left = Arc::new(AtomicUsize::new(usize::MAX));
    tokio::spawn(run_relay(relay_one, relay_other, fate, left.clone()));
    let (dialler, listener) = (terms(0, encryption), terms(1, encryption));
    let (one, other) = tokio::join!(
        shake(Wire::from(one), Role::Dialler, &dialler, |_| Ok(())),
        shake(Wire::from(other), Role::Listener, &listener, |_| Ok(())),
    );
    (End::of(one.unwrap()), End::of(other.unwrap()), left)
}

async fn run_relay(one: DuplexStream, other: DuplexStream, fate: Fate, left: Arc<AtomicUsize>) {
    let (from_one, to_one) = tokio::io::split(one);
    let (from_other, to_other) = tokio::io::split(other);
    let unlimited = AtomicUsize::new(usize::MAX);
    tokio::select! {
        () = relay(from_one, to_other, fate, &left) => {}
        () = relay(from_other, to_one, fate, &unlimited) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_and_then_the_end_is_an_error_that_names_the_peer() {
    for encryption in [Encryption::Off, Encryption::On] {
        for n_bytes_through in [10, 1000, 100_000] {
            let (one, mut other, left) = relayed(encryption, Fate::Close).await;
            one.link.send(frame(1, 5));
            assert_eq!(other.frame().await, frame(1, 5));
            left.store(n_bytes_through, Ordering::Relaxed);
            one.link.send(frame(2, 200_000));
            // That it is about this peer is checked with every event.
            let reason = other.closed().await;
            let is_cut = matches!(reason, CloseReason::CutOff { .. } | CloseReason::Vanished);
            assert!(is_cut, "{encryption:?}, {n_bytes_through}: {reason:?}");
            assert!(reason.to_string().contains("is gone"), "{reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn half_a_frame_and_then_silence_is_an_error_too() {
    for encryption in [Encryption::Off, Encryption::On] {
        let (one, mut other, left) = relayed(encryption, Fate::Silence).await;
        left.store(50_000, Ordering::Relaxed);
        one.link.send(frame(2, 200_000));
        let start = tokio::time::Instant::now();
        let reason = other.closed().await;
        assert!(matches!(reason, CloseReason::Stalled(_)), "{encryption:?}: {reason:?}");
        assert!(start.elapsed() > Duration::from_secs(60) && start.elapsed() < Duration::from_secs(90));
    }
}

#[tokio::test(start_paused = true)]
async fn silence_between_frames_may_last() {
    for encryption in [Encryption::Off, Encryption::On] {
        let (one, mut other, _) = relayed(encryption, Fate::Silence).await;
        one.link.send(frame(1, 200_000));
        assert_eq!(other.frame().await, frame(1, 200_000));
        tokio::time::advance(Duration::from_secs(3600)).await;
        one.link.send(frame(2, 5));
        assert_eq!(other.frame().await, frame(2, 5));
    }
}

#[tokio::test(start_paused = true)]
async fn who_reads_nothing_is_given_up_even_if_little_waits_for_him() {
    let (mut one, _other, left) = relayed(Encryption::Off, Fate::Silence).await;
    left.store(0, Ordering::Relaxed);
    // More than the pipes hold.
    one.link.send(frame(1, 200_000));
    let reason = one.closed().await;
    assert!(matches!(reason, CloseReason::Stalled(_)), "{reason:?}");
}
