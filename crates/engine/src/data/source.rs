//! A data set from its description: which reader, which part, how normalised.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::csv::{self, Column, Header};
use super::format::{Format, csv_files, detect};
use super::images::{Framing, ImageFolder};
use super::in_memory::{InMemory, Normalisation};
use super::subset::Subset;
use super::{DataError, Dataset, Split, cifar, digits, files, folders, holdout, idx, images, known, wav};

/// The name of the set that needs no files.
const EMBEDDED: &str = "digits";
/// The share of a set without a test part that is held back.
const DEFAULT_TEST_FRACTION: f64 = 0.1;
/// The side of a picture that networks for photographs expect.
const DEFAULT_SIZE: usize = 224;

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
    /// For tables: the column of the labels, by name or by place (the first is 0). Default: the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Column>,
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
    /// How many samples of the training set are trained on: a random part of it, drawn by the job's seed; all of them are
    /// prepared as they would be in the whole set, and the test set stays whole. Default: 0, which is all.
    #[serde(skip_serializing_if = "is_zero")]
    pub take: usize,
    /// The share of each class that is held back for the test where the set has no test part of its own. Default: 0.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test_fraction: Option<f64>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// Opens one part of a data set.
///
/// `path` is where the caller found a named set; it goes before `spec.path`. `seed` decides which samples are held back
/// where the set has no test part, and which are taken where not all are wanted; it must be the same for both parts and all
/// peers.
///
/// ```
/// use nettorrent_engine::data::{Split, source::{self, DataSpec}};
/// let spec = DataSpec { name: Some("digits".to_owned()), ..DataSpec::default() };
/// assert_eq!(source::open(&spec, None, Split::Test, 0)?.len(), 1797);
/// # Ok::<(), nettorrent_engine::data::DataError>(())
/// ```
pub fn open(spec: &DataSpec, path: Option<&Path>, split: Split, seed: u64) -> Result<Box<dyn Dataset>, DataError> {
    let whole = open_whole(spec, path, split, seed)?;
    match (split, spec.take) {
        (Split::Test, _) | (_, 0) => Ok(whole),
        (Split::Train, n_samples) => Ok(Box::new(Subset::draw(whole, n_samples, seed)?)),
    }
}

/// The same with all samples of the part, however many are to be taken.
pub(crate) fn open_whole(
    spec: &DataSpec,
    path: Option<&Path>,
    split: Split,
    seed: u64,
) -> Result<Box<dyn Dataset>, DataError> {
    let source = Source::new(spec, path)?;
    match source {
        Source::Embedded => Ok(Box::new(spec.normalise(digits::open(split)?, Normalisation::scaled(digits::SCALE))?)),
        Source::Files(Format::Cifar10, path) => {
            Ok(Box::new(spec.normalise(cifar::open(&path, split)?, known::cifar10())?))
        }
        Source::Files(Format::Csv, path) => Ok(Box::new(spec.open_csv(&path, split, seed)?)),
        Source::Files(Format::Idx, path) => Ok(Box::new(spec.open_idx(&path, split, seed)?)),
        Source::Files(Format::Images, path) => {
            let listing = spec.hold_back(&path, split, seed, images::list)?;
            let size = spec.size.unwrap_or(DEFAULT_SIZE);
            let framing = Framing { resize: spec.resize.unwrap_or(size.saturating_mul(8) / 7), size };
            Ok(Box::new(ImageFolder::new(listing, framing, &spec.normalisation(known::photographs()))?))
        }
        Source::Files(Format::Wav, path) => {
            let listing = spec.hold_back(&path, split, seed, wav::list)?;
            let set = wav::compute(&listing, spec.frames.unwrap_or(wav::DEFAULT_FRAMES))?;
            Ok(Box::new(spec.normalise(set, Normalisation::scaled(1.0))?))
        }
        Source::Files(Format::Auto | Format::Digits, _) => unreachable!("Source::new has resolved these"),
    }
}

/// What a description comes down to.
pub(crate) enum Source {
    /// The digits in the program.
    Embedded,
    /// Files of a format that is neither `Auto` nor `Digits`.
    Files(Format, PathBuf),
}

