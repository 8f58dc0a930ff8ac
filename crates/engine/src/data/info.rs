//! What a data set holds, for people and for programs.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::format::Format;
use super::source::{DataSpec, Source, open, open_whole};
use super::{DataError, Dataset, IGNORED, Split, TargetKind, Targets};

/// A summary of a data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// How it is stored.
    pub format: Format,
    /// The shape of one sample.
    pub shape: Vec<usize>,
    /// How many samples there are to train on.
    pub n_train: usize,
    /// How many samples they were taken from, if not all were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken_from: Option<usize>,
    /// How many samples there are to test with.
    pub n_test: usize,
    /// Whether the test samples are held back from the training part, for want of a test part.
    pub held_back: bool,
    /// The classes, in the order of their labels; none where a sample has no one class.
    pub classes: Vec<ClassInfo>,
    /// How many positions of a sample are asked about one by one, if they are: classes are counted by position then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_positions: Option<usize>,
    /// The numbers to predict.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub numbers: Vec<NumberInfo>,
    /// What there is to say of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextInfo>,
}

/// How a number to predict is spread over the training samples, in the units of the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NumberInfo {
    /// Its name.
    pub name: String,
    /// The mean.
    pub mean: f64,
    /// The standard deviation.
    pub deviation: f64,
}

/// How much text there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextInfo {
    /// The size of all files.
    pub n_bytes: u64,
    /// Tokens to train on.
    pub n_train: usize,
    /// Tokens to test with.
    pub n_test: usize,
    /// How many different tokens there are.
    pub vocabulary: usize,
}

/// How many samples a class has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassInfo {
    /// Its name.
    pub name: String,
    /// Samples to train on.
    pub n_train: usize,
    /// Samples to test with.
    pub n_test: usize,
}

/// Opens both parts and counts. The arguments are those of [`open`].
pub fn info(spec: &DataSpec, path: Option<&Path>, seed: u64) -> Result<Info, DataError> {
    let source = Source::new(spec, path)?;
    let train = open(spec, path, Split::Train, seed)?;
    let test = open(spec, path, Split::Test, seed)?;
    let taken_from = match spec.take {
        0 => None,
        _ => Some(open_whole(spec, path, Split::Train, seed)?.len()),
    };
    let text = (train.target() == TargetKind::Tokens).then(|| TextInfo {
        n_bytes: source.n_bytes(),
        n_train: train.len() * train.shape()[0],
        n_test: test.len() * test.shape()[0],
        vocabulary: train.classes().len(),
    });
    Ok(Info {
        format: source.format(),
        shape: train.shape().to_vec(),
        n_train: train.len(),
        taken_from,
        n_test: test.len(),
        held_back: source.holds_back(),
        classes: match train.target() {
            TargetKind::Class => classes(&*train, &*test),
            TargetKind::Labels => labels(&*train, &*test)?,
            TargetKind::Positions { .. } => positions(&*train, &*test)?,
            TargetKind::Numbers { .. } | TargetKind::Tokens => Vec::new(),
        },
        numbers: match train.target() {
            TargetKind::Numbers { .. } => numbers(&*train)?,
            TargetKind::Class | TargetKind::Labels | TargetKind::Positions { .. } | TargetKind::Tokens => Vec::new(),
        },
        n_positions: match train.target() {
            TargetKind::Positions { n } => Some(n),
            TargetKind::Numbers { n_positions, .. } => Some(n_positions).filter(|&n| n > 1),
            TargetKind::Class | TargetKind::Labels | TargetKind::Tokens => None,
        },
        text,
    })
}

fn classes(train: &dyn Dataset, test: &dyn Dataset) -> Vec<ClassInfo> {
    counted(train.classes(), [train.labels(), test.labels()])
}

/// How many positions of each part's samples have each class.
fn positions(train: &dyn Dataset, test: &dyn Dataset) -> Result<Vec<ClassInfo>, DataError> {
    let of = |set: &dyn Dataset| match set.targets(&(0..set.len()).collect::<Vec<usize>>())? {
        Targets::Classes(classes) => Ok::<_, DataError>(classes),
        Targets::Numbers(_) => Ok(Vec::new()),
    };
    Ok(counted(train.classes(), [&of(train)?, &of(test)?]))
}

