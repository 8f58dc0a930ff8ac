//! How fast links are over loopback, and what they cost: `cargo bench -p nettorrent-net`.
//!
//! Two threads, each with a runtime of its own as two processes would have, exchange frames. "MB/CPU s" is what both ends
//! together move in one second of processor time, which is what training has to do without.

#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::hello::Purpose;
use nettorrent_net::inbox::{Event, Inbox, inbox};
use nettorrent_net::link::Link;
use nettorrent_net::ticket::Secret;
use nettorrent_swarm::wire::{Frame, Kind};

const MEASURED: Duration = Duration::from_secs(2);
// How much may be under way before the sender waits for the receiver's word.
const WINDOW_BYTES: usize = 16 << 20;
const N_BODIES: usize = 16;
const N_ROUND_TRIPS: usize = 20_000;

fn main() {
    // Cargo hands over flags of its own; a plain word chooses what to measure.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|word| name.contains(word));
    for (name, encryption) in [("plain", Encryption::Off), ("tls", Encryption::On)] {
        for n_bytes in [64, 4 << 10, 64 << 10, 256 << 10, 4 << 20] {
            let name = format!("{name} throughput {n_bytes}");
            if is_chosen(&name) {
                throughput(&name, encryption, n_bytes);
            }
        }
        let name = format!("{name} round trip");
        if is_chosen(&name) {
            round_trip(&name, encryption);
        }
    }
}

fn throughput(name: &str, encryption: Encryption, n_bytes: usize) {
    let (address, listener) = spawn_listener(encryption, async move |link, mut inbox| {
        let mut n_received = 0;
        while let Some(Event::Frame(frame)) = inbox.next().await.map(|event| event.event) {
            n_received += frame.n_bytes();
            if n_received >= WINDOW_BYTES / 4 {
                n_received = 0;
                link.send(Frame::new(Kind::Service, Bytes::new()));
            }
        }
    });
    runtime().block_on(async move {
        let (link, mut inbox) = dial(encryption, address).await;
        let bodies: Vec<Bytes> = (0..N_BODIES).map(|number| Bytes::from(vec![number as u8; n_bytes])).collect();
        let mut meter = Meter::start();
        let (mut under_way, mut n_frames, mut warm) = (0, 0, false);
        loop {
            while under_way < WINDOW_BYTES {
                let frame = Frame::new(Kind::Strategy, bodies[n_frames % N_BODIES].clone());
                under_way += frame.n_bytes();
                n_frames += 1;
                link.send(frame);
            }
            inbox.next().await.unwrap();
            under_way -= WINDOW_BYTES / 4;
            if !warm && meter.elapsed() > MEASURED / 4 {
                (warm, n_frames, meter) = (true, 0, Meter::start());
            }
            if warm && meter.elapsed() > MEASURED {
                break;
            }
        }
        meter.report(name, n_frames, n_bytes);
    });
    listener.join().unwrap();
}

fn round_trip(name: &str, encryption: Encryption) {
    let (address, listener) = spawn_listener(encryption, async |link, mut inbox| {
        while let Some(Event::Frame(frame)) = inbox.next().await.map(|event| event.event) {
            link.send(frame);
        }
    });
    runtime().block_on(async move {
        let (link, mut inbox) = dial(encryption, address).await;
        let body = Bytes::from(vec![7; 64]);
        let mut times = Vec::with_capacity(N_ROUND_TRIPS);
        for _ in 0..N_ROUND_TRIPS {
            let start = Instant::now();
            link.send(Frame::new(Kind::Strategy, body.clone()));
            inbox.next().await.unwrap();
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let at = |share: f64| times[(share * N_ROUND_TRIPS as f64) as usize].as_secs_f64() * 1e6;
        println!(
            "{name:<28} {:>8.1} µs median  {:>8.1} µs lowest tenth  {:>8.1} µs 99th in a hundred",
            at(0.5),
            at(0.1),
            at(0.99)
        );
    });
    listener.join().unwrap();
}

/// Wall-clock and processor time since its start.
struct Meter {
    start: Instant,
    cpu: f64,
}

impl Meter {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu_seconds() }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn report(&self, name: &str, n_frames: usize, n_bytes: usize) {
        let (wall, cpu) = (self.elapsed().as_secs_f64(), cpu_seconds() - self.cpu);
        let megabytes = (n_frames * n_bytes) as f64 / 1e6;
        let rate = n_frames as f64 / wall;
        println!("{name:<28} {:>8.0} MB/s  {:>8.0} MB/CPU s  {rate:>10.0} frames/s", megabytes / wall, megabytes / cpu);
    }
}

/// What this process has used of its processors. Only Linux says; elsewhere it is not a number.
fn cpu_seconds() -> f64 {
    const TICKS_PER_SECOND: f64 = 100.0;
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return f64::NAN };
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |at: usize| after_name.split_whitespace().nth(at).and_then(|word| word.parse::<f64>().ok());
    (ticks(11).unwrap_or(f64::NAN) + ticks(12).unwrap_or(f64::NAN)) / TICKS_PER_SECOND
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn settings(join_index: u32, encryption: Encryption) -> Settings {
    let identity = Founder::from_secret(&Secret::from_bytes([1; 32])).member(join_index).unwrap();
    let purpose = Purpose::Peer { generation: 0, job: [0; 32] };
    Settings { listen: (Ipv4Addr::LOCALHOST, 0).into(), encryption, ..Settings::new(identity, purpose) }
}

/// A thread that serves one link; over when the link is.
fn spawn_listener<F: Future<Output = ()>>(
    encryption: Encryption,
    serve: impl FnOnce(Link, Inbox) -> F + Send + 'static,
) -> (Address, std::thread::JoinHandle<()>) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        runtime().block_on(async {
            let (endpoint, mut arrivals) = Endpoint::bind(settings(1, encryption)).await.unwrap();
            tell.send(endpoint.local_address().clone()).unwrap();
            let Some(Arrival::Incoming(connection)) = arrivals.recv().await else { panic!("nobody came") };
            let (sender, inbox) = inbox(64 << 20);
            serve(connection.start(sender), inbox).await;
        });
    });
    (told.recv().unwrap(), thread)
}

async fn dial(encryption: Encryption, address: Address) -> (Link, Inbox) {
    let (endpoint, _) = Endpoint::bind(settings(0, encryption)).await.unwrap();
    let connection = endpoint.dial(&address, None).await.unwrap();
    let (sender, inbox) = inbox(64 << 20);
    (connection.start(sender), inbox)
}
