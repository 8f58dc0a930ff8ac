//! `status`: who is there, how far each is, and whom it waits for.

use std::process::ExitCode;

use clap::Args;
use indicatif::HumanCount;
use nettorrent_net::observer::Observer;
use nettorrent_net::service::PeerStatus;
use nettorrent_net::{Load, block_on};
use nettorrent_swarm::PeerId;

use crate::asked_swarm::AskedSwarm;
use crate::output::print_line;
use crate::transport::of_ticket;

/// Arguments of `status`.
#[derive(Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    swarm: AskedSwarm,
    /// Print a list in JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs `status`.
pub(crate) fn status(arguments: &StatusArguments) -> anyhow::Result<ExitCode> {
    let encryption = arguments.swarm.reach.encryption();
    let ticket = arguments.swarm.ticket.read()?;
    let peers = block_on(Load { n_processes: 1, n_bytes: 0 }, async {
        let discover = arguments.swarm.reach.discover;
        anyhow::Ok(Observer::connect(of_ticket(&ticket), &ticket, encryption, discover).await?.status().await)
    })??;
    if arguments.json {
        let problem = |peer, problem| serde_json::json!({ "peer": peer, "problem": problem });
        let list: Vec<serde_json::Value> = peers
            .iter()
            .map(|(peer, status)| {
                status.as_ref().map_or_else(|why| problem(*peer, why), |status| serde_json::json!(status))
            })
            .collect();
        print_line!("{}", serde_json::to_string_pretty(&list)?);
    } else {
        let hosts = peers.values().flatten().map(|status| status.host.chars().count());
        let width = hosts.max().unwrap_or(0);
        peers.iter().for_each(|(peer, status)| print_line!("{}", line(*peer, status, width)));
    }
    Ok(ExitCode::SUCCESS)
}

/// A peer in one line, with so much room for the name of its machine.
fn line(peer: PeerId, status: &Result<PeerStatus, String>, width: usize) -> String {
    let name = peer.to_string();
    let status = match status {
        Ok(status) => status,
        Err(problem) => return format!("{name:<9} does not answer: {problem}"),
    };
    let digits = status.epochs.to_string().len();
    format!(
        "{name:<9} {:<width$}  epoch {:>digits$}/{}  round {:>7}  {:>7} samples/s  {}",
        status.host,
        (status.epoch + 1).min(status.epochs),
        status.epochs,
        HumanCount(u64::from(status.round)).to_string(),
        HumanCount(status.samples_per_s as u64).to_string(),
        status.activity(),
    ) + &by_detours(status)
}

/// Which of its links do not go over TCP.
fn by_detours(status: &PeerStatus) -> String {
    let detours = status.detours();
    if detours.is_empty() { detours } else { format!("  [{detours}]") }
}