impl Source {
    /// Finds out the format, and refuses settings that mean nothing for it.
    pub(crate) fn new(spec: &DataSpec, path: Option<&Path>) -> Result<Self, DataError> {
        if spec.name.as_deref() == Some(EMBEDDED) && spec.path.is_some() {
            return Err(DataError::Setting(
                "`digits` is part of the program and has no `path`; remove one of the two, or use --data PATH"
                    .to_owned(),
            ));
        }
        let path = path.or(spec.path.as_deref()).map(unwrap_folder);
        let source = match (spec.format, path) {
            (Format::Digits, _) => Self::Embedded,
            (Format::Auto, _) if spec.name.as_deref() == Some(EMBEDDED) => Self::Embedded,
            (Format::Auto, Some(path)) => Self::Files(detect(&path)?, path),
            (format, Some(path)) => Self::Files(format, path),
            (_, None) => {
                return Err(DataError::Setting(match &spec.name {
                    Some(name) => format!("the data set `{name}` is not here; fetch it, or give the `path` it is at"),
                    None => "no data set was given; set `name` (`digits` is always here) or `path`".to_owned(),
                }));
            }
        };
        spec.check(source.format())?;
        Ok(source)
    }

    pub(crate) fn format(&self) -> Format {
        match self {
            Self::Embedded => Format::Digits,
            Self::Files(format, _) => *format,
        }
    }

    /// Whether the test part is held back from the training part, for want of one of its own.
    pub(crate) fn holds_back(&self) -> bool {
        match self {
            Self::Embedded | Self::Files(Format::Cifar10, _) => false,
            Self::Files(Format::Csv, path) => csv_files(path).is_ok_and(|(_, test)| test.is_none()),
            Self::Files(Format::Idx, path) => !idx::has_split(path, Split::Test),
            Self::Files(_, path) => folders::split_folder(path, Split::Test).is_none(),
        }
    }
}

/// The folder that is meant by one which holds nothing but another: archives are often packed so.
fn unwrap_folder(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    while let Ok([only]) = files::list(&path).as_deref()
        && only.is_dir()
    {
        path = only.clone();
    }
    path
}

