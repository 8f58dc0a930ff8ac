//! Tables, opened by their description.

use std::path::{Path, PathBuf};

use super::super::csv;
use super::super::format::csv_files;
use super::super::in_memory::{InMemory, Normalisation};
use super::super::parts::Parts;
use super::super::spec::DataSpec;
use super::super::table::{Asked, Table, Target};
use super::super::{DataError, Dataset, Split, holdout};

/// A table as text.
pub(super) fn open_csv(spec: &DataSpec, path: &Path, split: Split, seed: u64) -> Result<InMemory, DataError> {
    let (train, test) = csv_files(path)?;
    let parts = Parts { train: vec![train], test: test.into_iter().collect() };
    let read = |paths: &[PathBuf]| csv::read(&paths[0], asked(spec), spec.header.unwrap_or_default());
    open(spec, &parts, split, seed, read)
}

/// What the description asks about a table.
pub(super) fn asked(spec: &DataSpec) -> Asked<'_> {
    Asked { label: spec.label.as_ref(), target: spec.target.unwrap_or_default() }
}

/// A table that is read by `read`.
///
/// The training part is read even for the test, whose classes and measures must be those of the training.
pub(super) fn open(
    spec: &DataSpec,
    parts: &Parts,
    split: Split,
    seed: u64,
    read: impl Fn(&[PathBuf]) -> Result<Table, DataError>,
) -> Result<InMemory, DataError> {
    let table = read(&parts.train)?;
    let (classes, n_features) = (table.classes(), table.n_features());
    let all = table.into_set(&parts.train, classes.clone())?;
    let test = || -> Result<InMemory, DataError> {
        let table = read(&parts.test)?;
        if table.n_features() != n_features {
            let problem = format!("has {} features, the training table has {n_features}", table.n_features());
            return Err(DataError::malformed(&parts.test[0], problem));
        }
        if spec.target.unwrap_or_default() != Target::Class && table.classes() != classes {
            let (here, there) = (table.classes().join(", "), classes.join(", "));
            return Err(DataError::malformed(
                &parts.test[0],
                format!("asks for {here}, the training table for {there}"),
            ));
        }
        table.into_set(&parts.test, classes.clone())
    };
    prepare(spec, &all, if parts.test.is_empty() { None } else { Some(&test) }, split, seed)
}

/// One part of samples in memory, measured on the training part. Without a test part, some are held back.
pub(super) fn prepare(
    spec: &DataSpec,
    all: &InMemory,
    test: Option<&dyn Fn() -> Result<InMemory, DataError>>,
    split: Split,
    seed: u64,
) -> Result<InMemory, DataError> {
    let hold = |split| all.only(&holdout::split(all.labels(), split, spec.test_fraction(), seed)?);
    let train = if test.is_none() { hold(Split::Train)? } else { all.clone() };
    let by_default = spec.mean.is_none() && spec.deviation.is_none();
    let standardise = spec.standardise.unwrap_or(by_default);
    let usual = if standardise { train.measure() } else { Normalisation::scaled(1.0) };
    let spread = train.spread(spec.standardise_targets.unwrap_or(false));
    let set = match (split, test) {
        (Split::Train, _) => train,
        (Split::Test, None) => hold(Split::Test)?,
        (Split::Test, Some(test)) => test()?,
    };
    spec.normalise(set.judged_by(&spread), usual)
}
