//! One end of a link whose way and speed are measured: `bench/routers` starts both.
//!
//! `link_speed serve LISTEN RELAY` prints its address and takes what comes; `link_speed dial RELAY ADDRESS SECONDS` sends for so long and
//! prints by which way, as a line of JSON. RELAY is a URL or `none`, which is for TCP only.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Arrival, Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::hello::Purpose;
use nettorrent_net::inbox::{Event, inbox};
use nettorrent_net::tcp::Tcp;
use nettorrent_net::ticket::Secret;
use nettorrent_net::transport::Transport;
use nettorrent_routers::{Insist, Routers};
use nettorrent_swarm::wire::{Frame, Kind};

// How much may be under way before the sender waits for the receiver's word.
const WINDOW_BYTES: usize = 16 << 20;
const FRAME_BYTES: usize = 256 << 10;
// A link that is to go straight does so by then.
const SETTLED: Duration = Duration::from_secs(10);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match words[..] {
        ["serve", listen, relay] => runtime.block_on(serve(&listen.parse().unwrap(), relay)),
        ["dial", relay, address, seconds] => {
            let wanted = Duration::from_secs_f64(seconds.parse().unwrap());
            runtime.block_on(dial(relay, &address.parse().unwrap(), wanted));
        }
        _ => panic!("serve LISTEN RELAY, or dial RELAY ADDRESS SECONDS"),
    }
}

async fn bind(number: u32, listen: &Address, relay: &str) -> (Endpoint, tokio::sync::mpsc::Receiver<Arrival>) {
    let transport: Arc<dyn Transport> =
        if relay == "none" { Arc::new(Tcp) } else { Arc::new(Routers::with_relay(relay, Insist::Yes).unwrap()) };
    let identity = Founder::from_secret(&Secret::from_bytes([1; 32])).member(number).unwrap();
    let settings = Settings::new(identity, Purpose::Peer { generation: 0, job: [0; 32] });
    Endpoint::bind(Settings { transport, listen: listen.clone(), ..settings }).await.unwrap()
}

async fn serve(listen: &Address, relay: &str) {
    let (endpoint, mut arrivals) = bind(1, listen, relay).await;
    println!("{}", endpoint.local_address());
    let Some(Arrival::Incoming(connection)) = arrivals.recv().await else { panic!("nobody came") };
    let (sender, mut inbox) = inbox(64 << 20);
    let link = connection.start(sender);
    let mut n_received = 0;
    while let Some(Event::Frame(frame)) = inbox.next().await.map(|event| event.event) {
        n_received += frame.n_bytes();
        if n_received >= WINDOW_BYTES / 4 {
            n_received = 0;
            link.send(Frame::new(Kind::Service, Bytes::new()));
        }
    }
}

async fn dial(relay: &str, address: &Address, wanted: Duration) {
    let (endpoint, _arrivals) = bind(0, &"0.0.0.0:0".parse().unwrap(), relay).await;
    let began = Instant::now();
    let connection = endpoint.dial(address, None).await.unwrap();
    let dialled = began.elapsed();
    let (sender, mut inbox) = inbox(64 << 20);
    let link = connection.start(sender);
    let first = link.route();
    while link.route() == nettorrent_net::route::Route::Relayed && began.elapsed() < SETTLED {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (settled, body) = (began.elapsed(), Bytes::from(vec![7; FRAME_BYTES]));
    let (began, mut under_way, mut n_arrived) = (Instant::now(), 0, 0);
    while began.elapsed() < wanted {
        while under_way < WINDOW_BYTES {
            let frame = Frame::new(Kind::Strategy, body.clone());
            under_way += frame.n_bytes();
            link.send(frame);
        }
        inbox.next().await.unwrap();
        under_way -= WINDOW_BYTES / 4;
        n_arrived += WINDOW_BYTES / 4;
    }
    let mb_per_s = n_arrived as f64 / 1e6 / began.elapsed().as_secs_f64();
    let (dialled_s, settled_s) = (dialled.as_secs_f64(), settled.as_secs_f64());
    println!(
        r#"{{"first": "{first}", "route": "{}", "dialled_s": {dialled_s:.2}, "settled_s": {settled_s:.2}, "mb_per_s": {mb_per_s:.2}}}"#,
        link.route()
    );
}
