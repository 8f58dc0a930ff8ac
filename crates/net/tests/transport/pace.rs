//! Shaped links are as slow as they should be: by a clock that stands still while nothing waits for it.

use std::time::Duration;

use nettorrent_net::connection::Connection;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::limits::Limits;
use nettorrent_net::shaper::{Shaper, Shapers};
use nettorrent_swarm::link_spec::LinkSpec;
use tokio::time::Instant;

use crate::pairs::{End, Over, Transport, connections, frame};

async fn unshaped() -> (Connection, Connection) {
    connections(Transport { over: Over::Memory, encryption: Encryption::Off, link: None }, Limits::default()).await
}

fn shapers(link: &str) -> Shapers {
    Shapers { send: Some(Shaper::new(link.parse::<LinkSpec>().unwrap())), receive: None }
}

/// Asserts that something took so long, within two per cent and a little more than a tick of the timers.
fn assert_took(start: Instant, expected: Duration, what: &str) {
    let (took, expected) = (start.elapsed().as_secs_f64(), expected.as_secs_f64());
    let tolerance = 0.02 * expected + 0.0021;
    assert!((took - expected).abs() <= tolerance, "{what} took {took:.4} s, not {expected:.4} s");
}

#[tokio::test(start_paused = true)]
async fn large_and_small_frames_come_at_the_rate_after_the_delay() {
    for (link, n_frames, n_bytes, millis) in [
        // (frames × (bytes + 24 for the head)) × 8 / rate + delay
        ("10mbit/5ms", 1, 1 << 20, 838.88 + 5.02),
        ("100mbit/20ms", 10, 1 << 20, 838.88 + 20.02),
        ("1gbit", 64, 256 << 10, 134.23),
        ("10gbit/1ms", 400, 256 << 10, 83.89 + 1.0),
        ("100mbit/50ms", 5000, 101, 50.0 + 50.0),
        ("56kbit/100ms", 7, 976, 1000.0 + 100.0),
        ("300ms", 5, 1 << 20, 300.0),
    ] {
        let (one, other) = unshaped().await;
        let (one, mut other) = (End::of(one.shaped(shapers(link))), End::of(other));
        let start = Instant::now();
        for number in 0..n_frames {
            one.link.send(frame(number, n_bytes));
        }
        for number in 0..n_frames {
            assert_eq!(other.frame().await.head, frame(number, n_bytes).head);
        }
        assert_took(start, Duration::from_secs_f64(millis / 1000.0), link);
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_frame_arrives_bit_by_bit() {
    let (one, other) = unshaped().await;
    let (one, mut other) = (End::of(one.shaped(shapers("10mbit"))), End::of(other));
    one.link.send(frame(1, 1 << 20));
    let watch = async {
        // 100 ms at this rate are 125 000 bytes.
        for step in 1..=8 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let received = other.link.traffic().wire_received as f64;
            let expected = f64::from(step) * 125_000.0;
            assert!((received - expected).abs() < 8000.0, "{received} instead of {expected}");
        }
    };
    watch.await;
    assert_eq!(other.frame().await.head, frame(1, 1 << 20).head);
}

#[tokio::test(start_paused = true)]
async fn frames_under_way_do_not_hold_up_each_other() {
    let (one, other) = unshaped().await;
    let (one, mut other) = (End::of(one.shaped(shapers("1gbit/100ms"))), End::of(other));
    let start = Instant::now();
    for number in 0..5 {
        one.link.send(frame(number, 10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for number in 0..5 {
        assert_eq!(other.frame().await.head, frame(number, 10).head);
        assert_took(start, Duration::from_millis(100 + 10 * u64::from(number)), "a frame");
    }
}

#[tokio::test(start_paused = true)]
async fn links_share_one_card_evenly() {
    let shapers = shapers("80mbit/5ms");
    let (first, first_other) = unshaped().await;
    let (second, second_other) = unshaped().await;
    let (first, mut first_other) = (End::of(first.shaped(shapers.clone())), End::of(first_other));
    let (second, mut second_other) = (End::of(second.shaped(shapers)), End::of(second_other));
    let start = Instant::now();
    first.link.send(frame(1, 1 << 20));
    second.link.send(frame(2, 1 << 20));
    first_other.frame().await;
    let first_took = start.elapsed();
    second_other.frame().await;
    assert_took(start, Duration::from_secs_f64(0.2097 + 0.005), "both");
    assert!(first_took > Duration::from_millis(190), "the first one took {first_took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_small_frame_on_an_idle_card_leaves_at_once() {
    let (one, other) = unshaped().await;
    let (one, mut other) = (End::of(one.shaped(shapers("1gbit"))), End::of(other));
    let start = Instant::now();
    one.link.send(frame(1, 64));
    other.frame().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn what_is_received_can_be_slowed_down_too() {
    let (one, other) = unshaped().await;
    let receive = Some(Shaper::new("10mbit".parse().unwrap()));
    let (one, mut other) = (End::of(one), End::of(other.shaped(Shapers { send: None, receive })));
    let start = Instant::now();
    for number in 0..10 {
        one.link.send(frame(number, 125_000 - 24));
    }
    for number in 1..=10 {
        other.frame().await;
        assert_took(start, Duration::from_millis(100 * number), "a frame");
    }
}

/// What a link lets out in a second that it is busy, while it has frames to let out now and then.
async fn busy_rate(link: &str, n_frames: u32, n_bytes: usize) -> f64 {
    let (one, other) = unshaped().await;
    let (one, mut other) = (End::of(one.shaped(shapers(link))), End::of(other));
    for number in 0..n_frames {
        one.link.send(frame(number, n_bytes));
        // The next one comes when nothing is left of this: the link was idle meanwhile.
        other.frame().await;
    }
    let outflow = one.link.outflow();
    assert_eq!(outflow.n_bytes, u64::from(n_frames) * (n_bytes as u64 + 24));
    outflow.n_bytes as f64 / outflow.busy.as_secs_f64()
}

#[tokio::test(start_paused = true)]
async fn a_link_is_busy_as_long_as_bytes_wait_to_leave_and_not_while_they_travel() {
    for (link, n_frames, n_bytes, bytes_per_s) in [
        ("100mbit/20ms", 20, 1 << 20, 12.5e6),
        ("100mbit/20ms", 50, 10_000, 12.5e6),
        ("1gbit/5ms", 20, 1 << 20, 125e6),
        ("56kbit/100ms", 7, 976, 7e3),
    ] {
        let measured = busy_rate(link, n_frames, n_bytes).await;
        let error = (measured / bytes_per_s - 1.0).abs();
        assert!(error < 0.05, "{link}, {n_frames} frames of {n_bytes} bytes: {measured} bytes per second");
    }
}

#[tokio::test(start_paused = true)]
async fn links_that_share_a_card_share_what_it_lets_out() {
    let shapers = shapers("80mbit/5ms");
    let (first, first_other) = unshaped().await;
    let (second, second_other) = unshaped().await;
    let (first, mut first_other) = (End::of(first.shaped(shapers.clone())), End::of(first_other));
    let (second, mut second_other) = (End::of(second.shaped(shapers)), End::of(second_other));
    first.link.send(frame(1, 1 << 20));
    second.link.send(frame(2, 1 << 20));
    first_other.frame().await;
    second_other.frame().await;
    let rates = [&first, &second].map(|end| {
        let outflow = end.link.outflow();
        outflow.n_bytes as f64 / outflow.busy.as_secs_f64()
    });
    assert!((rates[0] + rates[1] - 10e6).abs() < 0.5e6, "{rates:?}");
}

#[tokio::test(start_paused = true)]
async fn a_link_is_busy_while_the_other_side_does_not_read() {
    let (one, other) = unshaped().await;
    let (one, other) = (
        End::of(one),
        End::of(other.shaped(Shapers { send: None, receive: Some(Shaper::new("8mbit".parse().unwrap())) })),
    );
    let mut other = other;
    for number in 0..100 {
        one.link.send(frame(number, 100_000 - 24));
    }
    for number in 0..100 {
        assert_eq!(other.frame().await.head, frame(number, 100_000 - 24).head);
    }
    // What lies between the two is taken at once: the stream's 64 KiB and the frame that is being received.
    let busy = one.link.outflow().busy.as_secs_f64();
    assert!((9.5..=10.1).contains(&busy), "10 MB at 1 MB per second kept it busy for {busy} s");
}
