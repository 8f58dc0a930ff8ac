//! Parquet files: columns of numbers as a table, or a column of text.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::FileReader;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;

use super::columns::{Asked, Heading, Roles};
use super::decoders::{caught, in_one_line};
use super::table::{Cell, Table, TableBuilder};
use super::text::documents::{Documents, Visit, visit_document};
use super::zstd_pages::ZstdFileReader;
use super::{DataError, files, names};

/// How such files are called.
pub(crate) const EXTENSIONS: [&str; 1] = ["parquet"];

/// Whether a file has a column of this name that holds text.
pub(crate) fn has_text(path: &Path, column: &str) -> Result<bool, DataError> {
    let reader = open(path)?;
    Ok(columns(&reader).iter().any(|kind| kind.name() == column && is_text(kind)))
}

/// The texts of one column, each a document.
pub(crate) struct ParquetTexts<'a> {
    /// The files.
    pub(crate) files: &'a [PathBuf],
    /// The column with the texts.
    pub(crate) column: &'a str,
}

impl Documents for ParquetTexts<'_> {
    fn files(&self) -> &[PathBuf] {
        self.files
    }

    fn how(&self) -> &str {
        self.column
    }

    fn visit(&self, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut is_first = true;
        for path in self.files {
            let reader = open(path)?;
            for (number, row) in rows(path, &reader, Some(self.column))? {
                let row = row?;
                let text = match row.get_column_iter().next() {
                    Some((_, Field::Str(text))) => text.as_str(),
                    Some((_, Field::Null)) => continue,
                    _ => {
                        let problem =
                            format!("row {number}: the column `{}` is no text; set `text` to one that is", self.column);
                        return Err(DataError::malformed(path, problem));
                    }
                };
                if visit_document(path, text.as_bytes(), &mut is_first, visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads the rows of some files, whose columns must be the same.
pub(crate) fn read_table(paths: &[PathBuf], asked: Asked<'_>) -> Result<Table, DataError> {
    read_with(paths, |heading| match heading.names.len() {
        0 | 1 => Err("has one column; expected at least one of numbers and one of labels".to_owned()),
        _ => TableBuilder::new(heading, asked, "row"),
    })
}

/// Reads the features of a file that is no part of the table with these columns.
pub(crate) fn read_outside(path: &Path, learnt: &Roles) -> Result<Table, DataError> {
    read_with(&[path.to_owned()], |heading| TableBuilder::outside(learnt, heading, "row"))
}

fn read_with(
    paths: &[PathBuf],
    begin: impl FnOnce(Heading) -> Result<TableBuilder, String>,
) -> Result<Table, DataError> {
    let first = &paths[0];
    let names =
        |reader: &ZstdFileReader| columns(reader).iter().map(|kind| kind.name().to_owned()).collect::<Vec<String>>();
    let expected = names(&open(first)?);
    let malformed = |path: &Path, problem: String| DataError::malformed(path, problem);
    let heading = Heading { names: expected.clone(), is_named: true };
    let mut builder = begin(heading).map_err(|problem| malformed(first, problem))?;
    for path in paths {
        let reader = open(path)?;
        if names(&reader) != expected {
            return Err(malformed(path, format!("has other columns than {}", first.display())));
        }
        for (number, row) in rows(path, &reader, None)? {
            let row = row?;
            let cells: Result<Vec<Cell<'_>>, String> =
                row.get_column_iter().map(|(name, field)| cell(name, field)).collect();
            cells
                .and_then(|cells| builder.row(cells.into_iter(), number))
                .map_err(|problem| malformed(path, problem))?;
        }
    }
    builder.finish().map_err(|problem| malformed(first, problem))
}

fn cell<'a>(name: &str, field: &'a Field) -> Result<Cell<'a>, String> {
    Ok(match field {
        Field::Null => Cell::Text("null"),
        Field::Bool(value) => Cell::Number(f64::from(u8::from(*value))),
        Field::Byte(value) => Cell::Number(f64::from(*value)),
        Field::Short(value) => Cell::Number(f64::from(*value)),
        Field::Int(value) => Cell::Number(f64::from(*value)),
        Field::Long(value) => Cell::Number(*value as f64),
        Field::UByte(value) => Cell::Number(f64::from(*value)),
        Field::UShort(value) => Cell::Number(f64::from(*value)),
        Field::UInt(value) => Cell::Number(f64::from(*value)),
        Field::ULong(value) => Cell::Number(*value as f64),
        Field::Float16(value) => Cell::Number(f64::from(*value)),
        Field::Float(value) => Cell::Number(f64::from(*value)),
        Field::Double(value) => Cell::Number(*value),
        Field::Str(text) => Cell::Text(text),
        _ => return Err(format!("the column `{name}` holds neither numbers nor text; write the file without it")),
    })
}

fn open(path: &Path) -> Result<ZstdFileReader, DataError> {
    let (file, _) = files::open(path)?;
    let reader = guarded(|| ZstdFileReader::new(file));
    reader.map_err(|problem| {
        DataError::malformed(path, format!("is no Parquet file that can be read ({problem}); get it again"))
    })
}

/// What the library says, also where it panics: at some damaged files it does, since it checks less than it relies on.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    match caught(read) {
        Some(result) => result.map_err(|error| in_one_line(&error.to_string())),
        None => Err("it is damaged".to_owned()),
    }
}

