//! Whole fetches from a server on this machine: where bytes come from and where they end up.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::thread;

use nettorrent_fetch::{
    AddressError, Cache, CacheError, FetchError, FetchOptions, Progress, Unpack, UnpackError, fetch,
};

use crate::loopback::{Reply, Server};
use crate::toys::{Place, Toy, archived, bytes, entry, options, reasons, single, tar_gz};

const PATH: &str = "/files/toy.bin";

#[test]
fn a_file_arrives_whole_and_a_second_fetch_asks_for_nothing() {
    let content = bytes(300_000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    place.assert_no_set(&toy);
    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(folder, place.cache.path_of("toy"));
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
    assert_eq!(place.fetch(&toy).expect("cached"), folder);
    assert_eq!(place.cache.cached("toy"), Some(folder));
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn force_fetches_anew_and_replaces() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    let folder = place.fetch(&toy).expect("fetched");
    fs::write(folder.join("toy.bin"), "spoilt").expect("written");
    let forced = FetchOptions { force: true, ..options() };
    fetch(&toy, &place.cache, &forced, &mut |_| {}).expect("fetched");
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
    assert_eq!(server.seen().len(), 2);
}

#[test]
fn a_redirect_is_followed() {
    let content = bytes(1000, 1);
    let server = Server::with("/there", &[Reply::Serve(content.clone())]);
    server.script(PATH, &[Reply::Redirect(server.url("/there"))]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    place.leave_part(&toy, &content[..400]);
    place.fetch(&toy).expect("fetched");
    let seen = server.seen();
    assert_eq!(seen[1].path, "/there");
    assert_eq!(seen[1].range.as_deref(), Some("bytes=400-"), "a redirect keeps the range");
}

/// No certificate on this machine would be trusted, so this goes only as far as the greeting.
#[test]
fn https_begins_with_a_tls_greeting() {
    const HANDSHAKE_RECORD: u8 = 22;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}{PATH}", listener.local_addr().expect("its own address"));
    let toy = single(b"x", &[url]);
    let failures = thread::scope(|scope| {
        let greeting = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut first = [0];
            stream.read_exact(&mut first).expect("a byte");
            stream.write_all(b"HTTP/1.1 400 no TLS here\r\n\r\n").expect("sent");
            first[0]
        });
        let failures = reasons(Place::new().fetch(&toy));
        assert_eq!(greeting.join().expect("no panic"), HANDSHAKE_RECORD);
        failures
    });
    assert!(matches!(failures[..], [AddressError::Transport(_)]), "{failures:?}");
}

#[test]
fn a_length_left_unsaid_is_counted() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::Unmeasured(bytes(1001, 1)), Reply::Unmeasured(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    assert!(matches!(reasons(place.fetch(&toy))[..], [AddressError::WrongLength { n_bytes: 1001, .. }]));
    place.assert_no_set(&toy);
    place.fetch(&toy).expect("fetched");
}

#[test]
fn wrong_bytes_are_thrown_away_and_the_next_address_is_asked() {
    let content = bytes(1000, 1);
    let server = Server::with("/bad", &[Reply::Serve(bytes(1000, 7))]);
    let place = Place::new();
    let toy = single(&content, &[server.url("/bad")]);
    let result = place.fetch(&toy);
    assert!(matches!(reasons(result)[..], [AddressError::WrongHash { .. }]));
    place.assert_no_set(&toy);
    assert_eq!(place.n_bytes_left(&toy), 0);

    server.script("/good", &[Reply::Serve(content.clone())]);
    let toy = single(&content, &[server.url("/bad"), server.url("/good")]);
    let folder = place.fetch(&toy).expect("fetched from the second");
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
}

