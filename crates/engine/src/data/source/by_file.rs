//! Sets of one file for each sample, archives of them, and the arrays of MNIST: opened by their description, with samples held back for the
//! test where there is no test part.

use std::path::Path;

use super::super::folders::{self, Listing};
use super::super::images::{self, ImageFiles, ImageFolder};
use super::super::in_memory::{InMemory, Normalisation};
use super::super::parts;
use super::super::pictures::Pictures;
use super::super::preparation::Framing;
use super::super::shards::{self, Index, ShardFiles, Shards};
use super::super::text::cache::Cache;
use super::super::{DataError, Dataset, Split, idx, known, wav};
use super::wanted::Wanted;

/// The side of a picture that networks for photographs expect.
const DEFAULT_SIZE: usize = 224;

/// Pictures.
pub(super) fn open_images(wanted: &Wanted<'_>, path: &Path) -> Result<ImageFolder, DataError> {
    let listing = list(wanted, path, images::list)?;
    ImageFiles::new(listing, framing(wanted), &wanted.spec.normalisation(known::photographs())).map(Pictures::new)
}

/// Pictures in tar archives.
pub(super) fn open_shards(wanted: &Wanted<'_>, path: &Path) -> Result<Shards, DataError> {
    let (parts, cache) = (parts::find(path, &shards::EXTENSIONS)?, Cache::beside(path));
    let all = Index::of(&parts.train, &cache)?;
    let classes = all.class_names();
    let (paths, index) = match wanted.split {
        Split::Test if !parts.test.is_empty() => (&parts.test, Index::of(&parts.test, &cache)?),
        _ if parts.test.is_empty() => {
            let labels = all.labels(path, &classes)?;
            (&parts.train, all.only(&wanted.hold_back(&labels)?))
        }
        _ => (&parts.train, all),
    };
    let normalisation = wanted.spec.normalisation(known::photographs());
    ShardFiles::new(paths, &index, classes, framing(wanted), &normalisation).map(Pictures::new)
}

fn framing(wanted: &Wanted<'_>) -> Framing {
    let size = wanted.spec.size.unwrap_or(DEFAULT_SIZE);
    Framing { resize: wanted.spec.resize.unwrap_or(size.saturating_mul(8) / 7), size }
}

/// Recordings.
pub(super) fn open_wav(wanted: &Wanted<'_>, path: &Path) -> Result<InMemory, DataError> {
    let listing = list(wanted, path, wav::list)?;
    let set = wav::compute(&listing, wanted.spec.frames.unwrap_or(wav::DEFAULT_FRAMES))?;
    wanted.spec.normalise(set, Normalisation::scaled(1.0))
}

/// Arrays of MNIST's format.
pub(super) fn open_idx(wanted: &Wanted<'_>, path: &Path) -> Result<InMemory, DataError> {
    let known = known::known_idx(wanted.spec.name.as_deref(), path);
    let classes = known.map(|known| known.classes.as_slice());
    let usual = known.map_or_else(|| Normalisation::scaled(255.0), known::KnownIdx::normalisation);
    let set = if idx::has_split(path, Split::Test) {
        idx::open(path, wanted.split, classes)?
    } else {
        let all = idx::open(path, Split::Train, classes)?;
        all.only(&wanted.hold_back(all.labels())?)?
    };
    wanted.spec.normalise(set, usual)
}

/// The files of one part, some held back where there are no parts.
fn list(
    wanted: &Wanted<'_>,
    path: &Path,
    list: fn(&Path, Split) -> Result<Listing, DataError>,
) -> Result<Listing, DataError> {
    if folders::split_folder(path, Split::Test).is_some() {
        return list(path, wanted.split);
    }
    let all = list(path, Split::Train)?;
    Ok(all.only(&wanted.hold_back(&all.labels)?))
}

#[cfg(test)]
mod tests {
    use crate::data::source::{DataSpec, open};
    use crate::data::{Split, shards};

    #[test]
    fn pictures_in_archives_are_held_back_or_have_a_part() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, range: std::ops::Range<u8>| {
            let pictures: Vec<(String, Vec<u8>)> = range
                .flat_map(|i| {
                    let class = format!("{}", i % 2).into_bytes();
                    [(format!("{i}.png"), shards::tests::png(i)), (format!("{i}.cls"), class)]
                })
                .collect();
            let pictures: Vec<(&str, &[u8])> =
                pictures.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
            shards::tests::archive(&folder.path().join(name), &pictures);
        };
        let spec: DataSpec = toml::from_str("size = 4\ntest_fraction = 0.5").unwrap();
        let sizes = || {
            let sets = [Split::Train, Split::Test].map(|split| open(&spec, Some(folder.path()), split, 0).unwrap());
            sets.iter().for_each(|set| assert_eq!(set.batch(&[0]).unwrap().inputs.len(), 48));
            sets.map(|set| set.len())
        };
        write("train-0.tar", 0..4);
        write("train-1.tar", 4..8);
        assert_eq!(sizes(), [4, 4]);
        write("val-0.tar", 8..11);
        assert_eq!(sizes(), [8, 3]);
    }
}
