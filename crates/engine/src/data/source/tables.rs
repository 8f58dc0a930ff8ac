//! Tables, opened by their description.

use std::path::Path;

use super::super::csv;
use super::super::format::csv_files;
use super::super::in_memory::{InMemory, Normalisation};
use super::super::spec::DataSpec;
use super::super::{DataError, Dataset, Split, holdout};

/// A table. The training part is read even for the test, whose classes and measures must be those of the training.
pub(super) fn open_csv(spec: &DataSpec, path: &Path, split: Split, seed: u64) -> Result<InMemory, DataError> {
    let (train_path, test_path) = csv_files(path)?;
    let read = |path: &Path| csv::read(path, spec.label.as_ref(), spec.header.unwrap_or_default());
    let table = read(&train_path)?;
    let (classes, n_features) = (table.classes(), table.n_features());
    let all = table.into_set(&train_path, classes.clone())?;
    let hold = |split| all.only(&holdout::split(all.labels(), split, spec.test_fraction(), seed)?);
    let train = if test_path.is_none() { hold(Split::Train)? } else { all.clone() };
    let by_default = spec.mean.is_none() && spec.deviation.is_none();
    let standardise = spec.standardise.unwrap_or(by_default);
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
    spec.normalise(set, usual)
}
