//! Data sets as tables: comma-separated text, JSON lines and IDX.

use std::path::Path;

use nettorrent_engine::data::csv::{self, Asked, Header};
use nettorrent_engine::data::{idx, jsonl};

use crate::target::Target;

/// A table as text.
pub(super) const CSV: Target = Target {
    name: "csv",
    about: "a table as comma-separated text",
    seeds: || {
        let tables =
            ["a,b,class\n1,2,x\n3,4.5,y\n", "1;2;0\n3;4;1\n", "\"p,q\",r\n\"1\",2\n", "\u{feff}u,v\r\n1e3,n/a\r\n"];
        tables.map(|table| table.as_bytes().to_vec()).to_vec()
    },
    words: &["\"", ",", "\r\n", "nan", "inf", "1e400", "\u{feff}", ";", "\t"],
    read: |input| {
        let header = [Header::Auto, Header::No, Header::Yes][input.len() % 3];
        match csv::parse(Path::new("table.csv"), input, Asked::default(), header) {
            Err(error) => error.to_string(),
            Ok(table) => format!("{} classes of {} numbers", few(table.classes().len()), few(table.n_features())),
        }
    },
    most_bytes: 1 << 20,
    times_input: 200,
    n_quick: 10_000,
};

pub(super) fn few(n: usize) -> &'static str {
    ["no", "one", "two", "many"][n.min(3)]
}

/// An array of bytes, perhaps compressed.
pub(super) const IDX: Target = Target {
    name: "idx",
    about: "an IDX file, plain or compressed with gzip",
    seeds: || {
        let array = |dimensions: &[u32], values: &[u8]| {
            let sizes = dimensions.iter().flat_map(|size| size.to_be_bytes());
            [0, 0, 8, dimensions.len() as u8].into_iter().chain(sizes).chain(values.iter().copied()).collect()
        };
        vec![array(&[5], &[3; 5]), array(&[2, 3, 4], &[9; 24])]
    },
    words: &["\0\0\x08\x01", "\x1f\u{8b}"],
    read: |input| match idx::parse(Path::new("array"), input) {
        Err(error) => error.to_string(),
        Ok(array) => {
            assert_eq!(array.values.len(), array.dimensions.iter().product::<usize>(), "as many as the header says");
            format!("an array of {} dimensions", "i".repeat(array.dimensions.len()))
        }
    },
    most_bytes: 1 << 20,
    // As much as a compressed stream can become.
    times_input: 1100,
    n_quick: 20_000,
};

/// Rows as JSON lines.
pub(super) const JSONL: Target = Target {
    name: "jsonl",
    about: "a table as JSON lines",
    seeds: || {
        let tables = [
            "{\"features\": [1, 2.5], \"label\": \"a\"}\n{\"features\": [-1e3, 0], \"label\": \"b\"}\n",
            "{\"label\": [0, 1, true], \"features\": [3]}\n",
        ];
        tables.map(|table| table.as_bytes().to_vec()).to_vec()
    },
    words: &["\"features\"", "\"label\"", "[", "]", "{", "}", "null", "1e999", "\n", ","],
    read: |input| {
        let target = [csv::Target::Class, csv::Target::Labels, csv::Target::Numbers][input.len() % 3];
        match jsonl::parse_table(Path::new("rows.jsonl"), input, Asked { label: None, target }) {
            Err(error) => error.to_string(),
            Ok(table) => format!("{} classes of {} numbers", few(table.classes().len()), few(table.n_features())),
        }
    },
    most_bytes: 1 << 20,
    times_input: 400,
    n_quick: 10_000,
};
