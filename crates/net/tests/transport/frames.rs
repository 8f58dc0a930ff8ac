//! Frames arrive whole and in order, and ends are seen.

use nettorrent_net::close_reason::CloseReason;
use nettorrent_net::role::Role;

use crate::pairs::{frame, linked, over_all};

const SIZES: [usize; 7] = [0, 1, 255, 64 << 10, 256 << 10, 4 << 20, 3];

#[test]
fn frames_of_all_sizes_arrive_in_order_and_equal() {
    over_all(async |transport| {
        let (one, mut other) = linked(transport).await;
        for (number, n_bytes) in SIZES.into_iter().enumerate() {
            one.link.send(frame(number as u32, n_bytes));
        }
        for (number, n_bytes) in SIZES.into_iter().enumerate() {
            let expected = frame(number as u32, n_bytes);
            let found = other.frame().await;
            assert_eq!(found.head, expected.head);
            assert!(found.body == expected.body, "a body of {n_bytes} bytes differs");
            assert!(n_bytes == 0 || found.body.try_into_mut().is_ok(), "a body of {n_bytes} bytes is shared");
        }
        assert_eq!(one.link.queued_bytes(), 0);
        let (sent, received) = (one.link.traffic(), other.link.traffic());
        let n_bytes = SIZES.iter().sum::<usize>() as u64;
        assert_eq!((sent.frames_sent, sent.payload_sent), (7, n_bytes));
        assert_eq!((received.frames_received, received.payload_received), (7, n_bytes));
        assert_eq!(sent.wire_sent, received.wire_received);
        assert!(sent.wire_sent > n_bytes + 7 * 24 && sent.wire_sent < n_bytes + n_bytes / 50 + 8192, "{sent:?}");
    });
}

#[test]
fn both_directions_at_once_do_not_wait_for_each_other() {
    over_all(async |transport| {
        let (mut one, mut other) = linked(transport).await;
        // Far more than sockets and inboxes hold.
        const N_FRAMES: u32 = 12;
        for number in 0..N_FRAMES {
            one.link.send(frame(number, 4 << 20));
            other.link.send(frame(number + 100, 4 << 20));
        }
        for number in 0..N_FRAMES {
            assert_eq!(one.frame().await.head, frame(number + 100, 4 << 20).head);
            assert_eq!(other.frame().await.head, frame(number, 4 << 20).head);
        }
    });
}

#[test]
fn many_small_frames_take_few_bytes_and_keep_their_order() {
    over_all(async |transport| {
        let (one, mut other) = linked(transport).await;
        for number in 0..20_000 {
            one.link.send(frame(number, (number % 97) as usize));
        }
        for number in 0..20_000 {
            assert_eq!(other.frame().await, frame(number, (number % 97) as usize));
        }
    });
}

#[test]
fn closing_is_seen_after_the_last_frame() {
    over_all(async |transport| {
        let (mut one, mut other) = linked(transport).await;
        assert_eq!((one.link.role(), other.link.role()), (Role::Dialler, Role::Listener));
        one.link.send(frame(1, 3 << 20));
        one.link.send(frame(2, 10));
        one.link.close();
        one.link.send(frame(3, 10));
        // Who has closed a link wants nothing more from it.
        other.link.send(frame(9, 10));
        assert_eq!(other.frame().await, frame(1, 3 << 20));
        assert_eq!(other.frame().await, frame(2, 10));
        assert!(matches!(other.closed().await, CloseReason::Theirs));
        assert!(matches!(one.closed().await, CloseReason::Ourselves));
        // Nobody is there any more, and that hurts nobody.
        other.link.send(frame(4, 10));
        assert_eq!(other.link.queued_bytes(), 0);
    });
}

#[test]
fn dropping_the_last_handle_closes_the_link() {
    over_all(async |transport| {
        let (one, mut other) = linked(transport).await;
        let second_handle = one.link.clone();
        drop(one.link);
        second_handle.send(frame(1, 1));
        drop(second_handle);
        assert_eq!(other.frame().await, frame(1, 1));
        assert!(matches!(other.closed().await, CloseReason::Theirs));
    });
}