/// The columns of a file, with those that hold others as one.
fn columns(reader: &ZstdFileReader) -> &[Arc<Type>] {
    reader.metadata().file_metadata().schema().get_fields()
}

fn is_text(kind: &Type) -> bool {
    kind.is_primitive() && kind.get_physical_type() == parquet::basic::Type::BYTE_ARRAY
}

/// The rows of a file with their numbers from 1; ends with the first that cannot be read.
struct Rows<'a> {
    path: &'a Path,
    rows: Option<RowIter<'a>>,
    number: u64,
}

impl Iterator for Rows<'_> {
    type Item = (u64, Result<Row, DataError>);

    fn next(&mut self) -> Option<Self::Item> {
        let rows = self.rows.as_mut()?;
        self.number += 1;
        match guarded(|| rows.next().transpose()) {
            Ok(row) => row.map(|row| (self.number, Ok(row))),
            Err(problem) => {
                self.rows = None;
                Some((self.number, Err(damaged(self.path, &problem))))
            }
        }
    }
}

fn damaged(path: &Path, problem: &str) -> DataError {
    // What the library says of a compression that it was built without.
    let advice =
        if problem.contains("Disabled feature") { "write it again with snappy, gzip or zstd" } else { "get it again" };
    DataError::malformed(path, format!("cannot be read ({problem}); {advice}"))
}

