//! What a run goes on from.

use std::path::{Path, PathBuf};

use nettorrent_session::run_folder::RunFolder;

use crate::notice::Notice;

/// The checkpoint to go on from: the one that was asked for, or the newest that is whole.
pub(crate) fn resume_point(run: &RunFolder, asked: Option<&Path>, notice: &Notice) -> anyhow::Result<Option<PathBuf>> {
    if asked.is_some() {
        return Ok(run.choose(asked)?);
    }
    let (whole, damaged) = run.newest_whole()?;
    if let Some(whole) = &whole {
        let whole = whole.display();
        damaged.iter().for_each(|problem| notice.tell(&format!("{problem}. The run goes on from {whole}")));
    }
    Ok(whole)
}
