//! Tables and arrays, opened by their description.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::columns::{Asked, Roles, Target};
use super::super::format::csv_files;
use super::super::in_memory::{InMemory, Normalisation};
use super::super::outside_table::OutsideTable;
use super::super::parts::Parts;
use super::super::table::Table;
use super::super::{DataError, Dataset, Split, TargetKind, arrays, csv, jsonl, parquet};
use super::wanted::Wanted;

/// A table as text.
pub(super) fn open_csv(wanted: &Wanted<'_>, path: &Path) -> Result<InMemory, DataError> {
    let (train, test) = csv_files(path)?;
    let parts = Parts { train: vec![train], test: test.into_iter().collect() };
    let header = wanted.spec.header.unwrap_or_default();
    open(wanted, &parts, |paths| csv::read(&paths[0], asked(wanted), header))
}

/// Rows as JSON lines.
pub(super) fn open_jsonl(wanted: &Wanted<'_>, parts: &Parts) -> Result<InMemory, DataError> {
    open(wanted, parts, |paths| jsonl::read_table(paths, asked(wanted)))
}

/// Columns of Parquet files.
pub(super) fn open_parquet(wanted: &Wanted<'_>, parts: &Parts) -> Result<InMemory, DataError> {
    open(wanted, parts, |paths| parquet::read_table(paths, asked(wanted)))
}

/// Arrays. Bytes are scaled as pixels are; features of one dimension are standardised as those of tables are.
pub(super) fn open_arrays(wanted: &Wanted<'_>, path: &Path) -> Result<InMemory, DataError> {
    let read = |split| arrays::open(path, split, wanted.spec.target);
    let all = read(Split::Train)?;
    let usual = match (all.is_bytes(), all.shape().len()) {
        (true, _) if wanted.spec.standardise == Some(true) => {
            let problem =
                "`standardise` is for fractions, and these samples are bytes; remove it, or set `mean` and `deviation`";
            return Err(DataError::Setting(problem.to_owned()));
        }
        (true, _) => Some(Normalisation::scaled(255.0)),
        (false, 1) => None,
        (false, _) => Some(Normalisation::scaled(1.0)),
    };
    let test = || {
        let test = read(Split::Test)?;
        let asked = |set: &InMemory| match set.target() {
            TargetKind::Numbers { n, n_positions, .. } => [n, n_positions],
            TargetKind::Positions { n } => [0, n],
            _ => [0, 0],
        };
        if test.shape() != all.shape() || asked(&test) != asked(&all) {
            let problem = format!(
                "the test samples have the shape {:?}, those to train on {:?}; both need the same, and as many answers",
                test.shape(),
                all.shape()
            );
            return Err(DataError::malformed(path, problem));
        }
        Ok(test)
    };
    let set = prepare(wanted, &all, if arrays::has_test(path) { Some(&test) } else { None }, usual)?;
    match (set.is_bytes(), set.shape()) {
        (false, &[n_features]) => Ok(with_reader(wanted, set, Roles::features(n_features))),
        _ => Ok(set),
    }
}

/// What the description asks about a table.
fn asked<'a>(wanted: &Wanted<'a>) -> Asked<'a> {
    Asked { label: wanted.spec.label.as_ref(), target: wanted.spec.target.unwrap_or_default() }
}

/// A table that is read by `read`.
///
/// The training part is read even for the test, whose classes and measures must be those of the training.
fn open(
    wanted: &Wanted<'_>,
    parts: &Parts,
    read: impl Fn(&[PathBuf]) -> Result<Table, DataError>,
) -> Result<InMemory, DataError> {
    let table = read(&parts.train)?;
    let (classes, n_features, columns) = (table.classes(), table.n_features(), table.columns().clone());
    let all = table.into_set(&parts.train, classes.clone())?;
    let test = || -> Result<InMemory, DataError> {
        let table = read(&parts.test)?;
        if table.n_features() != n_features {
            let problem = format!("has {} features, the training table has {n_features}", table.n_features());
            return Err(DataError::malformed(&parts.test[0], problem));
        }
        if asked(wanted).target != Target::Class && table.classes() != classes {
            let (here, there) = (table.classes().join(", "), classes.join(", "));
            return Err(DataError::malformed(
                &parts.test[0],
                format!("asks for {here}, the training table for {there}"),
            ));
        }
        table.into_set(&parts.test, classes.clone())
    };
    let set = prepare(wanted, &all, if parts.test.is_empty() { None } else { Some(&test) }, None)?;
    Ok(with_reader(wanted, set, columns))
}

/// A set of rows that reads others with the columns that it was trained on.
fn with_reader(wanted: &Wanted<'_>, set: InMemory, columns: Roles) -> InMemory {
    set.with_reader(Arc::new(OutsideTable { columns, header: wanted.spec.header.unwrap_or_default() }))
}

