//! Tables as comma-separated text: columns of numbers, and columns with what is asked about them.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};
use serde::{Deserialize, Serialize};

use super::columns::{Heading, Roles};
use super::table::{Cell, TableBuilder};
use super::{DataError, files};

pub use super::columns::{Asked, Column, Columns, Target};
pub use super::table::Table;

/// Whether the first line names the columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Header {
    /// It does if none of its cells is a number.
    #[default]
    Auto,
    /// It does not.
    No,
    /// It does.
    Yes,
}

/// Reads one file.
pub fn read(path: &Path, asked: Asked<'_>, header: Header) -> Result<Table, DataError> {
    parse(path, &files::read(path)?, asked, header)
}

/// Reads the features of a file that is no part of the table with these columns.
pub(crate) fn read_outside(path: &Path, learnt: &Roles, header: Header) -> Result<Table, DataError> {
    parse_with(path, &files::read(path)?, header, |heading| TableBuilder::outside(learnt, heading, "line"))
}

/// Reads the text of one file; `path` is for the messages only.
pub fn parse(path: &Path, bytes: &[u8], asked: Asked<'_>, header: Header) -> Result<Table, DataError> {
    parse_with(path, bytes, header, |heading| match heading.names.len() {
        0 | 1 => {
            Err("has one column; expected at least one of numbers and one of labels, separated by commas".to_owned())
        }
        _ => TableBuilder::new(heading, asked, "line"),
    })
}

/// The same with a table that is begun when the columns are known.
fn parse_with(
    path: &Path,
    bytes: &[u8],
    header: Header,
    begin: impl FnOnce(Heading) -> Result<TableBuilder, String>,
) -> Result<Table, DataError> {
    let mut reader = ReaderBuilder::new()
        .delimiter(delimiter(bytes))
        .has_headers(false)
        // Rows of unequal length are found below, with a message of our own.
        .flexible(true)
        .trim(Trim::All)
        .from_reader(bytes);
    let mut records = reader.records();
    let malformed = |problem: String| DataError::malformed(path, problem);
    let mut next = || records.next().transpose().map_err(|error| malformed(read_problem(&error)));
    let Some(first) = next()? else {
        return Err(malformed("is empty; expected rows of numbers".to_owned()));
    };
    let has_header = match header {
        Header::Auto => !first.iter().any(|cell| cell.parse::<f32>().is_ok()),
        Header::No => false,
        Header::Yes => true,
    };
    let heading = if has_header {
        Heading { names: first.iter().map(ToOwned::to_owned).collect(), is_named: true }
    } else {
        Heading::places(first.len())
    };
    let mut builder = begin(heading).map_err(malformed)?;
    let mut record = if has_header { next()? } else { Some(first) };
    while let Some(row) = record {
        let cells: Vec<Cell<'_>> = row.iter().map(Cell::Text).collect();
        builder.row(cells.into_iter(), line_of(&row, bytes)).map_err(malformed)?;
        record = next()?;
    }
    builder.finish().map_err(malformed)
}

/// The line that a row is on, counted from 1. The reader says where it began to look for the row, which is before the second
/// half of a line's end in two characters, and before empty lines.
fn line_of(row: &StringRecord, bytes: &[u8]) -> u64 {
    let Some(position) = row.position() else { return 0 };
    let rest = bytes.get(position.byte() as usize..).unwrap_or_default();
    let ends = rest.iter().take_while(|byte| b"\r\n".contains(byte));
    position.line() + ends.filter(|&&byte| byte == b'\n').count() as u64
}

/// Whether text is likely to be a table: its lines have the same number of cells, and the first or second line a number.
pub(crate) fn looks_like_table(text: &[u8]) -> bool {
    let delimiter = delimiter(text);
    let mut lines =
        text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).peekable();
    let n_cells = |line: &[u8]| line.split(|&byte| byte == delimiter).count();
    let is_number = |cell: &[u8]| str::from_utf8(cell).is_ok_and(|cell| cell.trim().parse::<f32>().is_ok());
    let has_number = |line: &[u8]| line.split(|&byte| byte == delimiter).any(is_number);
    let Some(first) = lines.next() else { return false };
    let second = lines.peek().copied().unwrap_or(first);
    n_cells(first) > 1
        && (has_number(first) || has_number(second))
        // A quoted cell may hold a separator: some lines may differ, but not most.
        && lines.clone().filter(|line| n_cells(line) == n_cells(first)).count() * 2 >= lines.count()
}

