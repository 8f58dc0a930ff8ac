//! `peer`: one process of a swarm on this machine. It takes its orders from the one that started it.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use nettorrent_net::address::Address;
use nettorrent_net::endpoint::{Endpoint, Settings};
use nettorrent_net::handshake::Encryption;
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::report::Command;
use nettorrent_net::shared_folder::SharedFolder;
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on, fingerprint};
use tokio::sync::{mpsc, oneshot};

use crate::swarm::orders::{Order, Orders};
use nettorrent_session::SessionError;
use nettorrent_session::StartState;
use nettorrent_session::Training;
use nettorrent_session::checkpoint_writer::CheckpointWriter;
use nettorrent_session::peer_event::{Ending, PeerEvent};
use nettorrent_session::peer_process::PeerProcess;
use nettorrent_session::reporter::Keep;
use nettorrent_session::run_folder::RunFolder;

/// Runs `peer`.
pub(crate) fn peer() -> anyhow::Result<ExitCode> {
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        bail!("`nettorrent peer` is started by `nettorrent train --peers N`, which tells it what to do");
    }
    let orders: Orders = serde_json::from_str(&line).context("cannot understand the orders")?;
    let (commands, heard) = mpsc::channel(4);
    let (begin, members) = oneshot::channel();
    std::thread::Builder::new().name("orders".into()).spawn(move || {
        let mut begin = Some(begin);
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(Order::Begin { members }) => drop(begin.take().map(|begin| begin.send(members))),
                Ok(Order::Leave) | Err(_) => break,
            }
        }
        // Whoever gave the orders is gone, or wants an end.
        drop(begin);
        let _ = commands.blocking_send(Command::Leave);
    })?;
    let run = RunFolder::open(&orders.run)?;
    let training = Arc::new(Training::with_model(run.job(&[])?, run.model_spec()?, orders.n_peers)?);
    let load = Load { n_processes: orders.n_peers, n_bytes: training.n_bytes() };
    block_on(load, take_part(&orders, run, &training, (heard, members)))?
}

async fn take_part(
    orders: &Orders,
    run: RunFolder,
    training: &Arc<Training>,
    (commands, members): (mpsc::Receiver<Command>, oneshot::Receiver<Vec<(nettorrent_swarm::PeerId, Address)>>),
) -> anyhow::Result<ExitCode> {
    let start = match &orders.checkpoint {
        Some(checkpoint) => StartState::from_checkpoint(&run, Path::new(checkpoint), training)?,
        None => StartState::fresh(training),
    };
    training.check(orders.n_peers)?;
    let ticket: Ticket = orders.ticket.parse()?;
    let identity = Identity::new(&ticket.secret, orders.seat)?;
    let me = identity.peer;
    let job = fingerprint::of_job(&training.package);
    let settings = Settings {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        encryption: if orders.encryption { Encryption::On } else { Encryption::Off },
        shape: orders.link.as_deref().map(str::parse).transpose()?,
        limits: training.limits(),
        folder: orders.shared_dir.as_deref().map(SharedFolder::open).transpose()?,
        ..Settings::new(identity, Purpose::Peer { generation: 0, job })
    };
    let (endpoint, arrivals) = Endpoint::bind(settings).await?;
    let mut tell = |event: PeerEvent| -> Result<(), SessionError> {
        println!("{}", serde_json::to_string(&event)?);
        Ok(())
    };
    let address = endpoint.local_address().clone();
    tell(PeerEvent::Listening { peer: me, address: address.clone() })?;
    // Without members the orders have ended before the beginning.
    let Ok(members) = members.await else { return Ok(ExitCode::SUCCESS) };
    let process = PeerProcess {
        training: training.clone(),
        start,
        checkpoint_writer: CheckpointWriter::start(run, training)?,
        keep: Keep::IfFirst,
        wait_for: orders.n_peers,
        address,
        introducers: members.into_iter().filter(|(peer, _)| *peer != me).collect(),
        measures: orders.measures,
        speed: None,
    };
    let ending = process.run((endpoint, arrivals), commands, &mut tell).await?;
    Ok(match ending {
        Ending::Finished | Ending::Left => ExitCode::SUCCESS,
        Ending::Failed(_) => ExitCode::FAILURE,
    })
}
