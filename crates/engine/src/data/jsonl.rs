//! JSON lines: an object on each line, with a text, or with features and a label.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::columns::{Asked, Column, Columns, Heading, Roles};
use super::files::Mapped;
use super::table::{Cell, Table, TableBuilder};
use super::text::documents::{Documents, Visit, visit_document};
use super::{DataError, files, names};

/// How such files are called.
pub(crate) const EXTENSIONS: [&str; 2] = ["jsonl", "ndjson"];
/// The field that holds a document's text unless it is said otherwise.
pub(crate) const TEXT_FIELD: &str = "text";
/// The fields of a row of numbers.
const FEATURES_FIELD: &str = "features";
const LABEL_FIELD: &str = "label";
/// How much of a file is looked at to tell what its lines hold, in bytes.
const LOOKED_AT: usize = 1 << 20;
/// After how many lines it is looked whether the file has become shorter meanwhile.
const LINES_AT_ONCE: u64 = 64;

type Object = Map<String, Value>;

/// Whether the lines of a file are rows of numbers, going by the first.
pub(crate) fn holds_features(path: &Path) -> Result<bool, DataError> {
    let beginning = files::beginning(path, LOOKED_AT)?;
    match lines(&beginning).next() {
        None => Err(DataError::malformed(path, "is empty; expected an object on each line, as {\"text\": \"…\"}")),
        // A first line that is longer than what was looked at holds a text: nobody has so many features.
        Some((_, line)) if line.len() == LOOKED_AT => Ok(false),
        Some((number, line)) => Ok(object(path, number, line)?.contains_key(FEATURES_FIELD)),
    }
}

/// Lines that each hold a document.
pub(crate) struct JsonTexts<'a> {
    /// The files.
    pub(crate) files: &'a [PathBuf],
    /// The field with the text.
    pub(crate) field: &'a str,
}