impl DataSpec {
    /// Refuses settings that the format would ignore: whoever wrote them expects something of them.
    fn check(&self, format: Format) -> Result<(), DataError> {
        let settings: [(&str, bool, &[Format]); 6] = [
            ("frames", self.frames.is_some(), &[Format::Wav]),
            ("header", self.header.is_some(), &[Format::Csv]),
            ("label", self.label.is_some(), &[Format::Csv]),
            ("resize", self.resize.is_some(), &[Format::Images]),
            ("size", self.size.is_some(), &[Format::Images]),
            ("standardise", self.standardise.is_some(), &[Format::Csv]),
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

    fn test_fraction(&self) -> f64 {
        self.test_fraction.unwrap_or(DEFAULT_TEST_FRACTION)
    }

    /// The usual normalisation with what the description says instead.
    fn normalisation(&self, usual: Normalisation) -> Normalisation {
        Normalisation {
            scale: usual.scale,
            mean: self.mean.clone().unwrap_or(usual.mean),
            deviation: self.deviation.clone().unwrap_or(usual.deviation),
        }
    }

    fn normalise(&self, set: InMemory, usual: Normalisation) -> Result<InMemory, DataError> {
        set.normalised(self.normalisation(usual))
    }

    /// The files of one part, some held back where there are no parts.
    fn hold_back(
        &self,
        path: &Path,
        split: Split,
        seed: u64,
        list: fn(&Path, Split) -> Result<folders::Listing, DataError>,
    ) -> Result<folders::Listing, DataError> {
        if folders::split_folder(path, Split::Test).is_some() {
            return list(path, split);
        }
        let all = list(path, Split::Train)?;
        Ok(all.only(&holdout::split(&all.labels, split, self.test_fraction(), seed)?))
    }

    fn open_idx(&self, path: &Path, split: Split, seed: u64) -> Result<InMemory, DataError> {
        let known = known::known_idx(self.name.as_deref(), path);
        let classes = known.map(|known| known.classes.as_slice());
        let usual = known.map_or_else(|| Normalisation::scaled(255.0), known::KnownIdx::normalisation);
        let set = if idx::has_split(path, Split::Test) {
            idx::open(path, split, classes)?
        } else {
            let all = idx::open(path, Split::Train, classes)?;
            all.only(&holdout::split(all.labels(), split, self.test_fraction(), seed)?)?
        };
        self.normalise(set, usual)
    }

    /// A table. The training part is read even for the test, whose classes and measures must be those of the training.
    fn open_csv(&self, path: &Path, split: Split, seed: u64) -> Result<InMemory, DataError> {
        let (train_path, test_path) = csv_files(path)?;
        let read = |path: &Path| csv::read(path, self.label.as_ref(), self.header.unwrap_or_default());
        let table = read(&train_path)?;
        let (classes, n_features) = (table.classes(), table.n_features());
        let all = table.into_set(&train_path, classes.clone())?;
        let hold = |split| all.only(&holdout::split(all.labels(), split, self.test_fraction(), seed)?);
        let train = if test_path.is_none() { hold(Split::Train)? } else { all.clone() };
        let by_default = self.mean.is_none() && self.deviation.is_none();
        let standardise = self.standardise.unwrap_or(by_default);
        let usual = if standardise { train.measure() } else { Normalisation::scaled(1.0) };
        let set = match (split, test_path) {
            (Split::Train, _) => train,
            (Split::Test, None) => hold(Split::Test)?,
            (Split::Test, Some(test_path)) => {
                let table = read(&test_path)?;
                if table.n_features() != n_features {
                    return Err(DataError::malformed(
                        &test_path,
                        format!("has {} features, the training table has {n_features}", table.n_features()),
                    ));
                }
                table.into_set(&test_path, classes)?
            }
        };
        self.normalise(set, usual)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DataSpec, Source, open};
    use crate::data::in_memory::Normalisation;
    use crate::data::{DataError, Dataset, Split};

    fn spec(text: &str) -> DataSpec {
        toml::from_str(text).unwrap()
    }

    fn problem(text: &str, path: Option<&Path>) -> String {
        open(&spec(text), path, Split::Train, 0).err().expect("it is refused").to_string()
    }

    fn all(set: &dyn Dataset) -> Vec<f32> {
        set.batch(&(0..set.len()).collect::<Vec<usize>>()).unwrap().inputs
    }

    #[test]
    fn a_description_is_read_and_written() {
        let text = "name = \"mnist\"\nformat = \"idx\"\nmean = [0.5]\nlabel = 3\ntest_fraction = 0.2\nheader = \"no\"";
        let read = spec(text);
        assert_eq!(spec(&toml::to_string(&read).unwrap()), read);
        let error = toml::from_str::<DataSpec>("naem = \"mnist\"").unwrap_err().to_string();
        assert!(error.contains("naem") && error.contains("`name`"), "{error}");
        assert_eq!(spec(""), DataSpec::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(problem("", None).contains("set `name`"));
        assert!(problem("name = \"mnist\"", None).contains("`mnist` is not here"));
        assert!(problem("name = \"digits\"\nsize = 3", None).contains("`size` means nothing for a data set of format"));
        assert!(problem("name = \"digits\"\nmean = [1, 2]", None).contains("`mean` has 2 values"));
        assert!(problem("path = \"/nowhere/at/all\"", None).contains("/nowhere/at/all"));
    }

    #[test]
    fn the_digits_are_scaled_and_can_be_normalised() {
        let plain = open(&spec("format = \"digits\""), None, Split::Test, 0).unwrap();
        let shifted = open(&spec("name = \"digits\"\nmean = [0.5]\ndeviation = [0.5]"), None, Split::Test, 0).unwrap();
        let pairs = all(&*plain).into_iter().zip(all(&*shifted));
        assert!(pairs.into_iter().all(|(plain, shifted)| (0.0..=1.0).contains(&plain) && shifted == plain * 2.0 - 1.0));
    }

    #[test]
    fn only_the_training_part_is_cut() -> Result<(), DataError> {
        let some = spec("name = \"digits\"\ntake = 100");
        assert_eq!(spec(&toml::to_string(&some).unwrap()), some);
        assert!(!toml::to_string(&spec("take = 0")).unwrap().contains("take"), "all of them need no word");
        let (train, test) = (open(&some, None, Split::Train, 1)?, open(&some, None, Split::Test, 1)?);
        assert_eq!((train.len(), test.len()), (100, 1797));
        assert_eq!(train.classes().len(), 10);
        assert_eq!(all(&*train), all(&*open(&some, None, Split::Train, 1)?));
        assert_ne!(all(&*train), all(&*open(&some, None, Split::Train, 2)?), "another seed");
        assert_eq!(open(&spec("name = \"digits\"\ntake = 0"), None, Split::Train, 1)?.len(), 3823);
        assert!(problem("name = \"digits\"\ntake = 4000", None).contains("the training set has 3823 samples"));
        Ok(())
    }

    /// The mean and deviation of the first of two features.
    fn first_feature(set: &dyn Dataset) -> (f32, f32) {
        let values = all(set);
        let normalisation = Normalisation::measured(values.chunks(2), 2);
        (normalisation.mean[0], normalisation.deviation[0])
    }

    #[test]
    fn a_table_is_standardised_by_its_training_part() -> Result<(), DataError> {
        let folder = tempfile::tempdir().unwrap();
        let rows = |from: usize| (from..from + 50).map(|i| format!("{i},{},{}\n", i * i, ["a", "b"][i % 2]));
        std::fs::write(folder.path().join("train.csv"), rows(0).collect::<String>()).unwrap();
        std::fs::write(folder.path().join("test.csv"), rows(100).collect::<String>()).unwrap();
        let path = Some(folder.path());
        let near = |a: f32, b: f32| (a - b).abs() < 1e-4;
        let (mean, deviation) = first_feature(&*open(&spec(""), path, Split::Train, 0)?);
        assert!(near(mean, 0.0) && near(deviation, 1.0));
        // Both parts are alike but for 100 more, which in the training part's deviation of 14.43 is 6.93.
        let (mean, deviation) = first_feature(&*open(&spec(""), path, Split::Test, 0)?);
        assert!(near(mean, 100.0 / 14.430_87) && near(deviation, 1.0), "{mean}, {deviation}");
        let raw = open(&spec("standardise = false"), path, Split::Test, 0)?;
        assert_eq!(all(&*raw)[..2], [100.0, 10_000.0]);
        let own = open(&spec("mean = [100, 0]\ndeviation = [2]"), path, Split::Test, 0)?;
        assert_eq!(all(&*own)[..4], [0.0, 5000.0, 0.5, 5100.5]);
        std::fs::write(folder.path().join("test.csv"), "1,2,3,a\n").unwrap();
        let error = open(&spec(""), path, Split::Test, 0).err().unwrap().to_string();
        assert!(error.contains("has 3 features, the training table has 2"), "{error}");
        Ok(())
    }

    #[test]
    fn a_set_without_a_test_part_holds_some_back() -> Result<(), DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.csv");
        std::fs::write(&path, (0..100).map(|i| format!("{i},0,{}\n", i % 4)).collect::<String>()).unwrap();
        let spec = spec("test_fraction = 0.2\nstandardise = false");
        let split = |split, seed| open(&spec, Some(&path), split, seed).map(|set| all(&*set));
        let (train, test) = (split(Split::Train, 1)?, split(Split::Test, 1)?);
        assert_eq!((train.len(), test.len()), (160, 40));
        assert!(test.chunks(2).all(|sample| !train.chunks(2).any(|other| other == sample)));
        assert_eq!(test, split(Split::Test, 1)?);
        assert_ne!(test, split(Split::Test, 2)?);
        assert!(Source::new(&spec, Some(&path))?.holds_back());
        // The measures are those of what is left to train on, not of what is held back.
        let standardised = DataSpec { standardise: Some(true), ..spec.clone() };
        let (mean, deviation) = first_feature(&*open(&standardised, Some(&path), Split::Train, 1)?);
        assert!(mean.abs() < 1e-5 && (deviation - 1.0).abs() < 1e-5);
        Ok(())
    }

    #[test]
    fn pictures_and_recordings_are_found_by_themselves() -> Result<(), DataError> {
        let folder = tempfile::tempdir().unwrap();
        for (class, name) in ["cat", "dog"].into_iter().flat_map(|class| (0..5).map(move |name| (class, name))) {
            let inside = folder.path().join(class);
            std::fs::create_dir_all(&inside).unwrap();
            image::RgbImage::new(9, 9).save(inside.join(format!("{name}.png"))).unwrap();
        }
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("archive-1.0");
        std::fs::rename(folder.path(), &inside).unwrap();
        let folder = outside;
        let pictures = spec("size = 7\ntest_fraction = 0.4");
        let train = open(&pictures, Some(folder.path()), Split::Train, 0)?;
        let test = open(&pictures, Some(folder.path()), Split::Test, 0)?;
        assert_eq!((train.shape(), train.labels()), ([7, 7, 3].as_slice(), [0, 0, 0, 1, 1, 1].as_slice()));
        assert_eq!(test.labels(), [0, 0, 1, 1]);
        // Black, by the usual mean and deviation of photographs.
        assert_eq!(test.batch(&[0])?.inputs[..3], [-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225]);
        assert!(problem("size = 7\nresize = 6", Some(folder.path())).contains("at most `resize`"));
        assert!(problem("frames = 7", Some(folder.path())).contains("only for wav"));
        Ok(())
    }
}