fn counted(names: &[String], parts: [&[u32]; 2]) -> Vec<ClassInfo> {
    let [n_train, n_test] = parts.map(|labels| {
        let mut counts = vec![0; names.len()];
        labels.iter().filter(|&&label| label != IGNORED).for_each(|&label| counts[label as usize] += 1);
        counts
    });
    let counts = n_train.into_iter().zip(n_test);
    let class =
        |(name, (n_train, n_test)): (&String, (usize, usize))| ClassInfo { name: name.clone(), n_train, n_test };
    names.iter().zip(counts).map(class).collect()
}

/// The values that are asked for, sample by sample.
fn answers(set: &dyn Dataset) -> Result<Vec<f32>, DataError> {
    match set.targets(&(0..set.len()).collect::<Vec<usize>>())? {
        Targets::Numbers(values) => Ok(values),
        Targets::Classes(_) => Ok(Vec::new()),
    }
}

/// How many samples of each part have each label.
fn labels(train: &dyn Dataset, test: &dyn Dataset) -> Result<Vec<ClassInfo>, DataError> {
    let parts = [answers(train)?, answers(test)?];
    let (names, n) = (train.classes(), train.classes().len());
    let count =
        |values: &[f32], class: usize| values.iter().skip(class).step_by(n).filter(|&&value| value == 1.0).count();
    let class = |(class, name): (usize, &String)| {
        let [n_train, n_test] = [0, 1].map(|part| count(&parts[part], class));
        ClassInfo { name: name.clone(), n_train, n_test }
    };
    Ok(names.iter().enumerate().map(class).collect())
}