impl Documents for JsonTexts<'_> {
    fn files(&self) -> &[PathBuf] {
        self.files
    }

    fn how(&self) -> &str {
        self.field
    }

    fn visit(&self, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut is_first = true;
        for path in self.files {
            let file = Mapped::open(path)?;
            for (number, line) in lines(file.bytes()?) {
                if number.is_multiple_of(LINES_AT_ONCE) {
                    file.check()?;
                }
                let object = object(path, number, line)?;
                let text = text(&object, self.field)
                    .map_err(|problem| DataError::malformed(path, format!("line {number}: {problem}")))?;
                if visit_document(path, text.as_bytes(), &mut is_first, visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Reads the rows of some files.
pub(crate) fn read_table(paths: &[PathBuf], asked: Asked<'_>) -> Result<Table, DataError> {
    let mut rows = Rows { asked, n_features: 0, n_answers: 0, builder: None };
    for path in paths {
        rows.read(path, &files::read(path)?)?;
    }
    let problem = |problem: String| DataError::malformed(&paths[0], problem);
    rows.builder.ok_or_else(|| problem("holds no rows".to_owned()))?.finish().map_err(problem)
}

/// Reads the text of one file; `path` is for the messages only.
pub fn parse_table(path: &Path, bytes: &[u8], asked: Asked<'_>) -> Result<Table, DataError> {
    let mut rows = Rows { asked, n_features: 0, n_answers: 0, builder: None };
    rows.read(path, bytes)?;
    let problem = |problem: String| DataError::malformed(path, problem);
    rows.builder.ok_or_else(|| problem("holds no rows".to_owned()))?.finish().map_err(problem)
}

/// Reads the features of a file that is no part of the table with these columns; labels may be there or not.
pub(crate) fn read_outside(path: &Path, learnt: &Roles) -> Result<Table, DataError> {
    let malformed = |problem: String| DataError::malformed(path, problem);
    let n_learnt = learnt.n_features();
    let mut builder = TableBuilder::outside(learnt, Heading::places(n_learnt), "line").map_err(malformed)?;
    for (number, line) in lines(&files::read(path)?) {
        let object = object(path, number, line)?;
        let place = |problem: String| malformed(format!("line {number}: {problem}"));
        let features = features(&object).map_err(place)?;
        if features.len() != n_learnt {
            return Err(place(format!("has {} features; the model was trained on {n_learnt}", features.len())));
        }
        let cells: Vec<Cell<'_>> = features.iter().map(cell).collect::<Result<_, String>>().map_err(place)?;
        builder.row(cells.into_iter(), number).map_err(malformed)?;
    }
    builder.finish().map_err(|_| malformed("holds no rows".to_owned()))
}

/// Rows as they are read.
struct Rows<'a> {
    asked: Asked<'a>,
    n_features: usize,
    n_answers: usize,
    /// There from the first row on, which says how many columns there are.
    builder: Option<TableBuilder>,
}

impl Rows<'_> {
    fn read(&mut self, path: &Path, bytes: &[u8]) -> Result<(), DataError> {
        for (number, line) in lines(bytes) {
            let object = object(path, number, line)?;
            self.row(&object, number).map_err(|problem| DataError::malformed(path, problem))?;
        }
        Ok(())
    }

    fn row(&mut self, object: &Object, line: u64) -> Result<(), String> {
        let place = |problem: String| format!("line {line}: {problem}");
        let features = features(object).map_err(place)?;
        let label = field(object, LABEL_FIELD).map_err(place)?;
        let answers = match label {
            Value::Array(answers) => answers.as_slice(),
            one => std::slice::from_ref(one),
        };
        let cells: Vec<Cell<'_>> =
            features.iter().chain(answers).map(cell).collect::<Result<_, String>>().map_err(place)?;
        if self.builder.is_none() {
            (self.n_features, self.n_answers) = (features.len(), answers.len());
            self.builder = Some(self.begin().map_err(place)?);
        }
        if (features.len(), answers.len()) != (self.n_features, self.n_answers) {
            let (n_features, n_answers) = (self.n_features, self.n_answers);
            return Err(format!(
                "line {line} has {} features and {} labels, the first line has {n_features} and {n_answers}",
                features.len(),
                answers.len()
            ));
        }
        match &mut self.builder {
            Some(builder) => builder.row(cells.into_iter(), line),
            None => Ok(()),
        }
    }

    fn begin(&self) -> Result<TableBuilder, String> {
        let features = (0..self.n_features).map(|index| index.to_string());
        let answers = (0..self.n_answers).map(|index| match self.n_answers {
            1 => LABEL_FIELD.to_owned(),
            _ => format!("{LABEL_FIELD} {index}"),
        });
        let places = self.n_features..self.n_features + self.n_answers;
        let label = Columns::Several(places.map(Column::Index).collect());
        let asked = Asked { label: Some(&label), target: self.asked.target };
        TableBuilder::new(Heading { names: features.chain(answers).collect(), is_named: false }, asked, "line")
    }
}

fn cell(value: &Value) -> Result<Cell<'_>, String> {
    match value {
        Value::Null => Ok(Cell::Text("null")),
        Value::Bool(true) => Ok(Cell::Text("true")),
        Value::Bool(false) => Ok(Cell::Text("false")),
        Value::Number(number) => Ok(Cell::Number(number.as_f64().unwrap_or(f64::NAN))),
        Value::String(text) => Ok(Cell::Text(text)),
        Value::Array(_) | Value::Object(_) => {
            Err("a feature or label is a list or an object, and must be one value".to_owned())
        }
    }
}

/// The lines that hold something, with their numbers from 1.
fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let lines = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    (1..).zip(lines).filter(|(_, line)| !line.is_empty())
}

fn object(path: &Path, number: u64, line: &[u8]) -> Result<Object, DataError> {
    serde_json::from_slice(line).map_err(|error| {
        let problem =
            format!("line {number} is no JSON object ({error}); expected one on each line, as {{\"text\": \"…\"}}");
        DataError::malformed(path, problem)
    })
}

fn field<'a>(object: &'a Object, name: &str) -> Result<&'a Value, String> {
    object.get(name).ok_or_else(|| {
        let known: Vec<&str> = object.keys().map(String::as_str).collect();
        names::unknown("field", name, &known)
    })
}

fn features(object: &Object) -> Result<&[Value], String> {
    match field(object, FEATURES_FIELD)? {
        Value::Array(features) => Ok(features),
        _ => Err(format!("`{FEATURES_FIELD}` is no list of numbers")),
    }
}

