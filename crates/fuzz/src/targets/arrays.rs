//! Data sets as NumPy arrays: one file, a pair of files, an archive.

use std::io::{Cursor, Write};
use std::path::Path;

use nettorrent_engine::data::npy;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::target::Target;
use crate::targets::files::{look_at, with_folder, write};
use crate::targets::tables::few;

const WORDS: &[&str] =
    &["'descr'", "'shape'", "'fortran_order'", "True", "False", "(", ")", ",", "<f8", "<i4", ">f4", "|b1", "|O"];

/// An array of NumPy.
pub(super) const NPY: Target = Target {
    name: "npy",
    about: "a NumPy array",
    seeds: || vec![array("<f4", "(2, 1)", &[0; 8]), array("|u1", "(3,)", &[1, 2, 3]), array("<i8", "(1,)", &[0; 8])],
    words: WORDS,
    read: |input| match npy::parse(Path::new("array.npy"), input) {
        Err(error) => error.to_string(),
        Ok(array) => match array.floats() {
            Err(problem) => problem,
            Ok(values) => {
                assert_eq!(values.len(), array.dimensions.iter().product::<usize>(), "as many as the header says");
                format!("an array of {} dimensions", few(array.dimensions.len()))
            }
        },
    },
    most_bytes: 1 << 20,
    times_input: 64,
    n_quick: 20_000,
};

/// Samples and what is asked about them.
pub(super) const ARRAYS: Target = Target {
    name: "arrays",
    about: "NumPy arrays of samples and labels, one after the other",
    seeds: || sets().map(|set| set.concat()).to_vec(),
    words: WORDS,
    read: |input| {
        with_folder(|folder| {
            // Where a second one begins, if one does.
            let begins = |at: &usize| *at > 0 && input[*at..].starts_with(MAGIC);
            let (inputs, answers) = input.split_at((0..input.len()).find(begins).unwrap_or(input.len()));
            write(&folder.join("x.npy"), inputs);
            write(&folder.join("y.npy"), answers);
            look_at("format = \"npy\"", folder)
        })
    },
    most_bytes: 4 << 20,
    times_input: 200,
    n_quick: 1_000,
};

/// The same in an archive.
pub(super) const ARCHIVES: Target = Target {
    name: "archives",
    about: "an archive of NumPy arrays, plain or compressed",
    seeds: || {
        let methods = [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated];
        methods.into_iter().flat_map(|method| sets().map(|set| archive(method, &set))).collect()
    },
    words: &["PK\x01\x02", "PK\x03\x04", "PK\x05\x06", "PK\x06\x07", "x.npy", "y.npy", "../x.npy"],
    read: |input| {
        with_folder(|folder| {
            write(&folder.join("set.npz"), input);
            look_at("format = \"npy\"", &folder.join("set.npz"))
        })
    },
    most_bytes: 4 << 20,
    // As much as a compressed stream can become, and then as floats.
    times_input: 5000,
    n_quick: 1_000,
};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Sets of samples and their labels, or numbers, or labels at each place.
fn sets() -> [[Vec<u8>; 2]; 3] {
    [
        [array("<f4", "(8, 2)", &[0; 64]), array("|u1", "(8,)", &[0, 1, 0, 1, 0, 1, 0, 1])],
        [array("|u1", "(4, 2, 2, 1)", &[7; 16]), array("<f8", "(4, 1)", &[0; 32])],
        [array("|u1", "(4, 2, 2)", &[9; 16]), array("|i1", "(4, 2, 2)", &[1; 16])],
    ]
}

fn array(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    [MAGIC, &[1, 0], &(header.len() as u16).to_le_bytes(), header.as_bytes(), values].concat()
}

fn archive(method: zip::CompressionMethod, [inputs, answers]: &[Vec<u8>; 2]) -> Vec<u8> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in [("x.npy", inputs), ("y.npy", answers)] {
        archive
            .start_file(name, SimpleFileOptions::default().compression_method(method))
            .and_then(|()| Ok(archive.write_all(bytes)?))
            .expect("an archive in memory takes whatever is written");
    }
    archive.finish().expect("an archive in memory").into_inner()
}
