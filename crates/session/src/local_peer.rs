//! One process of a swarm on this machine: it takes its orders from the one that started it.

use std::io::{BufRead, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::thread;

use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::founder::Founder;
use nettorrent_net::handshake::Encryption;
use nettorrent_net::hello::Purpose;
use nettorrent_net::report::Command;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_net::{Load, block_on, fingerprint};
use nettorrent_swarm::PeerId;
use tokio::sync::{mpsc, oneshot};

use crate::disk::Disk;
use crate::error::SessionError;
use crate::orders::{Order, Orders};
use crate::peer_event::{Ending, PeerEvent};
use crate::peer_process::PeerProcess;
use crate::reporter::Keep;
use crate::run_folder::RunFolder;
use crate::start_state::StartState;
use crate::training::Training;

/// What comes from the one that started it: what to do, and who is there.
struct Told {
    commands: mpsc::Receiver<Command>,
    members: oneshot::Receiver<Vec<(PeerId, Address)>>,
}

/// Trains as the lines on `input` say, and writes lines about it to `output`. Without an ending, it was stopped before it began.
pub fn run_local_peer(
    mut input: impl BufRead + Send + 'static,
    output: &mut dyn Write,
) -> Result<Option<Ending>, SessionError> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let orders: Orders = serde_json::from_str(&line).map_err(SessionError::Orders)?;
    let told = listen(input)?;
    let run = RunFolder::open(&orders.run)?;
    let training = Arc::new(Training::with_model(run.job(&[])?, run.described_model()?, orders.n_peers)?);
    let load = Load { n_processes: orders.n_peers, n_bytes: training.n_bytes() };
    block_on(load, train(&orders, run, &training, told, output))?
}

/// Reads what comes after the orders, on a thread of its own.
fn listen(input: impl BufRead + Send + 'static) -> Result<Told, SessionError> {
    let (leave, commands) = mpsc::channel(4);
    let (begin, members) = oneshot::channel();
    thread::Builder::new().name("orders".into()).spawn(move || {
        let mut begin = Some(begin);
        for line in input.lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Order::Begin { members }) => drop(begin.take().map(|begin| begin.send(members))),
                Ok(Order::Leave) | Err(_) => break,
            }
        }
        // Whoever gave the orders is gone, or wants an end.
        drop(begin);
        let _ = leave.blocking_send(Command::Leave);
    })?;
    Ok(Told { commands, members })
}

async fn train(
    orders: &Orders,
    run: RunFolder,
    training: &Arc<Training>,
    told: Told,
    output: &mut dyn Write,
) -> Result<Option<Ending>, SessionError> {
    let start = match &orders.checkpoint {
        Some(checkpoint) => StartState::from_checkpoint(&run, checkpoint, training)?,
        None => StartState::fresh(training),
    };
    training.check(orders.n_peers)?;
    let identity = Founder::from_secret(&orders.secret).member(orders.index)?;
    let me = identity.peer;
    let job = fingerprint::of_job(&training.package);
    let settings = Settings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        encryption: if orders.encryption { Encryption::On } else { Encryption::Off },
        link: orders.link,
        limits: training.limits(),
        folder: orders.shared_dir.as_deref().map(SharedFolder::open).transpose()?,
        ..Settings::new(identity, Purpose::Peer { generation: 0, job })
    };
    let (endpoint, arrivals) = Endpoint::bind(settings).await?;
    let mut tell = |event: PeerEvent| {
        let mut line = serde_json::to_string(&event).expect("events are plain data");
        line.push('\n');
        // Who started this process may be gone; then its orders end too, and what was learnt is saved before it goes.
        let _ = output.write_all(line.as_bytes()).and_then(|()| output.flush());
    };
    let address = endpoint.local_address().clone();
    tell(PeerEvent::Listening { peer: me, address: address.clone() });
    let Ok(members) = told.members.await else { return Ok(None) };
    let process = PeerProcess {
        training: training.clone(),
        start: start.with_saved(&run, training),
        run,
        keep: Keep::IfFirst,
        wait_for: orders.n_peers,
        address,
        // All of them are on one machine.
        site: None,
        introducers: members.into_iter().filter(|(peer, _)| *peer != me).collect(),
        measures: orders.measures,
        machine: orders.speed.clone().into(),
        disk: Disk::Here,
    };
    process.run((endpoint, arrivals), told.commands, &mut tell).await.map(Some)
}
