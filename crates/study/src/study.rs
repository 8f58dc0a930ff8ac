//! A study's file: the question, what is varied, and what is the same in all runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nettorrent_engine::job::{Job, JobError, ReadError, read_toml};
use serde::Deserialize;
use toml::{Table, Value};

use crate::axis::{AxisError, AxisSpec, read_matrix};
use crate::results::{Host, Published, StudyHead, Targets};

/// A study, ready to be planned.
#[derive(Clone, Debug)]
pub struct Study {
    /// What is asked.
    pub head: StudyHead,
    /// Where the first trial's randomness comes from.
    pub seed: u64,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// The times at which accuracies are compared; chosen by the runs' lengths if there are none.
    pub at_s: Vec<f64>,
    /// In the simulator: how long a peer takes to train one sample, in milliseconds.
    pub sample_ms: Option<f64>,
    /// What is the same in all runs.
    pub job: Table,
    /// What is varied.
    pub axes: Vec<AxisSpec>,
    /// What others found.
    pub published: Vec<Published>,
}

/// Which form of a study.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it is.
    Full,
    /// As its `[quick]` says: short, and on the data that come with the program.
    Quick,
}

/// Why a study cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is no study.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A value makes no sense.
    #[error("{study}: {problem}")]
    Value {
        /// The study's file.
        study: String,
        /// What is wrong.
        problem: String,
    },
    /// Something in the matrix makes no sense.
    #[error("{study}, [matrix]: {source}")]
    Matrix {
        /// The study's file.
        study: String,
        /// What is wrong.
        source: AxisError,
    },
    /// The job in the file that the study names.
    #[error(transparent)]
    Job(#[from] JobError),
    /// A setting that cannot be run.
    #[error("the setting {setting} cannot be run: {problem}")]
    Setting {
        /// Which.
        setting: String,
        /// Why.
        problem: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    name: String,
    #[serde(default)]
    about: String,
    #[serde(default)]
    host: Host,
    target_accuracy: Option<f64>,
    target_loss: Option<f64>,
    target_perplexity: Option<f64>,
    #[serde(default = "one")]
    trials: u32,
    #[serde(default = "one")]
    seed: u64,
    timeout_s: Option<f64>,
    #[serde(default)]
    at_s: Vec<f64>,
    sample_ms: Option<f64>,
    job: Option<Value>,
    #[serde(default)]
    matrix: Table,
    quick: Option<Quick>,
    #[serde(default)]
    published: Vec<Published>,
}

/// What is different in the quick form: fields of the job one by one, axes as wholes.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Quick {
    host: Option<Host>,
    target_accuracy: Option<f64>,
    target_loss: Option<f64>,
    target_perplexity: Option<f64>,
    trials: Option<u32>,
    timeout_s: Option<f64>,
    at_s: Option<Vec<f64>>,
    sample_ms: Option<f64>,
    #[serde(default)]
    job: Table,
    #[serde(default)]
    matrix: Table,
}

/// The same text with jobs for tables: what is wrong in them is told with its place in the study's file.
#[derive(Deserialize)]
struct Typed {
    #[serde(default, rename = "job")]
    _job: Job,
    #[serde(default, rename = "quick")]
    _quick: TypedQuick,
}

#[derive(Default, Deserialize)]
struct TypedQuick {
    #[serde(default, rename = "job")]
    _job: Job,
}

fn one<T: From<u8>>() -> T {
    1.into()
}

impl Study {
    /// A study from a file.
    pub fn open(path: &Path, form: Form) -> Result<Self, StudyError> {
        let text = read(path)?;
        Self::parse(&path.display().to_string(), &text, path.parent().unwrap_or(Path::new("")), form)
    }

