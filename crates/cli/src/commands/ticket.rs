//! `ticket`: shows again with what others join.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use nettorrent_net::members::Members;
use nettorrent_net::{Load, block_on};

use crate::asked_swarm::Reach;
use crate::ticket::of_run;

/// Arguments of `ticket`.
#[derive(Args)]
pub(crate) struct TicketCommandArguments {
    /// The run of a peer that takes part in the swarm, or did: of whoever started it, or of one that joined.
    run: PathBuf,
    #[command(flatten)]
    reach: Reach,
    /// Print JSON instead of the ticket alone.
    #[arg(long)]
    json: bool,
}

/// Runs `ticket`.
pub(crate) fn ticket(arguments: &TicketCommandArguments) -> anyhow::Result<ExitCode> {
    let TicketCommandArguments { run, reach, json } = arguments;
    let shown = run.display();
    let kept = of_run(run)?;
    let asked = Members::ask(&kept, reach.encryption(), reach.discover);
    let members = block_on(Load { n_processes: 1, n_bytes: 0 }, asked)?.with_context(|| {
        format!("the swarm of {shown} is over, or cannot be reached; go on with the run by: nettorrent start --resume {shown}")
    })?;
    let ticket = members.ticket();
    if *json {
        let members: Vec<_> = members.members().iter().map(|member| member.entry()).collect();
        println!("{}", serde_json::json!({ "ticket": ticket.to_string(), "members": members }));
    } else {
        println!("{ticket}");
    }
    Ok(ExitCode::SUCCESS)
}
