//! `join`: takes part in a swarm that was started elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use nettorrent_net::ask::{ask_any, find_addresses};
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::service::{Answer, Invitation, Question};
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on, fingerprint};

use crate::measuring::MeasuringArguments;
use crate::run_folder::RunFolder;
use crate::swarm::network::{Beginning, NetworkArguments, train};
use crate::swarm::prepared_job::PreparedJob;
use crate::swarm::start_state::Start;

/// Arguments of `join`.
#[derive(Args)]
pub(crate) struct JoinArguments {
    /// The ticket that `nettorrent start` has printed.
    ticket: Ticket,
    /// The data on this machine: a path, or a name [default: the swarm's data set in the cache].
    #[arg(long, value_name = "NAME|PATH")]
    data: Option<String>,
    /// Number of compute threads; 0 for as many as the machine has.
    #[arg(long)]
    threads: Option<usize>,
    /// The folder for what is learnt [default: runs/MODEL-TIME].
    #[arg(long, value_name = "FOLDER")]
    run: Option<PathBuf>,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(flatten)]
    measuring: MeasuringArguments,
}

/// Runs `join`.
pub(crate) fn join(arguments: &JoinArguments) -> anyhow::Result<ExitCode> {
    let folder = arguments.network.open_folder()?;
    let ticket = &arguments.ticket;
    let identity = Identity::newcomer(&ticket.secret)?;
    let asked = block_on(Load { n_processes: 1, n_bytes: 0 }, async {
        let addresses = find_addresses(ticket, arguments.network.discover).await?;
        let terms = arguments.network.terms(identity.clone(), Purpose::Newcomer { job: None });
        ask_any(&terms, &addresses, &Question::Join).await
    })?;
    let (Answer::Join(Invitation { package, seat, members }), seen) = asked? else {
        anyhow::bail!("the peer that was asked did not understand; is it of another version?");
    };
    if !arguments.network.json {
        let there = if members.len() == 1 { "1 peer is".into() } else { format!("{} peers are", members.len()) };
        println!("{there} there; opening the data");
    }
    let prepared = PreparedJob::from_package(&package, arguments.data.as_deref(), arguments.threads)?;
    let run = RunFolder::create(arguments.run.as_deref(), &prepared.job, &prepared.spec)?;
    let events = arguments.measuring.open_events(&run, arguments.network.json)?;
    block_on(Load { n_processes: 1, n_bytes: prepared.n_bytes() }, async {
        let (endpoint, arrivals) = arguments.network.bind(identity.with_seat(seat), &prepared, folder).await?;
        let job = fingerprint::of_job(&prepared.package);
        endpoint.introduce_as(seat, Purpose::Peer { generation: 0, listen_port: 0, job });
        let port = endpoint.local_address().port();
        let address = arguments.network.addresses(&endpoint).first().copied();
        let seen = seen.map(|address| SocketAddr::new(address.ip(), port));
        let address = arguments.network.address.or(seen).or(address).unwrap_or(endpoint.local_address());
        let start = Start::fresh(&prepared);
        let measures = arguments.measuring.is_on();
        let beginning = Beginning { prepared: &prepared, start, run, events, wait_for: 1, members, measures };
        train(beginning, (endpoint, arrivals), address, &arguments.network).await
    })?
}
