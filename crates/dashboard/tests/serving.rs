//! The server over a real socket: what it serves, to whom, and what of a run that goes on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use nettorrent_dashboard::{Server, Settings, Shows};
use nettorrent_history::{Event, EventLog, Line, Note, Progress};
use nettorrent_swarm::PeerId;

fn serve(events: &Path, address: &str, shows: Shows) -> Server {
    let settings = Settings {
        events: events.to_owned(),
        name: "runs/a".to_owned(),
        address: address.parse().expect("an address"),
        shows,
    };
    Server::start(settings).expect("a free port")
}

/// Where a server is, and what its address asks for.
fn place(server: &Server) -> (SocketAddr, String) {
    let url = server.url(server.address());
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("a whole address");
    (host.replace("0.0.0.0", "127.0.0.1").parse().expect("an address"), format!("/{path}"))
}

fn get(address: SocketAddr, host: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a server");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_run_is_followed_while_it_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events.jsonl");
    let server = serve(&events, "127.0.0.1:0", Shows::Page);
    let (address, path) = place(&server);
    let host = address.to_string();
    let page = get(address, &host, &path);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("page.js"), "{page}");
    assert!(page.to_lowercase().contains("content-security-policy"), "{page}");
    for file in ["/page.css", "/page.js"] {
        assert!(get(address, &host, file).starts_with("HTTP/1.1 200"), "{file}");
    }
    assert!(get(address, &host, "/board").contains("Waiting for the run to begin"));
    let mut log = EventLog::append(&events).unwrap();
    let note = Note { peer: PeerId(1), text: "peer 2 is gone".to_owned(), is_routine: false };
    log.write(&Line { at_s: 1.0, event: Event::Note(note) }).unwrap();
    assert!(get(address, &host, "/board").contains("peer 2 is gone"));
    let progress = Progress {
        epoch: 1,
        step: 9,
        n_samples: 80,
        loss: 0.25,
        accuracy: 0.5,
        lr: 0.1,
        samples_per_s: 8.0,
        seconds: 2.0,
    };
    log.write(&Line { at_s: 2.0, event: Event::Progress(progress) }).unwrap();
    assert!(get(address, &host, "/metrics").contains("nettorrent_training_loss{run=\"runs/a\"} 0.25\n"));
    assert!(get(address, &host, "/elsewhere").starts_with("HTTP/1.1 404"));
}

#[test]
fn strangers_are_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events.jsonl");
    let near = serve(&events, "127.0.0.1:0", Shows::Page);
    let (address, _) = place(&near);
    for path in ["/", "/board", "/metrics"] {
        assert!(get(address, "evil.example", path).starts_with("HTTP/1.1 403"), "{path}");
    }
    let far = serve(&events, "0.0.0.0:0", Shows::Metrics);
    let (address, path) = place(&far);
    assert!(path.starts_with("/metrics?token="), "{path}");
    assert!(get(address, "any", &path).starts_with("HTTP/1.1 200"));
    assert!(get(address, "any", "/metrics").starts_with("HTTP/1.1 403"));
    assert!(get(address, "any", &path[..path.len() - 1]).starts_with("HTTP/1.1 403"));
    assert!(get(address, "any", &path.replace("/metrics", "/board")).starts_with("HTTP/1.1 404"), "only the numbers");
}
