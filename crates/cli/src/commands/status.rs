//! `status`: who is there, how far each is, and whom it waits for.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use indicatif::HumanCount;
use nettorrent_net::ask::{ask, ask_any, find_addresses};
use nettorrent_net::handshake::{Encryption, Terms};
use nettorrent_net::hello::Purpose;
use nettorrent_net::identity::Identity;
use nettorrent_net::service::{Answer, PeerStatus, Question};
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::{PeerId, Phase};

/// Arguments of `status`.
#[derive(Args)]
pub(crate) struct StatusArguments {
    /// The swarm's ticket.
    ticket: Ticket,
    /// Look for peers on the local network by mDNS, too.
    #[arg(long)]
    discover: bool,
    /// The swarm does not encrypt.
    #[arg(long)]
    plain: bool,
    /// Print a list in JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs `status`.
pub(crate) fn status(arguments: &StatusArguments) -> anyhow::Result<ExitCode> {
    let identity = Identity::newcomer(&arguments.ticket.secret)?;
    let encryption = if arguments.plain { Encryption::Off } else { Encryption::On };
    let terms = Terms { encryption, ..Terms::new(identity, Purpose::Visitor) };
    let peers = block_on(Load { n_processes: 1, n_bytes: 0 }, async {
        let addresses = find_addresses(&arguments.ticket, arguments.discover).await?;
        let (answer, _) = ask_any(&terms, &addresses, &Question::Status).await?;
        let Answer::Status(first) = answer else { anyhow::bail!("the peer that was asked did not understand") };
        let mut peers = BTreeMap::new();
        for &(peer, address) in &first.members {
            if peer == first.peer {
                continue;
            }
            let answer = ask(&terms, address, &Question::Status).await;
            let status = match answer {
                Ok((Answer::Status(status), _)) => Ok(status),
                Ok(_) => Err("it did not understand".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            peers.insert(peer, status);
        }
        peers.insert(first.peer, Ok(first));
        Ok(peers)
    })??;
    if arguments.json {
        let list: Vec<serde_json::Value> = peers.iter().map(|(peer, status)| json(*peer, status)).collect();
        println!("{}", serde_json::to_string_pretty(&list)?);
    } else {
        let hosts = peers.values().flatten().map(|status| status.host.chars().count());
        let width = hosts.max().unwrap_or(0);
        peers.iter().for_each(|(peer, status)| println!("{}", line(*peer, status, width)));
    }
    Ok(ExitCode::SUCCESS)
}

fn json(peer: PeerId, status: &Result<PeerStatus, String>) -> serde_json::Value {
    match status {
        Ok(status) => serde_json::to_value(status).expect("a status is plain data"),
        Err(problem) => serde_json::json!({ "peer": peer, "problem": problem }),
    }
}

/// A peer in one line, with so much room for the name of its machine.
fn line(peer: PeerId, status: &Result<PeerStatus, String>, width: usize) -> String {
    let name = peer.to_string();
    let status = match status {
        Ok(status) => status,
        Err(problem) => return format!("{name:<9} does not answer: {problem}"),
    };
    let doing = match status.phase {
        Phase::Agreeing => "agrees on whose parameters go on",
        Phase::Training => "computes",
        Phase::Exchanging => "exchanges",
        Phase::Syncing => "brings replicas together",
        Phase::Testing => "tests",
        Phase::Finished => "has finished",
    };
    let waits: Vec<String> = status.waits_for.iter().map(ToString::to_string).collect();
    let waits = if waits.is_empty() { String::new() } else { format!(", waits for {}", waits.join(", ")) };
    let digits = status.epochs.to_string().len();
    format!(
        "{name:<9} {:<width$}  epoch {:>digits$}/{}  round {:>7}  {:>7} samples/s  {doing} ({:.1} s){waits}",
        status.host,
        (status.epoch + 1).min(status.epochs),
        status.epochs,
        HumanCount(u64::from(status.round)).to_string(),
        HumanCount(status.samples_per_s as u64).to_string(),
        status.since_s,
    )
}
