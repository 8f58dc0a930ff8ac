//! The description of a data set, as a job has it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::DataError;
use super::columns::{Columns, Target};
use super::csv::Header;
use super::format::Format;
use super::in_memory::{InMemory, Normalisation};
use super::text::tokens::Tokens;

/// The share of a set without a test part that is held back.
const DEFAULT_TEST_FRACTION: f64 = 0.1;

/// The formats whose samples are normalised: all but text.
const NORMALISED: [Format; 10] = [
    Format::Cifar10,
    Format::Csv,
    Format::Digits,
    Format::Idx,
    Format::Images,
    Format::Jsonl,
    Format::Npy,
    Format::Parquet,
    Format::Tar,
    Format::Wav,
];
/// The formats of features that may be asked about in several ways.
const TABLES: [Format; 4] = [Format::Csv, Format::Jsonl, Format::Npy, Format::Parquet];

/// Where samples come from and how they are prepared. Peers that train together need the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataSpec {
    /// The deviation of each channel after scaling to 0 to 1, or one for all. Default: that of the set, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deviation: Option<Vec<f32>>,
    /// How the set is stored. Default: `auto`, found out from what is there.
    pub format: Format,
    /// For recordings: how many frames of 10 ms a sample has; longer ones are cut, shorter ones filled up. Default: 64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<usize>,
    /// For tables: whether the first line names the columns. Default: `auto`, it does if none of its cells is a number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<Header>,
    /// For tables: the column of the labels, by name or by place (the first is 0), or a list of columns where `target` is
    /// `labels` or `numbers`. Default: the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Columns>,
    /// For text: how many tokens a sample has. Default: 256.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// The mean of each channel after scaling to 0 to 1, or one for all. Default: that of the set, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean: Option<Vec<f32>>,
    /// The name of a well-known set. `digits` is part of the program; others must have been fetched to a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The folder or file that holds the set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// For pictures: the shorter side after resizing, in pixels. Default: 8/7 of `size`, as is usual for ImageNet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resize: Option<usize>,
    /// For pictures: the side of the square cut out of the middle, in pixels. Default: 224.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<usize>,
    /// For tables: whether each feature is brought to mean 0 and deviation 1, both measured on the training part.
    /// Default: yes, unless `mean` or `deviation` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standardise: Option<bool>,
    /// Whether numbers to predict are brought to mean 0 and deviation 1, both measured on the training part; losses and errors are then
    /// in deviations. Default: yes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standardise_targets: Option<bool>,
    /// How many samples of the training set are trained on: a random part of it, drawn by the job's seed; all of them are
    /// prepared as they would be in the whole set, and the test set stays whole. Default: 0, which is all.
    #[serde(skip_serializing_if = "is_zero")]
    pub take: usize,
    /// For tables: what the label columns hold. `class`, the name of a class (in arrays perhaps one at each position); `labels`, several columns of 0 or 1, of which any
    /// number may be 1; or `numbers` to predict. Default: `class`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Target>,
    /// The share of each class that is held back for the test where the set has no test part of its own; of a text, its
    /// end. Default: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_fraction: Option<f64>,
    /// For JSON lines and Parquet files: the field or column that holds the text. Default: `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For text: what a token is. `bytes`, `characters`, the path of a tokenizer.json, or `{ train = 8000 }` for a byte-pair
    /// encoding of so many tokens, trained on the training part. Default: the tokenizer.json that lies in the data's folder;
    /// otherwise `characters` where there are at most 256 different ones, else `bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Tokens>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl DataSpec {
    /// Refuses settings that the format would ignore: whoever wrote them expects something of them.
    pub(crate) fn check(&self, format: Format) -> Result<(), DataError> {
        let settings: [(&str, bool, &[Format]); 13] = [
            ("deviation", self.deviation.is_some(), &NORMALISED),
            ("frames", self.frames.is_some(), &[Format::Wav]),
            ("header", self.header.is_some(), &[Format::Csv]),
            ("label", self.label.is_some(), &[Format::Csv, Format::Parquet]),
            ("length", self.length.is_some(), &[Format::Jsonl, Format::Parquet, Format::Text]),
            ("mean", self.mean.is_some(), &NORMALISED),
            ("resize", self.resize.is_some(), &[Format::Images, Format::Tar]),
            ("size", self.size.is_some(), &[Format::Images, Format::Tar]),
            ("standardise", self.standardise.is_some(), &TABLES),
            ("standardise_targets", self.standardise_targets.is_some(), &TABLES),
            ("target", self.target.is_some(), &TABLES),
            ("text", self.text.is_some(), &[Format::Jsonl, Format::Parquet]),
            ("tokens", self.tokens.is_some(), &[Format::Jsonl, Format::Parquet, Format::Text]),
        ];
        match settings.iter().find(|(_, is_set, formats)| *is_set && !formats.contains(&format)) {
            Some((name, _, formats)) => {
                let formats: Vec<String> = formats.iter().map(ToString::to_string).collect();
                Err(DataError::Setting(format!(
                    "`{name}` means nothing for a data set of format `{format}`, only for {}; remove it",
                    formats.join(", ")
                )))
            }
            None => Ok(()),
        }
    }

    /// Refuses settings that mean nothing for a table, in a format that may hold text too.
    pub(crate) fn check_table(&self, format: Format) -> Result<(), DataError> {
        let settings =
            [("length", self.length.is_some()), ("text", self.text.is_some()), ("tokens", self.tokens.is_some())];
        refuse(&settings, format, "it holds rows of numbers and no text")
    }

    /// Refuses settings that mean nothing for text, in a format that may hold tables too.
    pub(crate) fn check_text(&self, format: Format) -> Result<(), DataError> {
        let settings = [
            ("deviation", self.deviation.is_some()),
            ("label", self.label.is_some()),
            ("mean", self.mean.is_some()),
            ("standardise", self.standardise.is_some()),
            ("standardise_targets", self.standardise_targets.is_some()),
            ("target", self.target.is_some()),
        ];
        refuse(&settings, format, "it holds text")
    }

    pub(crate) fn test_fraction(&self) -> f64 {
        self.test_fraction.unwrap_or(DEFAULT_TEST_FRACTION)
    }

    /// The usual normalisation with what the description says instead.
    pub(crate) fn normalisation(&self, usual: Normalisation) -> Normalisation {
        Normalisation {
            scale: usual.scale,
            mean: self.mean.clone().unwrap_or(usual.mean),
            deviation: self.deviation.clone().unwrap_or(usual.deviation),
        }
    }

    pub(crate) fn normalise(&self, set: InMemory, usual: Normalisation) -> Result<InMemory, DataError> {
        set.normalised(self.normalisation(usual))
    }
}

fn refuse(settings: &[(&str, bool)], format: Format, why: &str) -> Result<(), DataError> {
    match settings.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => Err(DataError::Setting(format!(
            "`{name}` means nothing for this data set of format `{format}`: {why}; remove it"
        ))),
        None => Ok(()),
    }
}
