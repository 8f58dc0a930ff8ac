//! Puts a data set that is complete under its final name, in one step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nettorrent_files::PartialFolder;

/// Puts the files in place of what is there, without the outer folder that many archives have.
pub(crate) fn install(folder: PartialFolder) -> io::Result<()> {
    let outer = only_folder_in(folder.contents())?;
    let source = outer.unwrap_or_else(|| folder.contents().to_owned());
    folder.replace_by(&source)
}

/// The folder that holds everything else, if there is just one thing and it is a folder.
fn only_folder_in(folder: &Path) -> io::Result<Option<PathBuf>> {
    let mut entries = fs::read_dir(folder)?;
    let (Some(first), None) = (entries.next(), entries.next()) else { return Ok(None) };
    let first = first?;
    Ok(first.file_type()?.is_dir().then(|| first.path()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use nettorrent_files::PartialFolder;

    use super::install;

    #[test]
    fn an_outer_folder_is_dropped() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("toy");
        let partial = PartialFolder::begin(&target).expect("begun");
        let outer = partial.contents().join("outer");
        fs::create_dir(&outer).expect("created");
        fs::write(outer.join("a"), "a").expect("written");
        install(partial).expect("installed");
        assert!(target.join("a").is_file());
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }
}
