//! Brings what a peer learnt into a run's folder here.

use nettorrent_session::RunFolder;

use crate::error::LaunchError;
use crate::script;
use crate::shell::Shell;

/// Fetches a peer's newest checkpoint and what belongs to it; whether it is whole.
pub(crate) fn collect(shell: &Shell, host: &str, folder: &str, run: &RunFolder) -> Result<bool, LaunchError> {
    // Names that lead out of the folder are left out.
    let mut unpack = |archive: &mut dyn std::io::Read| tar::Archive::new(archive).unpack(run.path());
    shell.read(host, &script::archive(folder), &mut std::io::empty(), &mut unpack)?;
    Ok(run.newest_whole()?.0.is_some())
}