    /// A study from text; `name` is for messages, and files that it names lie in `folder`.
    pub fn parse(name: &str, text: &str, folder: &Path, form: Form) -> Result<Self, StudyError> {
        let mut file: StudyFile = read_toml(name, text)?;
        let mut job = match file.job.take() {
            None => Table::new(),
            Some(Value::String(path)) => job_file(&folder.join(path))?,
            Some(_) => {
                let _: Typed = read_toml(name, text)?;
                read_toml::<JobTable>(name, text)?.job
            }
        };
        let wrong = |problem: String| StudyError::Value { study: name.to_owned(), problem };
        match (form, file.quick.take()) {
            (Form::Full, _) => {}
            (Form::Quick, Some(quick)) => file.shorten(&mut job, quick),
            (Form::Quick, None) => return Err(wrong("has no quick form: it has no [quick]".into())),
        }
        file.check().map_err(wrong)?;
        let axes = read_matrix(&file.matrix).map_err(|source| StudyError::Matrix { study: name.to_owned(), source })?;
        let StudyFile { name, about, host, trials, .. } = file;
        let targets =
            Targets { accuracy: file.target_accuracy, loss: file.target_loss, perplexity: file.target_perplexity };
        Ok(Self {
            head: StudyHead { name, about, host, is_quick: form == Form::Quick, targets, trials },
            seed: file.seed,
            timeout: file.timeout_s.map(Duration::from_secs_f64),
            at_s: file.at_s,
            sample_ms: file.sample_ms,
            job,
            axes,
            published: file.published,
        })
    }
}

#[derive(Deserialize)]
struct JobTable {
    job: Table,
}

impl StudyFile {
    fn shorten(&mut self, job: &mut Table, quick: Quick) {
        self.host = quick.host.unwrap_or(self.host);
        self.target_accuracy = quick.target_accuracy.or(self.target_accuracy);
        self.target_loss = quick.target_loss.or(self.target_loss);
        self.target_perplexity = quick.target_perplexity.or(self.target_perplexity);
        self.trials = quick.trials.unwrap_or(self.trials);
        self.timeout_s = quick.timeout_s.or(self.timeout_s);
        self.at_s = quick.at_s.unwrap_or(std::mem::take(&mut self.at_s));
        self.sample_ms = quick.sample_ms.or(self.sample_ms);
        merge(job, quick.job);
        self.matrix.extend(quick.matrix);
    }

    fn check(&self) -> Result<(), String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.name.is_empty() || !self.name.chars().all(is_name) {
            return Err(format!(
                "name = \"{}\": must be letters, digits and dashes; a folder is named by it",
                self.name
            ));
        }
        if self.trials == 0 {
            return Err("trials = 0: must be at least 1".into());
        }
        if let Some(target) = self.target_accuracy.filter(|target| !(*target > 0.0 && *target <= 1.0)) {
            return Err(format!("target_accuracy = {target}: must be a share, above 0 and at most 1"));
        }
        if let Some(target) = self.target_perplexity.filter(|target| !(*target >= 1.0 && target.is_finite())) {
            return Err(format!("target_perplexity = {target}: must be a number from 1 up"));
        }
        if let Some(target) = self.target_loss.filter(|target| !target.is_finite()) {
            return Err(format!("target_loss = {target}: must be a number"));
        }
        let seconds = self.at_s.iter().map(|s| ("at_s", *s)).chain(self.timeout_s.map(|s| ("timeout_s", s)));
        let numbers = seconds.chain(self.sample_ms.map(|ms| ("sample_ms", ms)));
        // A thousand years: what is longer cannot be counted with.
        match numbers.into_iter().find(|(_, value)| !(*value > 0.0 && *value < 3e10)) {
            Some((field, value)) => Err(format!("{field} = {value}: must be a positive number")),
            None => Ok(()),
        }
    }
}

/// A job's file as a table, once it is known to be a job.
fn job_file(path: &Path) -> Result<Table, StudyError> {
    let (name, text) = (path.display().to_string(), read(path)?);
    Job::parse(&name, &text, &[])?;
    Ok(read_toml(&name, &text)?)
}

fn read(path: &Path) -> Result<String, StudyError> {
    std::fs::read_to_string(path).map_err(|source| StudyError::File { path: path.to_owned(), source })
}

