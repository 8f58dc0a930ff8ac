//! Tables as comma-separated text: columns of numbers and one column that names the class.

use std::collections::BTreeMap;
use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};
use serde::{Deserialize, Serialize};

use super::files;
use super::in_memory::{InMemory, Samples};
use super::origins::Origins;
use super::{DataError, names};

/// What stands for a value that is not there, in lower case.
const MISSING: [&str; 7] = ["", "-", "?", "n/a", "na", "nan", "null"];

/// A column, by its place (from 0) or by its name in the header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Column {
    /// By place, the first being 0.
    Index(usize),
    /// By name; where no column has the name and it is a number, by place.
    Name(String),
}

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

/// A table as it was read, its classes not yet numbered.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    n_features: usize,
    values: Vec<f32>,
    /// The class of each row, as an index into `class_names`.
    rows: Vec<u32>,
    /// The line of each row in the file.
    lines: Vec<u64>,
    /// The classes in the order they came up.
    class_names: Vec<String>,
}

/// Reads one file. The label is in the last column unless `label` says otherwise.
pub fn read(path: &Path, label: Option<&Column>, header: Header) -> Result<Table, DataError> {
    parse(path, &files::read(path)?, label, header)
}

/// Reads the text of one file; `path` is for the messages only.
pub fn parse(path: &Path, bytes: &[u8], label: Option<&Column>, header: Header) -> Result<Table, DataError> {
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
        return Err(malformed("is empty; expected rows of numbers and a label".to_owned()));
    };
    if first.len() < 2 {
        let problem = "has one column; expected at least one of numbers and one of labels, separated by commas";
        return Err(malformed(problem.to_owned()));
    }
    let has_header = match header {
        Header::Auto => !first.iter().any(|cell| cell.parse::<f32>().is_ok()),
        Header::No => false,
        Header::Yes => true,
    };
    let names: Vec<String> = if has_header {
        first.iter().map(ToOwned::to_owned).collect()
    } else {
        (0..first.len()).map(|column| column.to_string()).collect()
    };
    let mut builder = Builder { label: find_column(path, &names, label)?, names, ..Builder::default() };
    let mut record = if has_header { next()? } else { Some(first) };
    while let Some(row) = record {
        builder.row(&row, line_of(&row, bytes)).map_err(malformed)?;
        record = next()?;
    }
    builder.finish().map_err(malformed)
}

impl Table {
    /// The classes, sorted: by value where all are whole numbers, otherwise by letter.
    pub fn classes(&self) -> Vec<String> {
        let mut classes = self.class_names.clone();
        let numbers: Option<Vec<i64>> = classes.iter().map(|name| name.parse().ok()).collect();
        match numbers {
            Some(_) => classes.sort_by_key(|name| (name.parse::<i64>().unwrap_or_default(), name.clone())),
            None => classes.sort(),
        }
        classes
    }

    /// The samples, numbered by these classes: those of the training part, for both parts. Not yet normalised.
    pub(crate) fn into_set(self, path: &Path, classes: Vec<String>) -> Result<InMemory, DataError> {
        let numbers: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
        let number = |name: &String| numbers.get(name.as_str()).copied();
        let Some(renumbered) = self.class_names.iter().map(number).collect::<Option<Vec<u32>>>() else {
            let strangers: Vec<&str> =
                self.class_names.iter().filter(|name| number(name).is_none()).map(String::as_str).collect();
            let problem = format!("has labels that the training part has not: {}", strangers.join(", "));
            return Err(DataError::malformed(path, problem));
        };
        let labels = self.rows.iter().map(|&class| renumbered[class as usize]).collect();
        let set = InMemory::new(vec![self.n_features], classes, labels, Samples::Floats(self.values))?;
        Ok(set.with_origins(Origins::Lines { path: path.to_owned(), lines: self.lines }))
    }

    /// How many columns are features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }
}

/// A table in the making. Problems are told without the path, which the caller knows.
#[derive(Default)]
struct Builder {
    names: Vec<String>,
    label: usize,
    values: Vec<f32>,
    rows: Vec<u32>,
    lines: Vec<u64>,
    class_names: Vec<String>,
    class_numbers: BTreeMap<String, u32>,
}