/// The rows of a file: all columns, or the one that is named.
fn rows<'a>(path: &'a Path, reader: &'a ZstdFileReader, column: Option<&str>) -> Result<Rows<'a>, DataError> {
    let projection = match column {
        None => None,
        Some(name) => {
            let all = columns(reader);
            let Some(kind) = all.iter().find(|kind| kind.name() == name) else {
                let known: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
                return Err(DataError::malformed(path, names::unknown("column", name, &known)));
            };
            let root = reader.metadata().file_metadata().schema().name();
            let group = guarded(|| Type::group_type_builder(root).with_fields(vec![kind.clone()]).build());
            Some(group.map_err(|problem| damaged(path, &problem))?)
        }
    };
    let rows = guarded(|| reader.get_row_iter(projection)).map_err(|problem| damaged(path, &problem))?;
    Ok(Rows { path, rows: Some(rows), number: 0 })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::ops::ControlFlow;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use parquet::basic::{Compression, GzipLevel};
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int32Type};
    use parquet::errors::ParquetError;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;

    use super::{ParquetTexts, guarded, has_text, read_table};
    use crate::data::columns::Asked;
    use crate::data::text::documents::{Documents, Piece};
    use crate::data::{DataError, Dataset};
    use crate::rng::Rng;

    /// A file with a column of whole numbers, one of fractions and one of text.
    pub(crate) fn write(path: &Path, rows: &[(i32, f64, &str)]) {
        let schema = "message s { required int32 a; required double b; required binary text (UTF8); }";
        let schema = Arc::new(parse_message_type(schema).unwrap());
        // Both ways to compress that are read, by the number of rows.
        let compression =
            if rows.len().is_multiple_of(2) { Compression::SNAPPY } else { Compression::GZIP(GzipLevel::default()) };
        let properties = WriterProperties::builder().set_compression(compression).build();
        let file = std::fs::File::create(path).unwrap();
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<i32> = rows.iter().map(|row| row.0).collect();
        column.typed::<Int32Type>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<f64> = rows.iter().map(|row| row.1).collect();
        column.typed::<DoubleType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = rows.iter().map(|row| ByteArray::from(row.2)).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }

    /// Files with pages compressed with zstd, of versions 1 and 2; the second lacks a text. `make_parquet.py` beside them has made them.
    const ZSTD: [&[u8]; 2] = [
        include_bytes!("../../tests/fixtures/zstd-v1.parquet"),
        include_bytes!("../../tests/fixtures/zstd-v2.parquet"),
    ];

    fn texts(files: &[PathBuf], column: &str) -> Result<String, DataError> {
        let mut all = String::new();
        ParquetTexts { files, column }.visit(&mut |piece| {
            match piece {
                Piece::Boundary => all.push('|'),
                Piece::Text(_, text) => all.push_str(text),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    #[test]
    fn columns_are_a_table_or_text() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a.parquet", "b.parquet"].map(|name| folder.path().join(name));
        write(&paths[0], &[(1, 0.5, "x"), (2, 1.5, "y")]);
        write(&paths[1], &[(3, 2.5, "x")]);
        assert!(has_text(&paths[0], "text").unwrap() && !has_text(&paths[0], "b").unwrap());
        assert_eq!(texts(&paths, "text").unwrap(), "x|y|x");
        let table = read_table(&paths, Asked::default()).unwrap();
        let classes = table.classes();
        let set = table.into_set(&paths, classes).unwrap();
        assert_eq!((set.shape(), set.labels()), ([2].as_slice(), [0, 1, 0].as_slice()));
        assert_eq!(set.batch(&[1, 2]).unwrap().inputs, [2.0, 1.5, 3.0, 2.5]);
        let error = texts(&paths, "txt").unwrap_err().to_string();
        assert!(error.contains("unknown column `txt`; known: a, b, text"), "{error}");
        assert!(texts(&paths, "a").unwrap_err().to_string().contains("row 1: the column `a` is no text"));
    }

    #[test]
    fn pages_may_be_compressed_with_zstd() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["v1.parquet", "v2.parquet"].map(|name| folder.path().join(name));
        paths.iter().zip(ZSTD).for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let names: Vec<&str> = (0..40).map(|k| ["north", "south"][k % 2]).collect();
        assert_eq!(texts(&paths[..1], "text").unwrap(), names.join("|"));
        let without_one: Vec<&str> = [&names[..7], &names[8..]].concat();
        assert_eq!(texts(&paths[1..], "text").unwrap(), without_one.join("|"));
        let table = read_table(&paths[..1], Asked::default()).unwrap();
        let classes = table.classes();
        let set = table.into_set(&paths[..1], classes).unwrap();
        assert_eq!((set.len(), set.labels()[..3].to_vec()), (40, vec![0, 1, 0]));
        assert_eq!(set.batch(&[24, 25, 39]).unwrap().inputs, [24.0, 24.5, 25.0, 25.5, 39.0, 39.5]);
        let error = read_table(&paths[1..], Asked::default()).unwrap_err().to_string();
        assert!(error.contains("row 8, column 3 (`text`): the value is missing"), "{error}");
    }

    #[test]
    fn a_damaged_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.parquet")];
        write(&paths[0], &[(1, 0.5, "x"), (2, 1.5, "y")]);
        let whole = std::fs::read(&paths[0]).unwrap();
        for bytes in [&whole[..whole.len() / 2], b"", b"PAR1", &whole[4..]] {
            std::fs::write(&paths[0], bytes).unwrap();
            let error = read_table(&paths, Asked::default()).unwrap_err().to_string();
            assert!(error.contains("a.parquet: "), "{error}");
        }
    }

    #[test]
    fn a_place_that_cannot_be_is_refused_before_the_library_panics() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.parquet")];
        // Where the first column begins: at 4, which becomes -5. In version 1 that is its dictionary.
        for (whole, place) in ZSTD.into_iter().zip([[0x26_u8, 8, 0x29, 0x2c], [0x26, 8, 0x49, 0x1c]]) {
            let mut bytes = whole.to_vec();
            let at = bytes.windows(4).position(|window| window == place).unwrap();
            bytes[at + 1] = 9;
            std::fs::write(&paths[0], bytes).unwrap();
            let error = read_table(&paths, Asked::default()).unwrap_err().to_string();
            assert!(error.contains("the place of a column is damaged); get it again"), "{error}");
        }
    }

    #[test]
    fn what_the_library_says_is_cut() {
        let long = || -> Result<(), ParquetError> { Err(ParquetError::General("[1, 2]\n".repeat(9999))) };
        let told = guarded(long).unwrap_err();
        assert!(told.chars().count() == 301 && told.ends_with('…') && !told.contains('\n'), "{told}");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.parquet")];
        write(&paths[0], &[(1, 0.5, "x"), (2, 1.5, "y"), (3, 2.5, "x")]);
        let wholes = [std::fs::read(&paths[0]).unwrap(), ZSTD[0].to_vec(), ZSTD[1].to_vec()];
        for seed in 0..3000 {
            let mut rng = Rng::new(seed);
            let mut bytes = wholes[seed as usize % wholes.len()].clone();
            for _ in 0..rng.below(6) {
                let at = rng.below(bytes.len());
                bytes[at] = rng.next_u64() as u8;
            }
            std::fs::write(&paths[0], bytes).unwrap();
            if let Ok(table) = read_table(&paths, Asked::default()) {
                assert!(table.n_rows() > 0, "seed {seed}");
            }
            let _ = texts(&paths, "text");
        }
    }
}
