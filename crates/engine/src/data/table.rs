//! Rows of numbers with what is asked about them, whatever file they were read from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::in_memory::{Answers, InMemory, Samples};
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

/// One column or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Columns {
    /// One.
    One(Column),
    /// Several.
    Several(Vec<Column>),
}

/// What is to be learned from a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// The class that a column names.
    #[default]
    Class,
    /// Which of several columns are 1 and not 0.
    Labels,
    /// The numbers of one or several columns.
    Numbers,
}

/// What is asked about a table: which columns, and how they are understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked<'a> {
    /// The columns; the last if none is named.
    pub label: Option<&'a Columns>,
    /// How they are understood.
    pub target: Target,
}

/// A value in a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'a> {
    /// As it is written.
    Text(&'a str),
    /// A number.
    Number(f64),
}

/// A table as it was read, its classes not yet numbered.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    n_features: usize,
    values: Vec<f32>,
    /// Where each row is in the file, by line or by row.
    lines: Vec<u64>,
    /// For classes: that of each row, as an index into `class_names`.
    rows: Vec<u32>,
    /// The classes in the order they came up, or the names of the columns that are asked for.
    class_names: Vec<String>,
    target: Target,
    /// The values of the columns that are asked for, where they are no classes.
    answers: Vec<f32>,
}

impl Table {
    /// The classes, sorted: by value where all are whole numbers, otherwise by letter. The columns where it has no classes.
    pub fn classes(&self) -> Vec<String> {
        let mut classes = self.class_names.clone();
        if self.target == Target::Class {
            names::sort_classes(&mut classes);
        }
        classes
    }

    /// The samples, numbered by these classes: those of the training part, for both parts. Not yet normalised.
    pub(crate) fn into_set(self, paths: &[PathBuf], classes: Vec<String>) -> Result<InMemory, DataError> {
        let origins = match paths {
            [path] => Origins::Lines { path: path.clone(), lines: self.lines },
            _ => Origins::Unknown,
        };
        let (shape, samples) = (vec![self.n_features], Samples::Floats(self.values));
        let answers = match self.target {
            Target::Class => {
                let labels = renumbered(paths, &self.rows, &self.class_names, &classes)?;
                return Ok(InMemory::new(shape, classes, labels, samples)?.with_origins(origins));
            }
            Target::Labels => Answers::Labels(self.answers),
            Target::Numbers => Answers::Numbers(self.answers),
        };
        Ok(InMemory::with_answers(shape, classes, answers, samples)?.with_origins(origins))
    }

    /// How many columns are features.
    pub fn n_features(&self) -> usize {
        self.n_features
    }

    /// How many rows there are.
    pub fn n_rows(&self) -> usize {
        self.lines.len()
    }
}

fn renumbered(paths: &[PathBuf], rows: &[u32], names: &[String], classes: &[String]) -> Result<Vec<u32>, DataError> {
    let numbers: BTreeMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
    let number = |name: &String| numbers.get(name.as_str()).copied();
    let Some(renumbered) = names.iter().map(number).collect::<Option<Vec<u32>>>() else {
        let strangers: Vec<&str> = names.iter().filter(|name| number(name).is_none()).map(String::as_str).collect();
        let problem = format!("has labels that the training part has not: {}", strangers.join(", "));
        return Err(DataError::malformed(&paths[0], problem));
    };
    Ok(rows.iter().map(|&class| renumbered[class as usize]).collect())
}

/// A table in the making. Problems are told without the path, which the caller knows.
pub(crate) struct TableBuilder {
    names: Vec<String>,
    /// For each column its place among those that are asked for.
    asked: Vec<Option<usize>>,
    table: Table,
    class_numbers: BTreeMap<String, u32>,
    /// What a row is called in this kind of file.
    unit: &'static str,
}

impl TableBuilder {
    /// A table with these columns.
    pub(crate) fn new(names: Vec<String>, asked: Asked<'_>, unit: &'static str) -> Result<Self, String> {
        let wanted: Vec<Option<&Column>> = match asked.label {
            None => vec![None],
            Some(Columns::One(column)) => vec![Some(column)],
            Some(Columns::Several(columns)) => columns.iter().map(Some).collect(),
        };
        if wanted.is_empty() || (asked.target == Target::Class && wanted.len() > 1) {
            return Err(format!(
                "`label` names {} columns; for classes it names one, for `target = \"labels\"` or `\"numbers\"` one or several",
                wanted.len()
            ));
        }
        let mut places = vec![None; names.len()];
        let mut asked_names = Vec::new();
        for (place, column) in wanted.into_iter().enumerate() {
            let column = find_column(&names, column)?;
            if places[column].replace(place).is_some() {
                return Err(format!("`label` names the column `{}` twice", names[column]));
            }
            asked_names.push(names[column].clone());
        }
        let n_features = places.iter().filter(|place| place.is_none()).count();
        if n_features == 0 {
            return Err("`label` names all columns; at least one must be left to learn from".to_owned());
        }
        let table = Table {
            n_features,
            values: Vec::new(),
            lines: Vec::new(),
            rows: Vec::new(),
            class_names: if asked.target == Target::Class { Vec::new() } else { asked_names },
            target: asked.target,
            answers: Vec::new(),
        };
        Ok(Self { names, asked: places, table, class_numbers: BTreeMap::new(), unit })
    }