#[test]
fn when_every_address_fails_the_error_lists_each() {
    let content = bytes(1000, 1);
    let server = Server::with("/gone", &[Reply::Status(404)]);
    server.script("/ill", &[Reply::Status(500)]);
    server.script("/long", &[Reply::Serve(bytes(2000, 1))]);
    server.script("/other", &[Reply::Serve(bytes(1000, 9))]);
    let closed = Server::start().url("/closed");
    let paths = ["/gone", "/ill", "/long", "/other"].map(|path| server.url(path));
    let toy = single(&content, &[&paths[..], &[closed]].concat());
    let place = Place::new();
    let result = place.fetch(&toy);
    let message = result.as_ref().expect_err("no address is good").to_string();
    for url in toy.files[0].urls {
        assert!(message.contains(url), "{message}");
    }
    assert!(message.contains("status 404") && message.contains("status 500"), "{message}");
    assert!(matches!(
        reasons(result)[..],
        [
            AddressError::Status(404),
            AddressError::Status(500),
            AddressError::WrongLength { n_bytes: 2000, n_bytes_expected: 1000 },
            AddressError::WrongHash { .. },
            AddressError::Transport(_),
        ]
    ));
    place.assert_no_set(&toy);
}

#[test]
fn a_mirror_is_asked_first_and_its_failure_is_no_harm() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let toy = single(&content, &[server.url(PATH)]);
    let mirrored = FetchOptions { mirror: Some(server.url("/mirror/")), ..options() };
    let place = Place::new();
    fetch(&toy, &place.cache, &mirrored, &mut |_| {}).expect("fetched");
    let paths: Vec<_> = server.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/mirror/toy.bin", PATH]);

    server.script("/mirror/toy.bin", &[Reply::Serve(content)]);
    fetch(&toy, &Place::new().cache, &mirrored, &mut |_| {}).expect("fetched");
    assert_eq!(server.seen().len(), 3, "the publisher is left in peace");
}

#[test]
fn an_archive_is_unpacked_without_its_outer_folder() {
    let archive = tar_gz(&[("toy-1.0/train/a", b"aaa"), ("toy-1.0/b", b"bb")]);
    let server = Server::with("/a", &[Reply::Serve(archive.clone())]);
    let (place, toy) = (Place::new(), archived(&archive, &[server.url("/a")]));
    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(fs::read(folder.join("train").join("a")).expect("there"), b"aaa");
    assert_eq!(fs::read(folder.join("b")).expect("there"), b"bb");
    let left: Vec<_> = fs::read_dir(place.cache.root().join("downloads").join("toy"))
        .expect("readable")
        .flatten()
        .map(|item| item.file_name())
        .collect();
    assert_eq!(left, ["lock"], "the archive has served its purpose");
}

#[test]
fn a_wicked_archive_is_refused_even_if_its_hash_is_right() {
    let archive = tar_gz(&[("fine", b"x"), ("../evil", b"x")]);
    let server = Server::with("/a", &[Reply::Serve(archive.clone())]);
    let (place, toy) = (Place::new(), archived(&archive, &[server.url("/a")]));
    let error = place.fetch(&toy).expect_err("refused");
    assert!(matches!(&error, FetchError::Archive { source: UnpackError::Escapes(_), .. }), "{error}");
    assert!(error.to_string().contains("../evil"), "{error}");
    place.assert_no_set(&toy);
}

#[test]
fn a_truncated_archive_is_refused_even_if_its_hash_is_right() {
    let whole = tar_gz(&[("a", &bytes(5000, 1)), ("b", b"x")]);
    let archive = &whole[..whole.len() - 20];
    let server = Server::with("/a", &[Reply::Serve(archive.to_vec())]);
    let (place, toy) = (Place::new(), archived(archive, &[server.url("/a")]));
    let error = place.fetch(&toy).expect_err("refused");
    assert!(matches!(&error, FetchError::Archive { source: UnpackError::Damaged(_), .. }), "{error}");
    place.assert_no_set(&toy);
}

#[test]
fn a_set_is_not_there_until_all_its_files_are() {
    let (first, second) = (bytes(1000, 1), bytes(2000, 2));
    let server = Server::with("/1", &[Reply::Serve(first.clone())]);
    let toy = entry(
        Unpack::KeepFiles,
        vec![
            Toy { name: "first", content: &first, urls: vec![server.url("/1")] },
            Toy { name: "second", content: &second, urls: vec![server.url("/2")] },
        ],
    );
    let place = Place::new();
    reasons(place.fetch(&toy));
    place.assert_no_set(&toy);

    server.script("/2", &[Reply::Serve(second.clone())]);
    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(fs::read(folder.join("first")).expect("there"), first);
    assert_eq!(fs::read(folder.join("second")).expect("there"), second);
    let paths: Vec<_> = server.seen().into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/1", "/2", "/2"], "what was here was not asked for again");
}

