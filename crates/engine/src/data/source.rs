//! A data set from its description: which reader, which part, how normalised.

mod by_file;
mod tables;
mod texts;
mod wanted;

use std::path::{Path, PathBuf};

use super::format::{Format, csv_files, detect, extensions};
use super::in_memory::Normalisation;
use super::parts::{self, Parts};
use super::subset::Subset;
use super::{DataError, Dataset, Split, arrays, cifar, digits, files, folders, idx, jsonl, known, parquet};
use wanted::Wanted;

pub use super::spec::DataSpec;

/// The name of the set that needs no files.
const EMBEDDED: &str = "digits";

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
    let (format, path) = match Source::new(spec, path)? {
        Source::Embedded => {
            return Ok(Box::new(spec.normalise(digits::open(split)?, Normalisation::scaled(digits::SCALE))?));
        }
        Source::Files(format, path) => (format, path),
    };
    let wanted = Wanted { spec, split, seed };
    Ok(match format {
        Format::Cifar10 => Box::new(spec.normalise(cifar::open(&path, split)?, known::cifar10())?),
        Format::Csv => Box::new(tables::open_csv(&wanted, &path)?),
        Format::Idx => Box::new(by_file::open_idx(&wanted, &path)?),
        Format::Images => Box::new(by_file::open_images(&wanted, &path)?),
        Format::Jsonl => open_jsonl(&wanted, &path)?,
        Format::Npy => Box::new(tables::open_arrays(&wanted, &path)?),
        Format::Parquet => open_parquet(&wanted, &path)?,
        Format::Tar => Box::new(by_file::open_shards(&wanted, &path)?),
        Format::Text => Box::new(texts::open_plain(&wanted, &path)?),
        Format::Wav => Box::new(by_file::open_wav(&wanted, &path)?),
        Format::Auto | Format::Digits => unreachable!("Source::new has resolved these"),
    })
}

/// JSON lines: a table if they hold features, else text.
fn open_jsonl(wanted: &Wanted<'_>, path: &Path) -> Result<Box<dyn Dataset>, DataError> {
    let parts = parts::find(path, &jsonl::EXTENSIONS)?;
    if jsonl::holds_features(&parts.train[0])? {
        wanted.spec.check_table(Format::Jsonl)?;
        return Ok(Box::new(tables::open_jsonl(wanted, &parts)?));
    }
    wanted.spec.check_text(Format::Jsonl)?;
    Ok(Box::new(texts::open_jsonl(wanted, path, &parts)?))
}

/// Parquet files: text if a column of it is named or called so and nothing is asked about other columns, else a table.
fn open_parquet(wanted: &Wanted<'_>, path: &Path) -> Result<Box<dyn Dataset>, DataError> {
    let (parts, spec) = (parts::find(path, &parquet::EXTENSIONS)?, wanted.spec);
    let is_asked = spec.label.is_some() || spec.target.is_some();
    if spec.text.is_some() || (!is_asked && parquet::has_text(&parts.train[0], texts::field(wanted))?) {
        spec.check_text(Format::Parquet)?;
        return Ok(Box::new(texts::open_parquet(wanted, path, &parts)?));
    }
    spec.check_table(Format::Parquet)?;
    Ok(Box::new(tables::open_parquet(wanted, &parts)?))
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

    /// The files of a set that is made of one kind of files.
    fn parts(&self) -> Option<Parts> {
        match self {
            Self::Files(format, path) => parts::find(path, extensions(*format)?).ok(),
            Self::Embedded => None,
        }
    }

    /// The size of such a set's files.
    pub(crate) fn n_bytes(&self) -> u64 {
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
        self.parts().map_or(0, |parts| parts.train.iter().chain(&parts.test).map(size).sum())
    }

    /// Whether the test part is held back from the training part, for want of one of its own.
    pub(crate) fn holds_back(&self) -> bool {
        match self {
            Self::Embedded | Self::Files(Format::Cifar10, _) => false,
            Self::Files(Format::Csv, path) => csv_files(path).is_ok_and(|(_, test)| test.is_none()),
            Self::Files(Format::Jsonl | Format::Parquet | Format::Tar | Format::Text, _) => {
                self.parts().is_some_and(|parts| parts.test.is_empty())
            }
            Self::Files(Format::Npy, path) => !arrays::has_test(path),
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{DataSpec, Source, open};
    use crate::data::in_memory::Normalisation;
    use crate::data::{DataError, Dataset, Split, TargetKind};

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
    fn numbers_to_predict_are_held_back_at_random_and_each_part_has_its_own_variance() -> Result<(), DataError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.csv");
        std::fs::write(&path, (0..200).map(|i| format!("{i},{}.5\n", i * 7)).collect::<String>()).unwrap();
        let spec = spec("target = \"numbers\"\nstandardise = false\nstandardise_targets = false");
        let (train, test) = (open(&spec, Some(&path), Split::Train, 1)?, open(&spec, Some(&path), Split::Test, 1)?);
        assert_eq!((train.len(), test.len()), (180, 20));
        let variances = [&train, &test].map(|part| {
            let TargetKind::Numbers { n: 1, variance, .. } = part.target() else { panic!("{:?}", part.target()) };
            assert!((variance - 7.0 * 7.0 * 3333.25).abs() / variance < 0.5, "{variance}");
            variance
        });
        assert!(variances[0] != variances[1], "{variances:?}");
        assert_ne!(all(&*test), all(&*open(&spec, Some(&path), Split::Test, 2)?), "another seed");
        assert!(problem("", Some(&path)).contains("or `target = \"numbers\"`"));
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