fn text<'a>(object: &'a Object, name: &str) -> Result<&'a str, String> {
    match field(object, name)? {
        Value::String(text) => Ok(text),
        _ => Err(format!("the field `{name}` is no text; set `text` to the field that is")),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::path::{Path, PathBuf};

    use super::{JsonTexts, holds_features, parse_table, read_table};
    use crate::data::columns::{Asked, Target};
    use crate::data::text::documents::{Documents, Piece};
    use crate::data::{DataError, Dataset, TargetKind, Targets};

    fn texts(content: &str) -> Result<String, DataError> {
        let folder = tempfile::tempdir().unwrap();
        let files = [folder.path().join("a.jsonl")];
        std::fs::write(&files[0], content).unwrap();
        let mut all = String::new();
        JsonTexts { files: &files, field: "text" }.visit(&mut |piece| {
            match piece {
                Piece::Boundary => all.push('|'),
                Piece::Text(_, text) => all.push_str(text),
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(all)
    }

    #[test]
    fn each_line_is_a_document() {
        let content = "{\"text\": \"one\\ntwo\", \"id\": 1}\n\r\n{\"id\": 2, \"text\": \"\"}\n{\"text\": \"\\u00e9\"}";
        assert_eq!(texts(content).unwrap(), "one\ntwo||é");
        for (content, answer) in [
            ("{\"text\": \"a\"}\n{\"text\": ", "a.jsonl: line 2 is no JSON object"),
            ("[1]", "line 1 is no JSON object"),
            ("\n{\"txt\": \"a\"}", "line 2: unknown field `text`; known: txt. Did you mean `txt`?"),
            ("{\"text\": 3}", "line 1: the field `text` is no text"),
        ] {
            let error = texts(content).unwrap_err().to_string();
            assert!(error.contains(answer), "{error}");
        }
    }

    #[test]
    fn lines_may_be_rows_of_a_table() {
        let content = "{\"features\": [1, 2.5], \"label\": \"b\"}\n{\"features\": [3, 4], \"label\": \"a\"}\n";
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a.jsonl")];
        std::fs::write(&paths[0], content).unwrap();
        assert!(holds_features(&paths[0]).unwrap());
        let table = read_table(&paths, Asked::default()).unwrap();
        let classes = table.classes();
        assert_eq!(classes, ["a", "b"]);
        let set = table.into_set(&paths, classes).unwrap();
        assert_eq!((set.labels(), set.batch(&[0]).unwrap().inputs), ([1, 0].as_slice(), vec![1.0, 2.5]));
        assert!(set.origin(1).unwrap().ends_with("a.jsonl, line 2"));
        let asked = Asked { label: None, target: Target::Labels };
        let content = b"{\"features\": [1], \"label\": [0, true]}";
        let set = parse_table(Path::new("x"), content, asked)
            .unwrap()
            .into_set(&[PathBuf::from("x")], vec!["p".into(), "q".into()]);
        let set = set.unwrap();
        assert_eq!((set.target(), set.targets(&[0]).unwrap()), (TargetKind::Labels, Targets::Numbers(vec![0.0, 1.0])));
    }

    #[test]
    fn rows_that_do_not_fit_are_named() {
        let problem =
            |content: &str| parse_table(Path::new("x"), content.as_bytes(), Asked::default()).unwrap_err().to_string();
        let first = "{\"features\": [1, 2], \"label\": 0}\n";
        assert!(problem("").contains("x: holds no rows"));
        assert!(problem("{\"features\": 1, \"label\": 0}").contains("line 1: `features` is no list"));
        assert!(problem("{\"features\": [1]}").contains("line 1: unknown field `label`"));
        assert!(
            problem(&format!("{first}{{\"features\": [1], \"label\": 0}}"))
                .contains("line 2 has 1 features and 1 labels")
        );
        assert!(
            problem(&format!("{first}{{\"features\": [1, null], \"label\": 0}}"))
                .contains("line 2, column 2 (`1`): the value is missing")
        );
        assert!(problem("{\"features\": [1, [2]], \"label\": 0}").contains("line 1: a feature or label is a list"));
        assert!(problem("{\"features\": [], \"label\": 0}").contains("all columns"));
        assert!(problem("{\"features\": [1], \"label\": [1, 2]}").contains("`label` names 2 columns"));
    }
}
