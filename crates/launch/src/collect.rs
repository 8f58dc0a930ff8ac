//! Brings what a peer learnt into a run's folder here.

use std::fs;
use std::path::Path;

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

/// Copies the newest checkpoint of a run that can be read here, and what belongs to it; whether there is a whole one.
pub(crate) fn copy_newest(from: &Path, run: &RunFolder) -> Result<bool, LaunchError> {
    // Whoever has not come so far has nothing, and damaged checkpoints are nothing either.
    let Ok((Some(newest), _)) = RunFolder::open(from).and_then(|from| from.newest_whole()) else { return Ok(false) };
    let target = run.path().join("checkpoints").join(newest.file_name().unwrap_or_default());
    fs::create_dir_all(&target).map_err(LaunchError::file("make", &target))?;
    for entry in fs::read_dir(&newest).map_err(LaunchError::file("read", &newest))?.flatten() {
        copy(&entry.path(), &target.join(entry.file_name()))?;
    }
    for name in ["model.toml", "tokenizer.json"] {
        if from.join(name).exists() {
            copy(&from.join(name), &run.path().join(name))?;
        }
    }
    Ok(run.newest_whole()?.0.is_some())
}

fn copy(from: &Path, to: &Path) -> Result<(), LaunchError> {
    fs::copy(from, to).map(drop).map_err(LaunchError::file("write", to))
}
