//! `ticket`: shows again with what others join.

use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_net::address::Address;
use nettorrent_net::clock::Clock;
use nettorrent_net::founder::Founder;
use nettorrent_net::members::Members;
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on};

use crate::asked_swarm::Reach;
use crate::output::print_line;
use crate::secret_file::read_secret;
use crate::ticket::of_run;
use crate::transport::of_ticket;

/// Arguments of `ticket`.
#[derive(Args)]
pub(crate) struct TicketCommandArguments {
    /// The run of a peer that takes part in the swarm, or did: of whoever started it, or of one that joined.
    #[arg(required_unless_present = "secret_file", conflicts_with = "secret_file")]
    run: Option<PathBuf>,
    /// Make the ticket of the swarm that is or will be started with this file (`start --secret-file`), without asking anybody.
    #[arg(long, value_name = "FILE", requires = "at")]
    secret_file: Option<PathBuf>,
    /// Where peers of that swarm are; may be given several times. Names that are not known are left out if others are.
    #[arg(long, value_name = "HOST:PORT", requires = "secret_file")]
    at: Vec<String>,
    #[command(flatten)]
    reach: Reach,
    /// Print JSON instead of the ticket alone.
    #[arg(long)]
    json: bool,
}

/// Runs `ticket`.
pub(crate) fn ticket(arguments: &TicketCommandArguments) -> anyhow::Result<ExitCode> {
    let (ticket, members) = match (&arguments.run, &arguments.secret_file) {
        (Some(run), _) => of_swarm(run, &arguments.reach)?,
        (None, Some(secret)) => (of_secret(secret, &arguments.at)?, Vec::new()),
        (None, None) => bail!("say whose ticket: name a run, or a secret with --secret-file FILE"),
    };
    if arguments.json {
        print_line!("{}", serde_json::json!({ "ticket": ticket.to_string(), "members": members }));
    } else {
        print_line!("{ticket}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The ticket that names who is there now, and who that is.
fn of_swarm(run: &Path, reach: &Reach) -> anyhow::Result<(Ticket, Vec<serde_json::Value>)> {
    let shown = run.display();
    let kept = of_run(run)?;
    let asked = Members::ask(of_ticket(&kept), &kept, reach.encryption(), reach.discover);
    let members = block_on(Load { n_processes: 1, n_bytes: 0 }, asked)?.with_context(|| {
        format!("the swarm of {shown} is over, or cannot be reached; go on with the run by: nettorrent start --resume {shown}")
    })?;
    if members.limits().have_ended(Clock::System.now()) {
        // It is shown all the same: with it one may still see who is there, and replace it.
        eprintln!(
            "warning: the time of this ticket is over, and it lets nobody in any more; whoever started the swarm replaces it with: \
             nettorrent members RUN --rotate --run RUN"
        );
    }
    let entries = members.members().iter().map(|member| serde_json::json!(member.entry())).collect();
    Ok((members.ticket(), entries))
}

/// The ticket of the swarm that comes of a secret, at the addresses of these names.
fn of_secret(secret: &Path, names: &[String]) -> anyhow::Result<Ticket> {
    let founder = Founder::from_secret(&read_secret(secret)?);
    let (mut addresses, mut problems) = (Vec::new(), Vec::new());
    for name in names {
        match name.to_socket_addrs() {
            Ok(found) => addresses.extend(found.map(Address::from)),
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    if addresses.is_empty() {
        bail!("none of these is known; name HOST:PORT where a peer is:\n  {}", problems.join("\n  "));
    }
    Ok(founder.ticket(addresses))
}