impl Builder {
    fn row(&mut self, row: &StringRecord, line: u64) -> Result<(), String> {
        if row.len() != self.names.len() {
            return Err(format!("line {line} has {} cells, the first line has {}", row.len(), self.names.len()));
        }
        for (column, cell) in row.iter().enumerate() {
            let place = || format!("line {line}, column {} (`{}`)", column + 1, self.names[column]);
            if MISSING.binary_search(&cell.to_ascii_lowercase().as_str()).is_ok() {
                return Err(format!("{}: the value is missing (`{cell}`); fill it in or remove the line", place()));
            }
            if column == self.label {
                continue;
            }
            match cell.parse::<f32>() {
                Ok(value) if value.is_finite() => self.values.push(value),
                Ok(_) => return Err(format!("{}: `{cell}` is too large for a 32-bit number", place())),
                Err(_) => {
                    return Err(format!(
                        "{}: expected a number, found `{cell}`; remove the column, or name it as the label",
                        place()
                    ));
                }
            }
        }
        self.class(&row[self.label]);
        self.lines.push(line);
        Ok(())
    }

    fn class(&mut self, name: &str) {
        let number = match self.class_numbers.get(name) {
            Some(&number) => number,
            None => {
                let number = self.class_names.len() as u32;
                self.class_names.push(name.to_owned());
                self.class_numbers.insert(name.to_owned(), number);
                number
            }
        };
        self.rows.push(number);
    }

    fn finish(self) -> Result<Table, String> {
        let (n_rows, n_classes) = (self.rows.len(), self.class_names.len());
        if n_rows == 0 {
            return Err("has a header and no rows".to_owned());
        }
        // A number that is different in almost every row is measured, not a class: better to say so than to train on it.
        if n_classes > 100 && n_classes * 2 > n_rows {
            let name = &self.names[self.label];
            return Err(format!(
                "the label column `{name}` has {n_classes} different values in {n_rows} rows, so it names no classes; \
                 set `label` to the column that does"
            ));
        }
        let n_features = self.names.len() - 1;
        let Self { values, rows, lines, class_names, .. } = self;
        Ok(Table { n_features, values, rows, lines, class_names })
    }
}

/// The line that a row is on, counted from 1. The reader says where it began to look for the row, which is before the second
/// half of a line's end in two characters, and before empty lines.
fn line_of(row: &StringRecord, bytes: &[u8]) -> u64 {
    let Some(position) = row.position() else { return 0 };
    let rest = bytes.get(position.byte() as usize..).unwrap_or_default();
    let ends = rest.iter().take_while(|byte| b"\r\n".contains(byte));
    position.line() + ends.filter(|&&byte| byte == b'\n').count() as u64
}

fn find_column(path: &Path, names: &[String], wanted: Option<&Column>) -> Result<usize, DataError> {
    let by_place = |place: usize| {
        if place < names.len() {
            return Ok(place);
        }
        let n_columns = names.len();
        Err(DataError::malformed(
            path,
            format!("there is no column {place} for the label: they are 0 to {}", n_columns - 1),
        ))
    };
    match wanted {
        None => Ok(names.len() - 1),
        Some(&Column::Index(place)) => by_place(place),
        Some(Column::Name(name)) => match (names.iter().position(|other| other == name), name.parse()) {
            (Some(place), _) => Ok(place),
            (None, Ok(place)) => by_place(place),
            (None, Err(_)) => {
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                Err(DataError::malformed(path, names::unknown("label column", name, &known)))
            }
        },
    }
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
    use std::path::Path;

    use super::{Column, Header, MISSING, Table, looks_like_table, parse, read};
    use crate::data::{DataError, Dataset};
    use crate::rng::Rng;

    fn table(text: &str) -> Result<Table, DataError> {
        parse(Path::new("t.csv"), text.as_bytes(), None, Header::Auto)
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
            let set = table.into_set(Path::new("t.csv"), classes).unwrap();
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
            let table = parse(Path::new("t"), text.as_bytes(), Some(&label), Header::Auto).unwrap();
            assert_eq!(table.classes(), ["9", "10"], "numbers are sorted as numbers");
        }
        for (label, answer) in
            [(Column::Index(3), "they are 0 to 2"), (Column::Name("knd".to_owned()), "Did you mean `kind`?")]
        {
            let error = parse(Path::new("t"), text.as_bytes(), Some(&label), Header::Auto).unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
        let numbered = parse(Path::new("t"), b"0,1\n2,3\n", None, Header::Yes).unwrap();
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
        let error = parse(Path::new("t.csv"), b"1,2,\xff\xfe\n", None, Header::Auto).unwrap_err();
        assert!(error.to_string().contains("line 1 is not UTF-8"));
        let strange = table("1,x\n").unwrap().into_set(Path::new("t.csv"), vec!["y".to_owned()]).unwrap_err();
        assert!(strange.to_string().contains("training part has not: x"));
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path(), None, Header::Auto).unwrap_err().to_string().contains("found a folder"));
        assert!(MISSING.is_sorted());
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
            if let Ok(table) = parse(Path::new("x"), &bytes, None, Header::Auto) {
                assert_eq!(table.values.len(), table.rows.len() * table.n_features, "seed {seed}");
            }
        }
    }
}