fn numbers(train: &dyn Dataset) -> Result<Vec<NumberInfo>, DataError> {
    let (mut values, n_rows) = (answers(train)?, train.len().max(1) as f64);
    train.restore(&mut values);
    let of = |(column, name): (usize, &String)| {
        let column = || values.iter().skip(column).step_by(train.classes().len()).map(|&value| f64::from(value));
        let mean = column().sum::<f64>() / n_rows;
        let square = column().map(|value| (value - mean).powi(2)).sum::<f64>() / n_rows;
        NumberInfo { name: name.clone(), mean, deviation: square.sqrt() }
    };
    Ok(train.classes().iter().enumerate().map(of).collect())
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        writeln!(f, "format   {}", self.format)?;
        writeln!(f, "shape    {}", shape.join(" x "))?;
        let note = self.taken_from.map_or_else(String::new, |n| format!(", taken at random from {n}"));
        writeln!(f, "train    {} samples{note}", self.n_train)?;
        let note = if self.held_back { ", held back from the training part" } else { "" };
        writeln!(f, "test     {} samples{note}", self.n_test)?;
        if let Some(TextInfo { n_bytes, n_train, n_test, vocabulary }) = self.text {
            writeln!(f, "tokens   {n_train} to train on, {n_test} to test with, {vocabulary} different")?;
            return writeln!(f, "bytes    {n_bytes}");
        }
        if let Some(n) = self.n_positions {
            writeln!(f, "asked    at each of {n} positions of a sample")?;
        }
        if !self.numbers.is_empty() {
            let width = self.numbers.iter().map(|number| number.name.chars().count()).max().unwrap_or(0).max(6);
            writeln!(f, "\n{:width$}  {:>12}  {:>12}", "number", "mean", "deviation")?;
            for NumberInfo { name, mean, deviation } in &self.numbers {
                writeln!(f, "{name:width$}  {mean:>12.6}  {deviation:>12.6}")?;
            }
            return Ok(());
        }
        writeln!(f, "classes  {}", self.classes.len())?;
        let width = self.classes.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).max(5);
        writeln!(f, "\n{:width$}  {:>8}  {:>8}", "class", "train", "test")?;
        for ClassInfo { name, n_train, n_test } in &self.classes {
            writeln!(f, "{name:width$}  {n_train:>8}  {n_test:>8}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::info;
    use crate::data::npy::tests::file;
    use crate::data::source::DataSpec;

    #[test]
    fn the_digits_are_counted() {
        let spec = DataSpec { name: Some("digits".to_owned()), ..DataSpec::default() };
        let info = info(&spec, None, 0).unwrap();
        assert_eq!((info.n_train, info.n_test, info.held_back), (3823, 1797, false));
        assert_eq!(info.classes.iter().map(|class| class.n_test).sum::<usize>(), 1797);
        let text = info.to_string();
        assert!(text.contains("shape    8 x 8 x 1") && text.contains("\n0           376       178\n"), "{text}");
        let json = serde_json::to_value(&info).unwrap();
        assert!(json.get("taken_from").is_none());
        assert_eq!((json["format"].as_str(), json["classes"][9]["name"].as_str()), (Some("digits"), Some("9")));
    }

    #[test]
    fn tokens_of_a_text_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.txt"), "to be or not to be ".repeat(20)).unwrap();
        let spec = DataSpec { length: Some(10), ..DataSpec::default() };
        let info = info(&spec, Some(folder.path()), 0).unwrap();
        let text = info.to_string();
        assert!(text.contains("train    34 samples\n") && info.held_back, "{text}");
        assert!(text.ends_with("tokens   340 to train on, 30 to test with, 7 different\nbytes    380\n"), "{text}");
        assert_eq!(serde_json::to_value(&info).unwrap()["text"]["vocabulary"], 7);
    }

    #[test]
    fn numbers_and_labels_of_a_table_are_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.csv"), "a,x,y\n1,2,0\n2,4,1\n3,6,1\n").unwrap();
        std::fs::write(folder.path().join("test.csv"), "a,x,y\n1,2,0\n").unwrap();
        let info = |spec: &str| info(&toml::from_str(spec).unwrap(), Some(folder.path()), 0).unwrap();
        let numbers = info("target = \"numbers\"\nlabel = [\"x\", \"y\"]");
        let text = numbers.to_string();
        assert!(text.ends_with("\nx           4.000000      1.632993\ny           0.666667      0.471405\n"), "{text}");
        assert!((numbers.numbers[0].mean - 4.0).abs() < 1e-9 && numbers.classes.is_empty());
        let labels = info("target = \"labels\"\nlabel = [\"y\"]");
        assert_eq!((labels.classes[0].n_train, labels.classes[0].n_test), (2, 0));
        let raw = info("target = \"numbers\"\nlabel = [\"x\", \"y\"]\nstandardise_targets = false");
        assert_eq!(raw.to_string(), text, "it is told in the units of the data");
    }

    #[test]
    fn positions_are_counted_by_their_classes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes).unwrap();
        for (part, n) in [("train", 2), ("test", 1)] {
            write(&format!("x_{part}.npy"), file("|u1", &format!("({n}, 1, 2)"), &vec![0; 2 * n]));
        }
        write("y_train.npy", file("|i1", "(2, 1, 2)", &[0, 2, 255, 2]));
        write("y_test.npy", file("|i1", "(1, 1, 2)", &[1, 1]));
        let info = info(&DataSpec::default(), Some(folder.path()), 0).unwrap();
        let counts: Vec<(usize, usize)> = info.classes.iter().map(|class| (class.n_train, class.n_test)).collect();
        assert_eq!((info.n_positions, counts), (Some(2), vec![(1, 0), (0, 2), (2, 0)]));
        let text = info.to_string();
        assert!(text.contains("asked    at each of 2 positions of a sample\nclasses  3\n"), "{text}");
    }

    #[test]
    fn a_part_says_of_what() {
        let spec = DataSpec { name: Some("digits".to_owned()), take: 500, ..DataSpec::default() };
        let info = info(&spec, None, 0).unwrap();
        assert_eq!((info.n_train, info.taken_from, info.n_test), (500, Some(3823), 1797));
        assert!(info.to_string().contains("train    500 samples, taken at random from 3823\n"), "{info}");
    }
}