    /// Adds a row, which is on this line.
    pub(crate) fn row<'a>(&mut self, cells: impl ExactSizeIterator<Item = Cell<'a>>, line: u64) -> Result<(), String> {
        if cells.len() != self.names.len() {
            let (unit, n_columns) = (self.unit, self.names.len());
            return Err(format!("{unit} {line} has {} cells, the first {unit} has {n_columns}", cells.len()));
        }
        let first_answer = self.table.answers.len();
        if self.table.target != Target::Class {
            self.table.answers.resize(first_answer + self.table.class_names.len(), 0.0);
        }
        for (column, cell) in cells.enumerate() {
            let place = |problem: String| {
                format!("{} {line}, column {} (`{}`): {problem}", self.unit, column + 1, self.names[column])
            };
            match (self.asked[column], self.table.target) {
                (None, _) => self.table.values.push(number(cell, true).map_err(place)?),
                (Some(_), Target::Class) => {
                    let class = class_name(cell).map_err(place)?;
                    self.table.rows.push(number_of(&mut self.class_numbers, &mut self.table.class_names, class));
                }
                (Some(index), Target::Labels) => {
                    self.table.answers[first_answer + index] = zero_or_one(cell).map_err(place)?;
                }
                (Some(index), Target::Numbers) => {
                    self.table.answers[first_answer + index] = number(cell, false).map_err(place)?;
                }
            }
        }
        self.table.lines.push(line);
        Ok(())
    }

    /// The table, if it has rows and its label names classes.
    pub(crate) fn finish(self) -> Result<Table, String> {
        let (n_rows, n_classes) = (self.table.lines.len(), self.table.class_names.len());
        if n_rows == 0 {
            return Err("has a header and no rows".to_owned());
        }
        // A number that is different in almost every row is measured, not a class: better to say so than to train on it.
        if self.table.target == Target::Class && n_classes > 100 && n_classes * 2 > n_rows {
            let label = self.asked.iter().position(Option::is_some).unwrap_or(0);
            let name = &self.names[label];
            return Err(format!(
                "the label column `{name}` has {n_classes} different values in {n_rows} rows, so it names no classes; \
                 set `label` to the column that does, or `target = \"numbers\"` if these are to be predicted"
            ));
        }
        Ok(self.table)
    }
}

fn number_of(numbers: &mut BTreeMap<String, u32>, names: &mut Vec<String>, name: String) -> u32 {
    if let Some(&number) = numbers.get(&name) {
        return number;
    }
    let number = names.len() as u32;
    names.push(name.clone());
    numbers.insert(name, number);
    number
}

fn is_missing(text: &str) -> bool {
    MISSING.binary_search(&text.to_ascii_lowercase().as_str()).is_ok()
}

fn missing(text: &str) -> String {
    format!("the value is missing (`{text}`); fill it in or remove the line")
}

fn class_name(cell: Cell<'_>) -> Result<String, String> {
    match cell {
        Cell::Text(text) if is_missing(text) => Err(missing(text)),
        Cell::Number(number) if number.is_nan() => Err(missing("NaN")),
        Cell::Text(text) => Ok(text.to_owned()),
        Cell::Number(number) => Ok(number.to_string()),
    }
}

fn number(cell: Cell<'_>, is_feature: bool) -> Result<f32, String> {
    let parsed = match cell {
        Cell::Text(text) if is_missing(text) => return Err(missing(text)),
        Cell::Text(text) => text.parse::<f32>().map_err(|_| text),
        Cell::Number(number) if number.is_nan() => return Err(missing("NaN")),
        Cell::Number(number) => Ok(number as f32),
    };
    match parsed {
        Ok(value) if value.is_finite() => Ok(value),
        Ok(_) => Err(match cell {
            Cell::Text(text) => format!("`{text}` is too large for a 32-bit number"),
            Cell::Number(number) => format!("`{number}` is too large for a 32-bit number"),
        }),
        Err(text) if is_feature => {
            Err(format!("expected a number, found `{text}`; remove the column, or name it as the label"))
        }
        Err(text) => Err(format!("expected a number to predict, found `{text}`; for classes leave out `target`")),
    }
}

fn zero_or_one(cell: Cell<'_>) -> Result<f32, String> {
    let value = match cell {
        Cell::Text(text) if text.eq_ignore_ascii_case("true") => Ok(1.0),
        Cell::Text(text) if text.eq_ignore_ascii_case("false") => Ok(0.0),
        Cell::Text(_) | Cell::Number(_) => number(cell, false),
    };
    match value {
        Ok(value) if value == 0.0 || value == 1.0 => Ok(value),
        Ok(value) => Err(format!("expected 0 or 1, found {value}")),
        Err(problem) => Err(problem),
    }
}

fn find_column(names: &[String], wanted: Option<&Column>) -> Result<usize, String> {
    let by_place = |place: usize| {
        if place < names.len() {
            return Ok(place);
        }
        Err(format!("there is no column {place} for the label: they are 0 to {}", names.len() - 1))
    };
    match wanted {
        None => Ok(names.len() - 1),
        Some(&Column::Index(place)) => by_place(place),
        Some(Column::Name(name)) => match (names.iter().position(|other| other == name), name.parse()) {
            (Some(place), _) => Ok(place),
            (None, Ok(place)) => by_place(place),
            (None, Err(_)) => {
                let known: Vec<&str> = names.iter().map(String::as_str).collect();
                Err(names::unknown("label column", name, &known))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::MISSING;

    #[test]
    fn the_words_for_what_is_missing_are_sorted() {
        assert!(MISSING.is_sorted());
    }
}
