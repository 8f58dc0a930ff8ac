//! Fetches that go on where an earlier try ended, from servers of every temper.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nettorrent_fetch::{AddressError, FetchOptions, Progress, fetch};

use crate::loopback::{Reply, Server};
use crate::toys::{Place, bytes, options, reasons, single};

const PATH: &str = "/files/toy.bin";

/// Fetches from a server with that script into a cache that already holds `part`, checks that the
/// file is right in the end, and returns what the server saw: each range and how much was sent.
fn ranges_seen(content: &[u8], part: &[u8], script: &[Reply]) -> Vec<(Option<String>, usize)> {
    let server = Server::with(PATH, script);
    let (place, toy) = (Place::new(), single(content, &[server.url(PATH)]));
    place.leave_part(&toy, part);
    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
    server.seen().into_iter().map(|seen| (seen.range, seen.n_bytes_sent)).collect()
}

fn from_byte(start: usize) -> Option<String> {
    Some(format!("bytes={start}-"))
}

#[test]
fn a_cut_connection_is_taken_up_where_it_broke() {
    let content = bytes(300_000, 1);
    let cut = |n_bytes| Reply::CutAfter(content.clone(), n_bytes);
    let seen = ranges_seen(&content, &[], &[cut(100_000), cut(50_000), Reply::Serve(content.clone())]);
    // Only what was missing was sent again.
    assert_eq!(seen, [(None, 100_000), (from_byte(100_000), 50_000), (from_byte(150_000), 150_000)]);
}

#[test]
fn a_later_fetch_resumes() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::CutAfter(content.clone(), 300), Reply::Status(503)]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    assert!(matches!(reasons(place.fetch(&toy))[..], [AddressError::Status(503)]));
    place.assert_no_set(&toy);
    assert_eq!(place.n_bytes_left(&toy), 300);

    server.script(PATH, &[Reply::Serve(content.clone())]);
    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
    assert_eq!(server.seen().last().map(|seen| seen.n_bytes_sent), Some(700));
}

#[test]
fn a_file_that_changed_meanwhile_is_sent_whole() {
    let (old, new) = (bytes(300_000, 1), bytes(300_000, 2));
    let server = Server::with(PATH, &[Reply::ServeTagged(old, "\"old\"")]);
    let (place, toy) = (Place::new(), single(&new, &[server.url(PATH)]));
    let stoppable = options();
    fetch(&toy, &place.cache, &stoppable, &mut |progress| {
        if matches!(progress, Progress::Downloading { n_bytes_done: 1.., .. }) {
            stoppable.stop.store(true, Ordering::Relaxed);
        }
    })
    .expect_err("stopped halfway");

    server.script(PATH, &[Reply::ServeTagged(new.clone(), "\"new\"")]);
    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), new);
    let seen = server.seen();
    assert_eq!(seen.len(), 2, "the tag told the server at once");
    assert_eq!(seen[1].if_range.as_deref(), Some("\"old\""));
    assert_eq!(seen[1].n_bytes_sent, 300_000);
}

#[test]
fn bytes_that_turn_out_wrong_are_begun_anew_once() {
    let content = bytes(1000, 1);
    let seen = ranges_seen(&content, &bytes(400, 9), &[Reply::Serve(content.clone())]);
    assert_eq!(seen, [(from_byte(400), 600), (None, 1000)]);
}

#[test]
fn a_server_that_ignores_ranges_starts_over() {
    let content = bytes(1000, 1);
    let seen = ranges_seen(&content, &content[..400], &[Reply::IgnoreRange(content.clone())]);
    assert_eq!(seen, [(from_byte(400), 1000)]);
}

#[test]
fn a_server_that_refuses_or_muddles_ranges_is_asked_for_the_whole() {
    let content = bytes(1000, 1);
    let whole = Reply::Serve(content.clone());
    for odd in [Reply::Status(416), Reply::ClaimRange("bytes 7-999/1000"), Reply::ClaimRange("nonsense")] {
        let seen = ranges_seen(&content, &content[..400], &[odd, whole.clone()]);
        assert_eq!(seen, [(from_byte(400), 0), (None, 1000)]);
    }
}

#[test]
fn a_part_that_is_already_whole_needs_no_request() {
    let content = bytes(1000, 1);
    assert_eq!(ranges_seen(&content, &content, &[Reply::Status(500)]), []);
}

#[test]
fn a_part_that_is_too_long_is_begun_anew() {
    let content = bytes(1000, 1);
    let seen = ranges_seen(&content, &bytes(1200, 1), &[Reply::Serve(content.clone())]);
    assert_eq!(seen, [(None, 1000)]);
}

#[test]
fn a_server_with_another_file_does_not_cost_us_our_part() {
    let content = bytes(1000, 1);
    for other in [bytes(300, 5), bytes(5000, 5)] {
        let server = Server::with("/other", &[Reply::Serve(other.clone())]);
        server.script("/page", &[Reply::IgnoreRange(other)]);
        server.script("/good", &[Reply::Serve(content.clone())]);
        let urls = ["/other", "/page", "/good"].map(|path| server.url(path));
        let (place, toy) = (Place::new(), single(&content, &urls));
        place.leave_part(&toy, &content[..400]);
        place.fetch(&toy).expect("fetched");
        let last = server.seen().pop().expect("asked");
        assert_eq!((last.path.as_str(), last.n_bytes_sent), ("/good", 600));
    }
}

#[test]
fn another_address_goes_on_where_the_first_one_ended() {
    let content = bytes(1000, 1);
    let server = Server::with("/ends", &[Reply::CutAfter(content.clone(), 300), Reply::Status(404)]);
    server.script("/good", &[Reply::Serve(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url("/ends"), server.url("/good")]));
    place.fetch(&toy).expect("fetched");
    let last = server.seen().pop().expect("asked");
    assert_eq!((last.path.as_str(), last.n_bytes_sent), ("/good", 700));
}

#[test]
fn a_server_that_falls_silent_is_given_up() {
    let content = bytes(1000, 1);
    let server = Server::with("/early", &[Reply::StallAfter(content.clone(), 0)]);
    server.script("/late", &[Reply::StallAfter(content.clone(), 300), Reply::Status(404)]);
    server.script("/good", &[Reply::Serve(content.clone())]);
    let urls = ["/early", "/late", "/good"].map(|path| server.url(path));
    let (place, toy) = (Place::new(), single(&content, &urls));
    let impatient = FetchOptions { idle_timeout: Duration::from_millis(200), ..options() };
    let mut stalls = 0;
    let folder = fetch(&toy, &place.cache, &impatient, &mut |progress| {
        let Progress::Failed { why: AddressError::Stalled(_), .. } = progress else { return };
        stalls += 1;
    })
    .expect("fetched from the third");
    assert_eq!(stalls, 2);
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
    assert_eq!(server.seen().last().map(|seen| seen.n_bytes_sent), Some(700));
}

#[test]
fn an_address_that_keeps_cutting_is_left_after_a_few_tries() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::CutAfter(content.clone(), 10)]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    let reasons = reasons(place.fetch(&toy));
    assert!(matches!(reasons[..], [AddressError::CutOff { .. } | AddressError::Transport(_)]), "{reasons:?}");
    assert_eq!(server.seen().len(), 5);
    assert_eq!(place.n_bytes_left(&toy), 50);
}