/// Sets what the second says in the first, field by field.
fn merge(first: &mut Table, second: Table) {
    for (name, value) in second {
        match (first.get_mut(&name), value) {
            (Some(Value::Table(inner)), Value::Table(value)) => merge(inner, value),
            (_, value) => drop(first.insert(name, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Form, Study};

    const TEXT: &str = r#"
        name = "tiny"
        target_accuracy = 0.9
        trials = 3
        [job]
        model = "mlp:64"
        epochs = 5
        optimizer.lr = 0.1
        [matrix]
        strategy = ["alone", { name = "threshold", label = "thresholds", options = { density = 0.01 } }]
        peers = [2, 4]
        link = ["1gbit/1ms"]
        [quick]
        trials = 1
        [quick.job]
        epochs = 1
        optimizer.momentum = 0.9
        [quick.matrix]
        peers = [2]
        link = []
    "#;

    fn parse(text: &str, form: Form) -> Result<Study, String> {
        Study::parse("tiny.toml", text, Path::new(""), form).map_err(|error| error.to_string())
    }

    #[test]
    fn the_quick_form_differs_field_by_field_and_axis_by_axis() {
        let full = parse(TEXT, Form::Full).unwrap();
        assert_eq!((full.head.trials, full.head.is_quick, full.axes.len()), (3, false, 3));
        let quick = parse(TEXT, Form::Quick).unwrap();
        assert_eq!((quick.head.trials, quick.head.is_quick), (1, true));
        assert_eq!(quick.job["model"].as_str(), Some("mlp:64"));
        assert_eq!(quick.job["epochs"].as_integer(), Some(1));
        assert_eq!(quick.job["optimizer"]["lr"].as_float(), Some(0.1));
        assert_eq!(quick.job["optimizer"]["momentum"].as_float(), Some(0.9));
        let shown: Vec<_> = quick.axes.iter().map(|axis| (axis.name.as_str(), axis.shown())).collect();
        assert_eq!(shown, [("peers", vec!["2".to_owned()]), ("strategy", vec!["alone".into(), "thresholds".into()])]);
    }

    #[test]
    fn a_job_may_be_a_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("job.toml"), "batch = 7").unwrap();
        let parse = |text: &str| Study::parse("a.toml", text, folder.path(), Form::Full);
        assert_eq!(parse("name = \"a\"\njob = \"job.toml\"").unwrap().job["batch"].as_integer(), Some(7));
        assert!(parse("name = \"a\"\njob = \"jb.toml\"").unwrap_err().to_string().contains("cannot read"));
        std::fs::write(folder.path().join("job.toml"), "bach = 7").unwrap();
        assert!(parse("name = \"a\"\njob = \"job.toml\"").unwrap_err().to_string().contains("`batch`?"));
    }

    #[test]
    fn mistakes_are_told_with_their_place_and_the_nearest_name() {
        for (text, answer) in [
            ("name = \"a\"\ntrial = 3", "tiny.toml, line 2, column 1: unknown field `trial`"),
            ("name = \"a\"\ntrial = 3", "Did you mean `trials`?"),
            ("name = \"a\"\nhost = \"procesess\"", "Did you mean `processes`?"),
            ("name = \"a\"\n[job]\nepocs = 3", "line 3, column 1: unknown field `epocs`"),
            ("name = \"a\"\n[job]\nbatch = 3\n[quick.job]\noptimizer.lrr = 3", "Did you mean `lr`?"),
            ("name = \"a\"\njob = 3", "line 2"),
            ("name = \"a/b\"", "a folder is named by it"),
            ("name = \"a\"\ntrials = 0", "trials = 0"),
            ("name = \"a\"\ntarget_accuracy = 97.0", "must be a share"),
            ("name = \"a\"\ntarget_perplexity = 0.5", "must be a number from 1 up"),
            ("name = \"a\"\ntarget_loss = nan", "must be a number"),
            ("name = \"a\"\ntimeout_s = -1.0", "timeout_s = -1: must be a positive number"),
            ("name = \"a\"\n[matrix]\nstrateggy = [\"threshold\"]", "did you mean `strategy`?"),
        ] {
            let message = parse(text, Form::Full).unwrap_err();
            assert!(message.contains(answer), "{message}");
        }
        assert!(parse("name = \"a\"", Form::Quick).unwrap_err().contains("no quick form"));
    }
}
