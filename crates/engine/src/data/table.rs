//! Rows of numbers with what is asked about them, whatever file they were read from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::answers::Answers;
use super::columns::{Asked, Heading, Role, Roles, Target};
use super::in_memory::{InMemory, Samples};
use super::origins::Origins;
use super::outside::OutsideSample;
use super::{DataError, names};

/// What stands for a value that is not there, in lower case.
const MISSING: [&str; 7] = ["", "-", "?", "n/a", "na", "nan", "null"];

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
    columns: Roles,
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
        let shape = vec![self.n_features()];
        let origins = match paths {
            [path] => Origins::Lines { path: path.clone(), lines: self.lines },
            _ => Origins::Unknown,
        };
        let samples = Samples::Floats(self.values);
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

    /// The rows as samples of a set that they are no part of. Not yet normalised.
    pub(crate) fn into_outside(self) -> Vec<OutsideSample> {
        let rows = self.values.chunks_exact(self.n_features()).zip(&self.lines);
        rows.map(|(row, &line)| OutsideSample { line: Some(line), ..OutsideSample::whole(row.to_vec()) }).collect()
    }

    /// What its columns hold.
    pub(crate) fn columns(&self) -> &Roles {
        &self.columns
    }

    /// How many columns are features.
    pub fn n_features(&self) -> usize {
        self.columns.n_features()
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
    table: Table,
    n_features: usize,
    class_numbers: BTreeMap<String, u32>,
    /// What a row is called in this kind of file.
    unit: &'static str,
}

impl TableBuilder {
    /// A table with these columns, of which something is asked.
    pub(crate) fn new(heading: Heading, asked: Asked<'_>, unit: &'static str) -> Result<Self, String> {
        let columns = Roles::new(heading, asked)?;
        let class_names = if asked.target == Target::Class { Vec::new() } else { columns.asked_names() };
        Ok(Self::with(columns, asked.target, class_names, unit))
    }

    /// The features of a file that is no part of the table with these columns.
    pub(crate) fn outside(learnt: &Roles, heading: Heading, unit: &'static str) -> Result<Self, String> {
        Ok(Self::with(learnt.outside(heading)?, Target::Class, Vec::new(), unit))
    }

    fn with(columns: Roles, target: Target, class_names: Vec<String>, unit: &'static str) -> Self {
        let n_features = columns.n_features();
        let (values, lines, rows, answers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let table = Table { columns, values, lines, rows, class_names, target, answers };
        Self { table, n_features, class_numbers: BTreeMap::new(), unit }
    }

    /// Adds a row, which is on this line.
    pub(crate) fn row<'a>(&mut self, cells: impl ExactSizeIterator<Item = Cell<'a>>, line: u64) -> Result<(), String> {
        let Table { columns, values, lines, rows, class_names, target, answers } = &mut self.table;
        if cells.len() != columns.names().len() {
            let (unit, n_columns) = (self.unit, columns.names().len());
            return Err(format!("{unit} {line} has {} cells, the first {unit} has {n_columns}", cells.len()));
        }
        let (first_value, first_answer) = (values.len(), answers.len());
        values.resize(first_value + self.n_features, 0.0);
        if *target != Target::Class {
            answers.resize(first_answer + class_names.len(), 0.0);
        }
        for (column, cell) in cells.enumerate() {
            let place = |problem: String| {
                format!("{} {line}, column {} (`{}`): {problem}", self.unit, column + 1, columns.names()[column])
            };
            match (columns.roles()[column], *target) {
                (Role::Ignored, _) => {}
                (Role::Feature(index), _) => values[first_value + index] = number(cell, true).map_err(place)?,
                (Role::Asked(_), Target::Class) => {
                    let class = class_name(cell).map_err(place)?;
                    rows.push(number_of(&mut self.class_numbers, class_names, class));
                }
                (Role::Asked(index), Target::Labels) => {
                    answers[first_answer + index] = zero_or_one(cell).map_err(place)?;
                }
                (Role::Asked(index), Target::Numbers) => {
                    answers[first_answer + index] = number(cell, false).map_err(place)?;
                }
            }
        }
        lines.push(line);
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
            let name = self.table.columns.asked_names().join(", ");
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

#[cfg(test)]
mod tests {
    use super::MISSING;

    #[test]
    fn the_words_for_what_is_missing_are_sorted() {
        assert!(MISSING.is_sorted());
    }
}