#[test]
fn a_cache_that_cannot_be_written_says_so() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    // Below a file there can be no folder, not even for the superuser.
    let file = place.folder().join("file");
    fs::write(&file, "").expect("written");
    let error = fetch(&toy, &Cache::at(file.join("cache")), &options(), &mut |_| {}).expect_err("not a folder");
    assert!(matches!(&error, FetchError::Cache(CacheError::Io { .. })), "{error}");
    assert!(error.to_string().contains("NETTORRENT_CACHE"), "{error}");
    assert_eq!(server.seen(), [], "nothing is downloaded that cannot be kept");
}

#[test]
fn a_failing_disk_ends_the_fetch_rather_than_trying_the_next_address() {
    let content = bytes(1000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH), server.url(PATH)]));
    // A folder in its place makes a file unwritable, even for the superuser.
    place.leave_part(&toy, &content[..400]);
    let in_the_way = place.cache.root().join("downloads").join("toy").join("toy.bin.origin");
    fs::create_dir_all(&in_the_way).expect("created");
    let error = place.fetch(&toy).expect_err("a folder is in the way");
    assert!(matches!(&error, FetchError::Cache(CacheError::Io { path, .. }) if *path == in_the_way), "{error}");
    assert_eq!(server.seen().len(), 1);
    assert_eq!(place.n_bytes_left(&toy), 400);
}

#[test]
fn of_many_fetches_at_once_one_downloads_and_all_get_the_set() {
    const N_FETCHES: usize = 4;
    let archive = tar_gz(&[("toy/a", &bytes(200_000, 1))]);
    let server = Server::with("/a", &[Reply::Serve(archive.clone())]);
    let (place, toy) = (Place::new(), archived(&archive, &[server.url("/a")]));
    let start = Arc::new(Barrier::new(N_FETCHES));
    thread::scope(|scope| {
        for _ in 0..N_FETCHES {
            scope.spawn(|| {
                start.wait();
                let folder = place.fetch(&toy).expect("fetched");
                assert_eq!(fs::read(folder.join("a")).expect("there"), bytes(200_000, 1));
            });
        }
    });
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn names_that_lead_out_of_the_cache_are_refused() {
    let content = bytes(10, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let toy = entry(Unpack::KeepFiles, vec![Toy { name: "../x", content: &content, urls: vec![server.url(PATH)] }]);
    let error = Place::new().fetch(&toy).expect_err("refused");
    assert!(matches!(&error, FetchError::Name(name) if name == "../x"), "{error}");
    assert_eq!(server.seen(), []);
}

#[test]
fn progress_counts_up_to_the_whole() {
    let content = bytes(300_000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let toy = single(&content, &[server.url(PATH)]);
    let mut counts = Vec::new();
    fetch(&toy, &Place::new().cache, &options(), &mut |progress| {
        if let Progress::Downloading { n_bytes_done, n_bytes_total, .. } = progress {
            assert_eq!(n_bytes_total, 300_000);
            counts.push(n_bytes_done);
        }
    })
    .expect("fetched");
    assert!(counts.is_sorted());
    assert_eq!((counts.first(), counts.last()), (Some(&0), Some(&300_000)));
}

#[test]
fn a_fetch_told_to_stop_stops_and_keeps_what_it_has() {
    let content = bytes(1_000_000, 1);
    let server = Server::with(PATH, &[Reply::Serve(content.clone())]);
    let (place, toy) = (Place::new(), single(&content, &[server.url(PATH)]));
    let stoppable = options();
    let error = fetch(&toy, &place.cache, &stoppable, &mut |progress| {
        if matches!(progress, Progress::Downloading { n_bytes_done: 1.., .. }) {
            stoppable.stop.store(true, Ordering::Relaxed);
        }
    })
    .expect_err("stopped");
    assert!(matches!(error, FetchError::Stopped), "{error}");
    place.assert_no_set(&toy);
    let n_bytes_kept = place.n_bytes_left(&toy);
    assert!(n_bytes_kept > 0);

    let folder = place.fetch(&toy).expect("fetched");
    assert_eq!(fs::read(folder.join("toy.bin")).expect("there"), content);
    assert_eq!(server.seen()[1].range, Some(format!("bytes={n_bytes_kept}-")));
}
