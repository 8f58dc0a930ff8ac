//! Checkpoints: safetensors files of weights, and of all that training goes on from.

use std::path::Path;
use std::sync::OnceLock;

use nettorrent_engine::checkpoint::{MODEL_FILE, Progress, load, load_weights, save, save_weights};
use nettorrent_engine::job::build_network;
use nettorrent_engine::model::{Layout, zoo};
use nettorrent_engine::optimizer::{Optimizer, OptimizerSpec};

use crate::target::Target;
use crate::targets::files::{with_folder, write};

/// That of a small network, whose weights are read.
fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let spec = zoo::describe("mlp:3", Some(&[2, 2, 1]), Some(2)).expect("it is in the zoo");
        build_network("mlp", &spec).expect("it can be built").layout()
    })
}

fn values() -> Vec<f32> {
    (0..layout().n_values()).map(|k| k as f32 / 4.0).collect()
}

fn plain(error: &dyn std::fmt::Display, folder: &Path) -> String {
    error.to_string().replace(&folder.display().to_string(), "")
}

/// A file of weights, from whatever program.
pub(super) const WEIGHTS: Target = Target {
    name: "weights",
    about: "a safetensors file of weights",
    seeds: || {
        let folder = tempfile::tempdir().expect("a folder for a moment");
        let path = folder.path().join("weights.safetensors");
        save_weights(&path, layout(), &values()).expect("weights can be written");
        vec![std::fs::read(path).expect("they were written")]
    },
    words: &[
        "\"dtype\"",
        "\"F32\"",
        "\"F16\"",
        "\"BF16\"",
        "\"F64\"",
        "\"shape\"",
        "\"data_offsets\"",
        "__metadata__",
        "[",
        "]",
        ",",
    ],
    read: |input| {
        with_folder(|folder| {
            let path = folder.join("weights.safetensors");
            write(&path, &with_header_len(input));
            match load_weights(&path, layout()) {
                Err(error) => plain(&error, folder),
                Ok(values) => {
                    let again = folder.join("again.safetensors");
                    save_weights(&again, layout(), &values).expect("weights can be written");
                    let read = load_weights(&again, layout()).expect("what was written can be read");
                    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
                    assert_eq!(bits(&read), bits(&values), "they are others when they are written");
                    "weights".to_owned()
                }
            }
        })
    },
    most_bytes: 1 << 20,
    times_input: 64,
    n_quick: 3_000,
};

/// Half of the inputs, with the length of the header that it has, or hardly any would be looked into.
fn with_header_len(input: &[u8]) -> Vec<u8> {
    let mut bytes = input.to_vec();
    if let (0, Some(end)) = (input.len() % 2, input.iter().take(4096).rposition(|&byte| byte == b'}')) {
        let len = (end + 1).saturating_sub(8) as u64;
        bytes.iter_mut().zip(len.to_le_bytes()).for_each(|(byte, len)| *byte = len);
    }
    bytes
}

/// A folder with a checkpoint, one file of which is the input: the first byte says which.
pub(super) const CHECKPOINTS: Target = Target {
    name: "checkpoints",
    about: "a checkpoint's folder",
    seeds: || {
        let seed = |which: u8, file: &str| {
            let (_, bytes) = checkpoint().iter().find(|(name, _)| name == file).expect("it was written");
            [&[which], &bytes[..]].concat()
        };
        vec![seed(0, MODEL_FILE), seed(1, STATE_FILE)]
    },
    words: &["\"dtype\"", "\"shape\"", "\"data_offsets\"", "__metadata__", "\\\"", "null", "-1", "1e999"],
    read: |input| {
        with_folder(|folder| {
            let (which, content) = input.split_first().unwrap_or((&0, &[]));
            let changed = if which % 2 == 0 { MODEL_FILE } else { STATE_FILE };
            let changed_bytes = with_header_len(content);
            // Without check sums, or hardly any would be looked into; checkpoints of earlier versions have none.
            let has_sums = which % 4 >= 2;
            for (name, bytes) in checkpoint().iter().filter(|(name, _)| has_sums || name.ends_with(".safetensors")) {
                write(&folder.join(name), if name == changed { &changed_bytes } else { bytes });
            }
            match load(folder, layout(), &mut optimizer()) {
                Err(error) => plain(&error, folder),
                Ok((values, _)) => {
                    assert_eq!(values.len(), layout().n_values());
                    "a checkpoint".to_owned()
                }
            }
        })
    },
    most_bytes: 1 << 20,
    times_input: 64,
    n_quick: 1_500,
};

const STATE_FILE: &str = "state.safetensors";

fn optimizer() -> Optimizer {
    Optimizer::new(OptimizerSpec::default(), layout().n_params())
}

/// The files of a checkpoint, by name. It is written once: to be certain that it is on the disk takes long.
fn checkpoint() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let outer = tempfile::tempdir().expect("a folder for a moment");
        let folder = outer.path().join("checkpoint");
        save(&folder, layout(), &values(), &optimizer(), &Progress::default()).expect("a checkpoint can be written");
        let entries = std::fs::read_dir(&folder).expect("it was written").flatten();
        let file = |entry: std::fs::DirEntry| {
            (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).expect("it can be read"))
        };
        entries.map(file).collect()
    })
}