/// One part of samples in memory. Without a test part, some are held back.
///
/// Without a `usual` normalisation they are standardised by the measures of the training part.
fn prepare(
    wanted: &Wanted<'_>,
    all: &InMemory,
    test: Option<&dyn Fn() -> Result<InMemory, DataError>>,
    usual: Option<Normalisation>,
) -> Result<InMemory, DataError> {
    let spec = wanted.spec;
    let hold = |split| all.only(&Wanted { split, ..*wanted }.hold_back(all.labels())?);
    let train = if test.is_none() { hold(Split::Train)? } else { all.clone() };
    let by_default = usual.is_none() && spec.mean.is_none() && spec.deviation.is_none();
    let usual = match spec.standardise.unwrap_or(by_default) {
        true => train.measure(),
        false => usual.unwrap_or_else(|| Normalisation::scaled(1.0)),
    };
    let has_numbers = matches!(all.target(), TargetKind::Numbers { .. });
    if spec.standardise_targets.is_some() && !has_numbers {
        let problem = "`standardise_targets` means nothing without `target = \"numbers\"`: what is asked for are classes; remove it";
        return Err(DataError::Setting(problem.to_owned()));
    }
    let spread = train.spread(has_numbers && spec.standardise_targets.unwrap_or(true));
    let set = match (wanted.split, test) {
        (Split::Train, _) => train,
        (Split::Test, None) => hold(Split::Test)?,
        (Split::Test, Some(test)) => test()?,
    };
    spec.normalise(set.judged_by(spread), usual)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::data::npy::tests::file;
    use crate::data::source::open;
    use crate::data::{DataError, Dataset, Split, TargetKind};

    fn part(spec: &str, path: &Path, split: Split) -> Result<Box<dyn Dataset>, DataError> {
        open(&toml::from_str(spec).unwrap(), Some(path), split, 1)
    }

    fn problem(spec: &str, path: &Path) -> String {
        part(spec, path, Split::Train).err().unwrap().to_string()
    }

    #[test]
    fn rows_of_json_lines_are_a_table() {
        let folder = tempfile::tempdir().unwrap();
        let row = |i: usize| format!("{{\"features\": [{i}, 1], \"label\": {}}}\n", i % 2);
        std::fs::write(folder.path().join("all.jsonl"), (0..40).map(row).collect::<String>()).unwrap();
        let [train, test] = [Split::Train, Split::Test].map(|split| part("", folder.path(), split).unwrap());
        assert_eq!((train.len(), test.len(), train.classes().len()), (36, 4, 2));
        let numbers = part("target = \"numbers\"", folder.path(), Split::Test).unwrap();
        assert!(
            matches!(numbers.target(), TargetKind::Numbers { n: 1, variance, .. } if (variance - 1.0).abs() < 1e-5)
        );
        let raw = part("target = \"numbers\"\nstandardise_targets = false", folder.path(), Split::Test).unwrap();
        assert!(matches!(raw.target(), TargetKind::Numbers { n: 1, variance, .. } if (variance - 0.25).abs() < 0.01));
        assert!(problem("standardise_targets = true", folder.path()).contains("without `target = \"numbers\"`"));
        assert!(
            problem("length = 8", folder.path()).contains("`length` means nothing for this data set of format `jsonl`")
        );
    }

    #[test]
    fn arrays_are_normalised_by_what_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: Vec<u8>| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("x.npy", file("|u1", "(4, 1, 1)", &[0, 51, 102, 255]));
        write("y.npy", file("|u1", "(4,)", &[0, 0, 1, 1]));
        let all = |spec: &str| {
            let sets = [Split::Train, Split::Test].map(|split| part(spec, folder.path(), split).unwrap());
            let mut inputs =
                sets.map(|set| set.batch(&(0..set.len()).collect::<Vec<usize>>()).unwrap().inputs).concat();
            inputs.sort_by(f32::total_cmp);
            inputs
        };
        assert_eq!(all(""), [0.0, 0.2, 0.4, 1.0]);
        assert_eq!(all("mean = [0.2]\ndeviation = [0.2]"), [-1.0, 0.0, 1.0, 4.0]);
        assert!(problem("standardise = true", folder.path()).contains("these samples are bytes"));
        assert!(problem("label = 1", folder.path()).contains("`label` means nothing for a data set of format `npy`"));
        write("x.npy", file("<f4", "(4, 1)", &[1.0_f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat()));
        assert!(all("")[0] < 0.0, "features are standardised");
        assert_eq!(all("standardise = false"), [1.0, 2.0, 3.0, 4.0]);
    }
}
