//! Rows of tables that are no part of a set.

use std::path::Path;

use super::columns::Roles;
use super::csv::Header;
use super::outside::{OutsideReader, OutsideSample};
use super::parts::has_extension;
use super::{DataError, csv, jsonl, parquet};

/// Reads tables that have the columns of a set; what the set asks for may be missing.
#[derive(Debug)]
pub(crate) struct OutsideTable {
    /// The set's columns.
    pub(crate) columns: Roles,
    /// Whether the first line of text names them.
    pub(crate) header: Header,
}

impl OutsideReader for OutsideTable {
    fn read(&self, path: &Path) -> Result<Vec<OutsideSample>, DataError> {
        let table = if has_extension(path, &jsonl::EXTENSIONS) {
            jsonl::read_outside(path, &self.columns)?
        } else if has_extension(path, &parquet::EXTENSIONS) {
            parquet::read_outside(path, &self.columns)?
        } else {
            csv::read_outside(path, &self.columns, self.header)?
        };
        Ok(table.into_outside())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::data::npy::tests::file;
    use crate::data::source::open;
    use crate::data::{Dataset, OutsideSample, Split, Tone, parquet};

    fn set(spec: &str, path: &Path) -> Box<dyn Dataset> {
        open(&toml::from_str(spec).unwrap(), Some(path), Split::Test, 1).unwrap()
    }

    fn sample(line: u64, inputs: &[f32]) -> OutsideSample {
        OutsideSample { line: Some(line), inputs: inputs.to_vec(), position: None }
    }

    #[test]
    fn rows_are_prepared_as_the_set_is_whatever_file_they_are_in() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let rows: String = (0..20).map(|i| format!("{},{},{}\n", i % 4, ["x", "y"][i % 2], 10 * (i % 4))).collect();
        let table = write("table.csv", &format!("a,kind,b\n{rows}"));
        let plain = set("label = \"kind\"\nstandardise = false\nmean = [1, 10]\ndeviation = [2, 20]", &table);
        let expected = [sample(2, &[0.5, 0.5]), sample(3, &[-0.5, -0.5])];
        for text in ["a,b\n2,20\n0,0\n", "b;note;a\n20;hello;2\n0;;0\n", "kind,b,a\n?,20,2\nx,0,0"] {
            assert_eq!(plain.read_samples(&write("new.csv", text), Tone::AsIs).unwrap(), expected, "{text}");
        }
        let lines = "{\"features\": [2, 20]}\n{\"features\": [0, 0], \"label\": \"x\"}";
        let first = expected.clone().map(|row| OutsideSample { line: row.line.map(|line| line - 1), ..row });
        for (name, text) in [("new.jsonl", lines), ("new.txt", "2,20\n0,0\n"), ("new.csv", "2,x,20\n0,?,0")] {
            assert_eq!(plain.read_samples(&write(name, text), Tone::AsIs).unwrap(), first, "{text}");
        }
        for (name, text, answer) in [
            ("new.csv", "a,c\n1,2\n", "the column `b` is missing"),
            ("new.csv", "1\n2\n", "has 1 columns; the model was trained on 2, or 3 with the 1 that it predicts"),
            ("new.csv", "1,2\n3,oops\n", "line 2, column 2"),
            ("new.csv", "", "is empty"),
            ("new.csv", "a,b\n", "no rows"),
            ("new.jsonl", "", "holds no rows"),
            ("new.jsonl", "{\"features\": [1]}", "line 1: has 1 features; the model was trained on 2"),
            ("new.jsonl", "{\"a\": 1}", "unknown field `features`"),
            ("new.parquet", "oops", "is no Parquet file"),
        ] {
            let error = plain.read_samples(&write(name, text), Tone::AsIs).unwrap_err().to_string();
            assert!(error.contains(answer) && error.contains(name), "{error}");
        }
        assert!(plain.read_samples(&table, Tone::Inverted).unwrap_err().to_string().contains("pictures"));
    }

    #[test]
    fn parquet_and_arrays_read_rows_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        parquet::tests::write(&path("a.parquet"), &[0, 1, 2, 3].map(|i| (i, 0.5, ["x", "y"][i as usize % 2])));
        let table = set("label = \"text\"\nstandardise = false\ntest_fraction = 0.5", &path("a.parquet"));
        assert_eq!(table.read_samples(&path("a.parquet"), Tone::AsIs).unwrap()[3], sample(4, &[3.0, 0.5]));
        std::fs::write(path("new.csv"), "b,a\n0.25,7\n").unwrap();
        assert_eq!(table.read_samples(&path("new.csv"), Tone::AsIs).unwrap(), [sample(2, &[7.0, 0.25])]);

        let arrays = tempfile::tempdir().unwrap();
        let floats = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        std::fs::write(arrays.path().join("x.npy"), file("<f4", "(4, 2)", &floats(&[1.0; 8]))).unwrap();
        std::fs::write(arrays.path().join("y.npy"), file("|u1", "(4,)", &[0, 0, 1, 1])).unwrap();
        std::fs::write(path("new.csv"), "3,4\n").unwrap();
        let rows = set("standardise = false", arrays.path());
        assert_eq!(rows.read_samples(&path("new.csv"), Tone::AsIs).unwrap(), [sample(1, &[3.0, 4.0])]);
    }
}
