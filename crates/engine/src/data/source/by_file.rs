//! Sets of one file for each sample, and the arrays of MNIST: opened by their description, with samples held back for the
//! test where there is no test part.

use std::path::Path;

use super::super::folders::{self, Listing};
use super::super::images::{self, Framing, ImageFolder};
use super::super::in_memory::{InMemory, Normalisation};
use super::super::spec::DataSpec;
use super::super::{DataError, Dataset, Split, holdout, idx, known, wav};

/// The side of a picture that networks for photographs expect.
const DEFAULT_SIZE: usize = 224;

/// Pictures.
pub(super) fn open_images(spec: &DataSpec, path: &Path, split: Split, seed: u64) -> Result<ImageFolder, DataError> {
    let listing = list(spec, path, split, seed, images::list)?;
    let size = spec.size.unwrap_or(DEFAULT_SIZE);
    let framing = Framing { resize: spec.resize.unwrap_or(size.saturating_mul(8) / 7), size };
    ImageFolder::new(listing, framing, &spec.normalisation(known::photographs()))
}

/// Recordings.
pub(super) fn open_wav(spec: &DataSpec, path: &Path, split: Split, seed: u64) -> Result<InMemory, DataError> {
    let listing = list(spec, path, split, seed, wav::list)?;
    let set = wav::compute(&listing, spec.frames.unwrap_or(wav::DEFAULT_FRAMES))?;
    spec.normalise(set, Normalisation::scaled(1.0))
}

/// Arrays of MNIST's format.
pub(super) fn open_idx(spec: &DataSpec, path: &Path, split: Split, seed: u64) -> Result<InMemory, DataError> {
    let known = known::known_idx(spec.name.as_deref(), path);
    let classes = known.map(|known| known.classes.as_slice());
    let usual = known.map_or_else(|| Normalisation::scaled(255.0), known::KnownIdx::normalisation);
    let set = if idx::has_split(path, Split::Test) {
        idx::open(path, split, classes)?
    } else {
        let all = idx::open(path, Split::Train, classes)?;
        all.only(&holdout::split(all.labels(), split, spec.test_fraction(), seed)?)?
    };
    spec.normalise(set, usual)
}

/// The files of one part, some held back where there are no parts.
fn list(
    spec: &DataSpec,
    path: &Path,
    split: Split,
    seed: u64,
    list: fn(&Path, Split) -> Result<Listing, DataError>,
) -> Result<Listing, DataError> {
    if folders::split_folder(path, Split::Test).is_some() {
        return list(path, split);
    }
    let all = list(path, Split::Train)?;
    Ok(all.only(&holdout::split(&all.labels, split, spec.test_fraction(), seed)?))
}
