//! `peer`: one process of a swarm on this machine.

use std::io::{BufReader, IsTerminal};
use std::process::ExitCode;

use anyhow::bail;
use nettorrent_session::local_peer::run_local_peer;
use nettorrent_session::peer_event::Ending;

/// Runs `peer`.
pub(crate) fn peer() -> anyhow::Result<ExitCode> {
    if std::io::stdin().is_terminal() {
        bail!("`nettorrent peer` is started by `nettorrent train --peers N`, which tells it what to do");
    }
    match run_local_peer(BufReader::new(std::io::stdin()), &mut std::io::stdout())? {
        Some(Ending::Failed(_)) => Ok(ExitCode::FAILURE),
        Some(Ending::Finished | Ending::Left) | None => Ok(ExitCode::SUCCESS),
    }
}
