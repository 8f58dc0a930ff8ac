//! Where a swarm's ticket comes from. Other users of a machine see a program's arguments, so there are ways besides them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail};
use clap::Args;
use nettorrent_net::ticket::{Ticket, TicketError};
use nettorrent_session::run_folder::RunFolder;

const VARIABLE: &str = "NETTORRENT_TICKET";
/// Tickets are far shorter.
const MAX_LEN: u64 = 64 << 10;

/// The ticket of commands that need one.
#[derive(Args)]
pub(crate) struct TicketArguments {
    /// The ticket that `nettorrent start` has printed, the folder of a run that takes part, or `-` to read it from standard input. Other users of this machine can see a
    /// program's arguments: --ticket-file and NETTORRENT_TICKET keep it from them [default: what NETTORRENT_TICKET says].
    ticket: Option<TicketSource>,
    /// A file that holds the ticket.
    #[arg(long, value_name = "FILE", conflicts_with = "ticket")]
    ticket_file: Option<PathBuf>,
}

impl TicketArguments {
    /// The ticket.
    pub(crate) fn read(&self) -> anyhow::Result<Ticket> {
        match read(self.ticket.as_ref(), self.ticket_file.as_deref())? {
            Some(ticket) => Ok(ticket),
            None => bail!(
                "there is no ticket: name a file that holds it with --ticket-file FILE, say `-` to read it from standard \
                 input, or set {VARIABLE}"
            ),
        }
    }
}

/// An argument that says what the ticket is.
#[derive(Clone, Debug)]
pub(crate) enum TicketSource {
    /// This one.
    Given(Ticket),
    /// `-`: what standard input says.
    Input,
    /// That of the swarm in which this run takes part.
    Run(PathBuf),
}

impl FromStr for TicketSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-" => Ok(Self::Input),
            _ if Path::new(text).is_dir() => Ok(Self::Run(text.into())),
            _ => text.parse().map(Self::Given).map_err(|why: TicketError| match why {
                TicketError::NotATicket => format!("there is no such folder, and {why}"),
                _ => why.to_string(),
            }),
        }
    }
}

/// The ticket by argument, by file or by the environment, if there is one.
pub(crate) fn read(argument: Option<&TicketSource>, file: Option<&Path>) -> anyhow::Result<Option<Ticket>> {
    let (text, whence) = match (argument, file) {
        (Some(TicketSource::Given(ticket)), _) => return Ok(Some(ticket.clone())),
        (Some(TicketSource::Run(run)), _) => {
            return of_run(run).map(Some);
        }
        (Some(TicketSource::Input), _) => (read_text(std::io::stdin())?, "standard input".to_owned()),
        (None, Some(path)) => {
            let shown = path.display().to_string();
            let file = std::fs::File::open(path).with_context(|| format!("cannot read the ticket in {shown}"))?;
            (read_text(file)?, shown)
        }
        (None, None) => match std::env::var(VARIABLE) {
            Ok(text) => (text, VARIABLE.to_owned()),
            Err(_) => return Ok(None),
        },
    };
    let ticket = text.trim().parse().with_context(|| format!("there is no ticket in {whence}"))?;
    Ok(Some(ticket))
}

/// The ticket of the swarm in which a run takes part, or did.
pub(crate) fn of_run(run: &Path) -> anyhow::Result<Ticket> {
    RunFolder::open(run)?.ticket()?.with_context(|| {
        let shown = run.display();
        format!("{shown} has no ticket: it never took part in a swarm, as runs of `nettorrent start` and `nettorrent join` do")
    })
}

fn read_text(source: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    source.take(MAX_LEN).read_to_string(&mut text).context("cannot read the ticket")?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::TicketSource;

    #[test]
    fn what_is_neither_folder_nor_ticket_is_told_so() {
        let why = "runs/nothere".parse::<TicketSource>().unwrap_err();
        assert!(why.starts_with("there is no such folder, and a ticket begins with"), "{why}");
        assert!(matches!("-".parse::<TicketSource>(), Ok(TicketSource::Input)));
        assert!(matches!(".".parse::<TicketSource>(), Ok(TicketSource::Run(_))));
    }
}
