//! `members`: who belongs to a swarm. Its owner removes members and replaces its ticket.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use nettorrent_net::members::Members;
use nettorrent_net::policy::OwnerKey;
use nettorrent_net::service::ListedMember;
use nettorrent_net::ticket::Ticket;
use nettorrent_net::{Load, block_on};
use nettorrent_session::date::Date;
use nettorrent_session::run_folder::RunFolder;

use crate::asked_swarm::AskedSwarm;
use crate::output::print_line;
use crate::ticket_limits::TicketLimitArguments;
use crate::transport::of_ticket;

/// Arguments of `members`.
#[derive(Args)]
pub(crate) struct MembersArguments {
    #[command(flatten)]
    swarm: AskedSwarm,
    /// Remove this member for good: its number, or the beginning of its key. Can be said several times. The ticket is replaced, too.
    #[arg(long, value_name = "PEER")]
    remove: Vec<String>,
    /// Replace the swarm's keys and its ticket: earlier tickets let nobody in any more. Members go on undisturbed.
    #[arg(long)]
    rotate: bool,
    /// The run of whoever started the swarm, which holds its owner's key [default: the one in runs/ that fits the ticket].
    #[arg(long, value_name = "RUN")]
    run: Option<PathBuf>,
    #[command(flatten)]
    limits: TicketLimitArguments,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs `members`.
pub(crate) fn members(arguments: &MembersArguments) -> anyhow::Result<ExitCode> {
    let ticket = arguments.swarm.ticket.read()?;
    let encryption = arguments.swarm.reach.encryption();
    let changes = arguments.rotate || !arguments.remove.is_empty();
    // Said before anybody is asked.
    let owner = changes.then(|| owner_key(arguments, &ticket)).transpose()?;
    block_on(Load { n_processes: 1, n_bytes: 0 }, async {
        let members = Members::ask(of_ticket(&ticket), &ticket, encryption, arguments.swarm.reach.discover).await?;
        match &owner {
            Some(owner) => amend(arguments, &members, owner).await?,
            None => list(&members, arguments.json)?,
        }
        anyhow::Ok(ExitCode::SUCCESS)
    })?
}

fn owner_key(arguments: &MembersArguments, ticket: &Ticket) -> anyhow::Result<OwnerKey> {
    match &arguments.run {
        Some(run) => Ok(RunFolder::open(run)?.owner_key()?),
        None => RunFolder::find_owner_key(&ticket.owner).context(
            "only the swarm's owner may do this, and no run in runs/ has its key: say where the run is that was started with \
             `nettorrent start`, with --run RUN",
        ),
    }
}

async fn amend(arguments: &MembersArguments, members: &Members, owner: &OwnerKey) -> anyhow::Result<()> {
    let removed: Vec<&ListedMember> =
        arguments.remove.iter().map(|which| members.find(which)).collect::<Result<_, _>>()?;
    let keys: Vec<_> = removed.iter().map(|member| member.key).collect();
    let ticket = members.amend(owner, &keys, arguments.limits.limits()).await?;
    if arguments.json {
        let removed: Vec<_> = removed.iter().map(|member| member.entry()).collect();
        print_line!("{}", serde_json::json!({ "ticket": ticket.to_string(), "removed": removed }));
        return Ok(());
    }
    removed.iter().for_each(|member| print_line!("Removed {member}."));
    let limits = arguments.limits.text();
    print_line!("Earlier tickets let nobody in any more. The new one lets in whoever has it{limits}:\n\n  {ticket}");
    Ok(())
}

fn list(members: &Members, json: bool) -> anyhow::Result<()> {
    if json {
        let members: Vec<_> = members.members().iter().map(ListedMember::entry).collect();
        print_line!("{}", serde_json::to_string_pretty(&members)?);
        return Ok(());
    }
    let width = members.members().iter().map(|member| member.address.to_string().len()).max().unwrap_or(0);
    members.members().iter().for_each(|member| print_line!("{}", line(member, width)));
    Ok(())
}

/// A member in one line, with so much room for its address.
fn line(member: &ListedMember, width: usize) -> String {
    let date = |seconds| Date::at(seconds).map_or_else(|| "?".to_owned(), |date| date.text());
    let ListedMember { peer, key, address, since, expires } = member;
    let (name, address) = (peer.to_string(), address.to_string());
    format!("{name:<9} {address:<width$}  key {key}  since {}  certificate until {} UTC", date(*since), date(*expires))
}
