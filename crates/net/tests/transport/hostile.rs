//! Whatever bytes arrive: nobody panics, hangs, or allocates more than it received.

use std::time::Duration;

use nettorrent_allocation::{Counting, Watch};
use nettorrent_net::frames::{FrameReader, ReadError};
use nettorrent_net::handshake::{Encryption, shake};
use nettorrent_net::hello::VERSION;
use nettorrent_net::refusal::HandshakeError;
use nettorrent_net::role::Role;
use nettorrent_net::wire::Wire;
use nettorrent_swarm::wire::{FrameError, HEAD_LEN, Head, Kind, MAX_BODY_LEN};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::pairs::{frame, terms};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const N_SEEDS: u64 = 300;

/// Reads frames until that fails.
async fn read_all(bytes: &[u8]) -> ReadError {
    let mut reader = FrameReader::new(bytes);
    loop {
        if let Err(error) = reader.next().await {
            return error;
        }
    }
}

fn head(n_bytes: u32) -> [u8; HEAD_LEN] {
    Head { kind: Kind::Strategy, view: 0, round: 0, part: 0, n_bytes }.to_bytes()
}

#[tokio::test]
async fn a_head_that_announces_too_much_is_refused_before_anything_is_allocated() {
    for n_bytes in [MAX_BODY_LEN as u32 + 1, u32::MAX] {
        let bytes = [&head(n_bytes)[..], &[0; 100]].concat();
        let watch = Watch::start();
        let error = read_all(&bytes).await;
        assert!(matches!(error, ReadError::Malformed(FrameError::TooLong { n_bytes: n }) if n == n_bytes), "{error}");
        assert!(watch.highest() < 32 << 10, "{} bytes were held", watch.highest());
    }
}

#[tokio::test]
async fn announcing_much_and_sending_little_costs_little() {
    for (n_sent, most) in [(0, 300 << 10), (300 << 10, 600 << 10), (1 << 20, 4 << 20)] {
        let mut bytes = head(MAX_BODY_LEN as u32).to_vec();
        bytes.resize(HEAD_LEN + n_sent, 1);
        let watch = Watch::start();
        let error = read_all(&bytes).await;
        let expected = MAX_BODY_LEN - n_sent;
        assert!(matches!(error, ReadError::CutOff { n_missing } if n_missing == expected), "{error}");
        assert!(watch.highest() < most, "{} bytes were held for {n_sent}", watch.highest());
    }
}

#[tokio::test]
async fn random_bytes_are_no_frames() {
    for seed in 0..N_SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..5000)];
        rng.fill_bytes(&mut bytes);
        let watch = Watch::start();
        let _ = read_all(&bytes).await;
        assert!(watch.highest() < 400 << 10, "seed {seed}: {} bytes were held", watch.highest());
    }
}

#[tokio::test]
async fn frames_with_changed_bytes_are_frames_or_errors() {
    let valid: Vec<u8> = (0..4)
        .flat_map(|number| {
            let frame = frame(number, 100 * number as usize);
            [&frame.head.to_bytes()[..], &frame.body].concat()
        })
        .collect();
    for seed in 0..N_SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = valid.clone();
        for _ in 0..rng.random_range(1..8) {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        bytes.truncate(rng.random_range(0..=bytes.len()));
        let watch = Watch::start();
        let _ = read_all(&bytes).await;
        assert!(watch.highest() < 400 << 10, "seed {seed}: {} bytes were held", watch.highest());
    }
}

/// What a handshake makes of somebody who says this, and then nothing more or that it hangs up.
async fn shaken_by(bytes: &[u8], role: Role, encryption: Encryption, hangs_up: bool) -> HandshakeError {
    let (ours, mut theirs) = tokio::io::duplex(64 << 10);
    let terms = terms(0, encryption);
    let stranger = async {
        theirs.write_all(bytes).await.unwrap();
        if hangs_up {
            theirs.shutdown().await.unwrap();
        }
        // Whatever we are told is taken note of, so that nobody waits for us.
        let _ = tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await;
    };
    let shaking = async move { shake(Wire::from(ours), role, &terms, |_| Ok(())).await };
    let (result, ()) = tokio::join!(shaking, stranger);
    result.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn random_bytes_are_no_handshake() {
    // Keys and certificates are made once before anything is counted.
    drop(terms(0, Encryption::On));
    for seed in 0..N_SEEDS {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = vec![0; rng.random_range(0..3000)];
        rng.fill_bytes(&mut bytes);
        // Some look like TLS, and some like a hello that is as long as it says.
        match seed % 3 {
            0 => {}
            1 => bytes.splice(0..0, [0x16, 3, 1, 0x0b, 0xb8]).for_each(drop),
            _ => {
                let hello = Head { kind: Kind::Hello, view: 0, round: 0, part: 0, n_bytes: bytes.len() as u32 };
                bytes.splice(0..0, hello.to_bytes().into_iter().chain(*b"NetTorr\0\x01\0\0\0")).for_each(drop);
            }
        }
        for role in [Role::Dialler, Role::Listener] {
            for encryption in [Encryption::On, Encryption::Off] {
                let watch = Watch::start();
                let error = shaken_by(&bytes, role, encryption, seed % 2 == 0).await;
                assert!(!error.to_string().is_empty());
                assert!(watch.highest() < 512 << 10, "seed {seed}: {} bytes were held", watch.highest());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_given_up_after_the_deadline() {
    for encryption in [Encryption::On, Encryption::Off] {
        let start = tokio::time::Instant::now();
        let error = shaken_by(b"", Role::Listener, encryption, false).await;
        assert!(matches!(error, HandshakeError::Deadline(_)), "{error}");
        assert!(start.elapsed() < Duration::from_secs(11));
    }
}

#[tokio::test(start_paused = true)]
async fn who_speaks_another_protocol_is_named_as_such() {
    for encryption in [Encryption::On, Encryption::Off] {
        for role in [Role::Dialler, Role::Listener] {
            let error = shaken_by(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", role, encryption, false).await;
            assert!(error.to_string().contains("is not NetTorrent"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_version_is_named_and_told_ours_where_it_will_always_find_it() {
    let mut theirs = Head { kind: Kind::Hello, view: 0, round: 0, part: 0, n_bytes: 40 }.to_bytes().to_vec();
    let newer = VERSION + 1;
    theirs.extend(b"NetTorr\0");
    theirs.extend(newer.to_le_bytes());
    theirs.extend([0xee; 28]);
    let error = shaken_by(&theirs, Role::Listener, Encryption::Off, false).await;
    let text = error.to_string();
    let versions = format!("this side speaks version {VERSION} of the protocol and the other side version {newer}");
    assert!(text.contains(&versions), "{text}");
    assert!(text.contains("update the older"), "{text}");

    let (ours, mut other) = tokio::io::duplex(4096);
    let terms = terms(0, Encryption::Off);
    tokio::spawn(async move { shake(Wire::from(ours), Role::Listener, &terms, |_| Ok(())).await });
    let mut first = [0; 36];
    other.read_exact(&mut first).await.unwrap();
    assert_eq!(first[24..], [&b"NetTorr\0"[..], &VERSION.to_le_bytes()].concat());
    assert_eq!(first[4..8], [0; 4]);
}
