//! Inputs as files, for readers that open them themselves.

use std::fs;
use std::path::Path;

use nettorrent_engine::data::source::{DataSpec, open};
use nettorrent_engine::data::{IGNORED, Split};

/// Writes a file below a folder that is there only as long as this runs, and has it read.
pub(super) fn with_folder(read: impl FnOnce(&Path) -> String) -> String {
    let folder = tempfile::tempdir().expect("a folder for a moment");
    read(folder.path())
}

/// Writes a file and the folders above it.
pub(super) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("room for a folder");
    fs::write(path, bytes).expect("room for a file");
}

/// Opens both parts of a set and has a look at each of their samples.
pub(super) fn look_at(spec: &str, folder: &Path) -> String {
    [Split::Train, Split::Test].map(|split| look_at_part(spec, folder, split)).join(" and ")
}

fn look_at_part(spec: &str, folder: &Path, split: Split) -> String {
    let spec: DataSpec = toml::from_str(spec).expect("a description of data");
    let name = folder.display().to_string();
    // What an error says about where the file lies, is another thing each time.
    let plain = |error: &dyn std::fmt::Display| error.to_string().replace(&name, "");
    let set = match open(&spec, Some(folder), split, 1) {
        Err(error) => return plain(&error),
        Ok(set) => set,
    };
    let all: Vec<usize> = (0..set.len()).collect();
    match set.batch(&all) {
        Err(error) => plain(&error),
        Ok(batch) => {
            assert_eq!(batch.len(), set.len(), "every sample has a label");
            assert!(
                batch.classes().iter().all(|&label| label == IGNORED || (label as usize) < set.classes().len()),
                "of a class that there is"
            );
            assert_eq!(batch.inputs.len(), set.len() * set.shape().iter().product::<usize>(), "all are of one shape");
            format!("samples, {}", if set.len() > 2 { "three" } else { "fewer" })
        }
    }
}