/// The separator that is most frequent in the first line.
fn delimiter(bytes: &[u8]) -> u8 {
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let count = |delimiter: &u8| line.iter().filter(|&byte| byte == delimiter).count();
    // Of equals `max_by_key` takes the last, and that should be the comma.
    [b'\t', b';', b','].into_iter().max_by_key(count).unwrap_or(b',')
}

fn read_problem(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Utf8 { pos, .. } => {
            let line = pos.as_ref().map_or(0, csv::Position::line);
            format!("line {line} is not UTF-8 text; is this a table, and saved as UTF-8?")
        }
        _ => format!("cannot be read as a table: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::{Asked, Column, Columns, Header, Table, Target, looks_like_table, parse, read};
    use crate::data::{DataError, Dataset, TargetKind, Targets};
    use crate::rng::Rng;

    fn table(text: &str) -> Result<Table, DataError> {
        parse(Path::new("t.csv"), text.as_bytes(), Asked::default(), Header::Auto)
    }

    fn problem(text: &str) -> String {
        let text = table(text).unwrap_err().to_string();
        assert!(text.starts_with("t.csv: "), "{text}");
        text
    }

    #[test]
    fn lines_are_counted_whatever_they_end_with() {
        assert!(problem("1,2,x\r\n3,4,y\r\n5,oops,x\r\n").contains("line 3, column 2"));
        assert!(problem("1,2,x\n\n\n3,4,y\n5,oops,x\n").contains("line 5, column 2"));
        assert!(problem("\u{feff}a,b,kind\r\n1,2,x\r\n\r\n3,oops,y\r\n").contains("line 4, column 2"));
    }

    #[test]
    fn rows_become_samples_and_labels_sorted_classes() {
        for text in
            ["a,b,kind\n1,2,x\n3,4,c\n5,6,x\n", "1, 2 ,x\n3,4,\"c\"\r\n5,6,x", "\u{feff}a;b;kind\n1;2;x\n3;4;c\n5;6;x"]
        {
            let table = table(text).unwrap();
            assert_eq!((table.n_features(), table.classes()), (2, vec!["c".to_owned(), "x".to_owned()]), "{text}");
            let classes = table.classes();
            let set = table.into_set(&[PathBuf::from("t.csv")], classes).unwrap();
            assert_eq!((set.shape(), set.labels()), ([2].as_slice(), [1, 0, 1].as_slice()));
            assert_eq!(set.batch(&[2, 0]).unwrap().inputs, [5.0, 6.0, 1.0, 2.0]);
            let first_line = if text.contains("kind") { 2 } else { 1 };
            assert_eq!(set.origin(0), Some(format!("t.csv, line {first_line}")));
            let part = set.only(&[2]).unwrap();
            assert_eq!((part.origin(0), part.origin(1)), (Some(format!("t.csv, line {}", first_line + 2)), None));
        }
    }

    #[test]
    fn the_label_is_found_by_name_or_place() {
        let text = "kind,a,b\n10,1,2\n9,3,4\n";
        for label in [Column::Index(0), Column::Name("kind".to_owned()), Column::Name("0".to_owned())] {
            let label = Columns::One(label);
            let asked = Asked { label: Some(&label), target: Target::Class };
            let table = parse(Path::new("t"), text.as_bytes(), asked, Header::Auto).unwrap();
            assert_eq!(table.classes(), ["9", "10"], "numbers are sorted as numbers");
        }
        for (label, answer) in
            [(Column::Index(3), "they are 0 to 2"), (Column::Name("knd".to_owned()), "Did you mean `kind`?")]
        {
            let label = Columns::One(label);
            let asked = Asked { label: Some(&label), target: Target::Class };
            let error = parse(Path::new("t"), text.as_bytes(), asked, Header::Auto).unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
        let numbered = parse(Path::new("t"), b"0,1\n2,3\n", Asked::default(), Header::Yes).unwrap();
        assert_eq!(numbered.classes(), ["3"]);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        assert!(problem("").contains("is empty"));
        assert!(problem("a,b\n").contains("no rows"));
        assert!(problem("1\n2\n").contains("one column"));
        assert!(problem("1,2,x\n3,x\n").contains("line 2 has 2 cells, the first line has 3"));
        assert!(
            problem("a,b,c\n1,2,x\n3,oops,x\n").contains("line 3, column 2 (`b`): expected a number, found `oops`")
        );
        assert!(problem("1,2,x\n3,,x\n").contains("line 2, column 2 (`1`): the value is missing"));
        assert!(problem("1,2,x\n3,NaN,x\n").contains("missing (`NaN`)"));
        assert!(problem("1,2,x\n3,4,?\n").contains("missing (`?`)"));
        assert!(problem("1,2,x\n3,1e99,x\n").contains("too large"));
        assert!(problem("1,2,x\n3,inf,x\n").contains("too large"));
        let measured: String = (0..300).map(|i| format!("{i},{}.5\n", i * 7)).collect();
        assert!(problem(&measured).contains("names no classes"));
        let error = parse(Path::new("t.csv"), b"1,2,\xff\xfe\n", Asked::default(), Header::Auto).unwrap_err();
        assert!(error.to_string().contains("line 1 is not UTF-8"));
        let strange = table("1,x\n").unwrap().into_set(&[PathBuf::from("t.csv")], vec!["y".to_owned()]).unwrap_err();
        assert!(strange.to_string().contains("training part has not: x"));
        let folder = tempfile::tempdir().unwrap();
        assert!(
            read(folder.path(), Asked::default(), Header::Auto).unwrap_err().to_string().contains("found a folder")
        );
    }

    #[test]
    fn columns_may_hold_numbers_to_predict_or_labels() {
        let text = "a,x,b,y\n1,10,2,0\n3,-0.5,4,1\n";
        let set = |target, label: &[&str]| {
            let label = Columns::Several(label.iter().map(|&name| Column::Name(name.to_owned())).collect());
            let table = parse(Path::new("t"), text.as_bytes(), Asked { label: Some(&label), target }, Header::Auto)?;
            let classes = table.classes();
            table.into_set(&[PathBuf::from("t")], classes)
        };
        let numbers = set(Target::Numbers, &["y", "x"]).unwrap();
        assert_eq!((numbers.shape(), numbers.classes()), ([2].as_slice(), ["y".to_owned(), "x".to_owned()].as_slice()));
        assert!(matches!(numbers.target(), TargetKind::Numbers { n: 2, .. }) && numbers.labels() == [0, 0]);
        let batch = numbers.batch(&[1, 0]).unwrap();
        assert_eq!(
            (batch.inputs, batch.targets),
            (vec![3.0, 4.0, 1.0, 2.0], Targets::Numbers(vec![1.0, -0.5, 0.0, 10.0]))
        );
        assert_eq!(set(Target::Labels, &["y"]).unwrap().target(), TargetKind::Labels);
        for (target, label, answer) in [
            (Target::Labels, &["x"][..], "line 2, column 2 (`x`): expected 0 or 1, found 10"),
            (Target::Class, &["x", "y"], "`label` names 2 columns; for classes it names one"),
            (Target::Numbers, &[], "`label` names 0 columns"),
            (Target::Numbers, &["x", "x"], "names the column `x` twice"),
            (Target::Numbers, &["a", "b", "x", "y"], "names all columns"),
        ] {
            let error = set(target, label).unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
        let asked = Asked { label: None, target: Target::Numbers };
        for (text, answer) in
            [("1,x\n", "line 1, column 2 (`1`): expected a number to predict"), ("1,2\n3,nan\n", "missing")]
        {
            let error = parse(Path::new("t"), text.as_bytes(), asked, Header::No).unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
    }

    #[test]
    fn a_table_is_told_from_prose() {
        for table in ["1,2,x\n3,4,y\n", "a;b;c\n1;2;x\n", "1\t2", "a,b\r\n1,x\r\n", "a,name\n1,\"x, y\"\n2,z\n3,q"] {
            assert!(looks_like_table(table.as_bytes()), "{table}");
        }
        for prose in ["", "\n\n", "Hello, world\n", "one\ntwo", "In 1984, he\nwas, as it\nwere", "1\n2\n", "a,b\nc,d\n"]
        {
            assert!(!looks_like_table(prose.as_bytes()), "{prose}");
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let pieces: [&[u8]; 12] = [b"1", b"2.5", b",", b",", b"\n", b"\"", b"x", b"-", b"\r", b";", b"\xff", b"1e999"];
        for seed in 0..3000 {
            let mut rng = Rng::new(seed);
            let mut bytes = Vec::new();
            for _ in 0..rng.below(60) {
                bytes.extend(pieces[rng.below(pieces.len())]);
            }
            if let Ok(table) = parse(Path::new("x"), &bytes, Asked::default(), Header::Auto) {
                assert!(table.n_rows() > 0 && table.n_features() > 0, "seed {seed}");
            }
        }
    }
}
