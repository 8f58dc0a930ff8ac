//! A small HTTP server on 127.0.0.1 that answers as a test's script says, faults included.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

/// How one request is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The file, or the part of it that was asked for.
    Serve(Vec<u8>),
    /// The file with an entity tag, which `If-Range` is held against.
    ServeTagged(Vec<u8>, &'static str),
    /// All of the file, whatever part was asked for.
    IgnoreRange(Vec<u8>),
    /// All of the file without saying how long it is.
    Unmeasured(Vec<u8>),
    /// As `Serve`, but the connection ends after so many bytes of the body.
    CutAfter(Vec<u8>, usize),
    /// As `Serve`, but nothing more comes after so many bytes of the body.
    StallAfter(Vec<u8>, usize),
    /// No file.
    Status(u16),
    /// A 206 whose header claims this content range, with an empty body.
    ClaimRange(&'static str),
    /// Look there instead.
    Redirect(String),
}

/// One request as it arrived, and how many bytes of a body it was answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
    pub(crate) n_bytes_sent: usize,
}

/// Runs until dropped.
pub(crate) struct Server {
    address: SocketAddr,
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    /// For each path the replies still to be given; the last is given again and again.
    script: Mutex<BTreeMap<String, Vec<Reply>>>,
    seen: Mutex<Vec<Seen>>,
    /// Connections kept open on purpose.
    stalled: Mutex<Vec<TcpStream>>,
    is_over: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panicked while it held this")
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its own address");
        let state = Arc::new(State::default());
        let thread = thread::spawn({
            let state = Arc::clone(&state);
            move || accept(&listener, &state)
        });
        Self { address, state, thread: Some(thread) }
    }

    /// A server with one file whose requests are answered in that order.
    pub(crate) fn with(path: &str, replies: &[Reply]) -> Self {
        let server = Self::start();
        server.script(path, replies);
        server
    }

    pub(crate) fn script(&self, path: &str, replies: &[Reply]) {
        locked(&self.state.script).insert(path.to_owned(), replies.to_vec());
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What was asked so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        locked(&self.state.seen).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread, which waits for a connection.
        TcpStream::connect(self.address).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

fn accept(listener: &TcpListener, state: &State) {
    for stream in listener.incoming() {
        if state.is_over.load(Ordering::SeqCst) {
            return;
        }
        if let Ok(stream) = stream {
            // A client that hangs up is no failure here: some tests are about just that.
            answer(stream, state).ok();
        }
    }
}

fn answer(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let Some(mut request) = read_request(&stream)? else { return Ok(()) };
    let reply = next_reply(state, &request.path);
    let response = respond(&reply, &request);
    request.n_bytes_sent = response.body.len();
    // Noted before it is sent, so that a client that has its answer finds it noted.
    locked(&state.seen).push(request);
    stream.write_all(response.head.as_bytes())?;
    stream.write_all(&response.body)?;
    if matches!(reply, Reply::StallAfter(..)) {
        locked(&state.stalled).push(stream);
    }
    Ok(())
}

fn read_request(stream: &TcpStream) -> std::io::Result<Option<Seen>> {
    let mut lines = BufReader::new(stream).lines();
    let Some(first) = lines.next().transpose()? else { return Ok(None) };
    let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
    let mut seen = Seen { path, range: None, if_range: None, n_bytes_sent: 0 };
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        match name.to_lowercase().as_str() {
            "range" => seen.range = Some(value.to_owned()),
            "if-range" => seen.if_range = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(Some(seen))
}

fn next_reply(state: &State, path: &str) -> Reply {
    let mut script = locked(&state.script);
    match script.get_mut(path) {
        Some(replies) if replies.len() > 1 => replies.remove(0),
        Some(replies) => replies.first().cloned().unwrap_or(Reply::Status(404)),
        None => Reply::Status(404),
    }
}

struct Response {
    head: String,
    body: Vec<u8>,
}

fn head(status: u16, headers: &str) -> String {
    format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{headers}\r\n")
}

fn respond(reply: &Reply, request: &Seen) -> Response {
    match reply {
        Reply::Serve(content) => part_of(content, request, ""),
        Reply::ServeTagged(content, tag) => {
            let is_other = request.if_range.as_deref().is_some_and(|wanted| wanted != *tag);
            let request = Seen { range: request.range.clone().filter(|_| !is_other), ..request.clone() };
            part_of(content, &request, &format!("ETag: {tag}\r\n"))
        }
        Reply::IgnoreRange(content) => part_of(content, &Seen { range: None, ..request.clone() }, ""),
        Reply::Unmeasured(content) => Response { head: head(200, ""), body: content.clone() },
        Reply::CutAfter(content, n_bytes) | Reply::StallAfter(content, n_bytes) => {
            let mut response = part_of(content, request, "");
            response.body.truncate(*n_bytes);
            response
        }
        Reply::Status(status) => Response { head: head(*status, "Content-Length: 0\r\n"), body: Vec::new() },
        Reply::ClaimRange(range) => {
            let headers = format!("Content-Length: 0\r\nContent-Range: {range}\r\n");
            Response { head: head(206, &headers), body: Vec::new() }
        }
        Reply::Redirect(url) => {
            Response { head: head(302, &format!("Location: {url}\r\nContent-Length: 0\r\n")), body: Vec::new() }
        }
    }
}

fn part_of(content: &[u8], request: &Seen, headers: &str) -> Response {
    let range = request.range.as_deref().and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
    let Some(start) = range.and_then(|start| start.parse::<usize>().ok()) else {
        let headers = format!("{headers}Content-Length: {}\r\n", content.len());
        return Response { head: head(200, &headers), body: content.to_vec() };
    };
    let total = content.len();
    if start >= total {
        let headers = format!("Content-Length: 0\r\nContent-Range: bytes */{total}\r\n");
        return Response { head: head(416, &headers), body: Vec::new() };
    }
    let body = content[start..].to_vec();
    let headers =
        format!("{headers}Content-Length: {}\r\nContent-Range: bytes {start}-{}/{total}\r\n", body.len(), total - 1);
    Response { head: head(206, &headers), body }
}
