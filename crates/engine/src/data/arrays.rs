//! Samples and labels as NumPy arrays: `.npy` files with the usual names, or an `.npz` archive of them.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use memmap2::Mmap;
use zip::ZipArchive;

use super::answers::Answers;
use super::columns::Target;
use super::in_memory::{InMemory, Samples};
use super::npy::{self, Array};
use super::{DataError, IGNORED, Split, files};

/// The names of samples and of what is asked about them, in the order they are looked for.
const TRAIN_NAMES: [(&str, &str); 2] = [("x_train", "y_train"), ("train_images", "train_labels")];
const TEST_NAMES: [(&str, &str); 5] = [
    ("x_test", "y_test"),
    ("test_images", "test_labels"),
    ("x_val", "y_val"),
    ("val_images", "val_labels"),
    ("x_valid", "y_valid"),
];
const WHOLE_NAMES: [(&str, &str); 6] =
    [("x", "y"), ("X", "y"), ("data", "labels"), ("data", "target"), ("images", "labels"), ("features", "labels")];
/// The largest label that can be a class.
const MAX_CLASS: i64 = 1 << 20;

/// Where arrays are.
enum Place {
    /// A folder of `.npy` files.
    Folder(PathBuf),
    /// An `.npz` archive.
    Archive(PathBuf),
}

/// Whether there are arrays to train on in this folder, or in this file.
pub(crate) fn are_here(path: &Path) -> bool {
    Place::find(path).is_ok_and(|place| place.names(Split::Train).is_ok_and(|names| names.is_some()))
}

/// Whether the set has this part.
pub(crate) fn has_test(path: &Path) -> bool {
    Place::find(path).is_ok_and(|place| place.names(Split::Test).is_ok_and(|names| names.is_some()))
}

/// The samples of one part, or all where the set has no parts. Not yet normalised.
pub(crate) fn open(path: &Path, split: Split, target: Option<Target>) -> Result<InMemory, DataError> {
    let place = Place::find(path)?;
    let Some((inputs_name, answers_name)) = place.names(split)? else {
        let known = TRAIN_NAMES.iter().chain(&WHOLE_NAMES).map(|(x, y)| format!("{x} and {y}"));
        let known: Vec<String> = known.collect();
        return Err(DataError::malformed(
            path,
            format!("holds no arrays of a known name; looked for: {}", known.join(", ")),
        ));
    };
    let (inputs_path, inputs) = place.read(inputs_name)?;
    let inputs = npy::parse(&inputs_path, inputs.bytes())?;
    let (answers_path, answers) = place.read(answers_name)?;
    let answers = npy::parse(&answers_path, answers.bytes())?;
    let (n_inputs, n_answers) = (inputs.dimensions.first().copied(), answers.dimensions.first().copied());
    if n_inputs != n_answers || n_inputs.is_none() {
        let problem = format!(
            "has the dimensions {:?}, and {} has {:?}: both begin with the number of samples",
            inputs.dimensions,
            answers_path.display(),
            answers.dimensions
        );
        return Err(DataError::malformed(&inputs_path, problem));
    }
    let (shape, samples) = samples(&inputs).map_err(|problem| DataError::malformed(&inputs_path, problem))?;
    let malformed = |problem: String| DataError::malformed(&answers_path, problem);
    let target = target.unwrap_or(if answers.is_whole() { Target::Class } else { Target::Numbers });
    let (n_columns, n_positions) = (answers.dimensions[1..].iter().product::<usize>(), n_positions(&shape, &answers));
    let names = |n: usize| (0..n).map(|place| place.to_string()).collect::<Vec<String>>();
    match target {
        Target::Class => {
            let labels = labels(&answers, n_positions).map_err(malformed)?;
            let classes = names(place.n_classes(&shape)?.max(n_classes(&labels)));
            if classes.is_empty() && !labels.is_empty() {
                let problem =
                    "no position has a class: all values are negative, which says that they are not asked about";
                return Err(malformed(problem.to_owned()));
            }
            match n_positions {
                1 => InMemory::new(shape, classes, labels, samples),
                _ => InMemory::with_answers(shape, classes, Answers::Positions(labels), samples),
            }
        }
        Target::Labels => {
            let values = answers.floats().map_err(malformed)?;
            if let Some(at) = values.iter().position(|&value| value != 0.0 && value != 1.0) {
                return Err(malformed(format!("value {at} is {}; labels are 0 or 1", values[at])));
            }
            InMemory::with_answers(shape, names(n_columns), Answers::Labels(values), samples)
        }
        Target::Numbers => {
            let values = answers.floats().map_err(malformed)?;
            InMemory::with_answers(shape, names(n_columns / n_positions), Answers::Numbers(values), samples)
        }
    }
}

/// The shape of a sample and all of them: bytes stay bytes. Pictures of one colour get a dimension for it.
fn samples(array: &Array<'_>) -> Result<(Vec<usize>, Samples), String> {
    let mut shape = array.dimensions[1..].to_vec();
    if shape.is_empty() || (shape.len() == 2 && array.bytes().is_some()) {
        shape.push(1);
    }
    let samples = match array.bytes() {
        Some(bytes) => Samples::Bytes(bytes.to_vec()),
        None => Samples::Floats(array.floats()?),
    };
    Ok((shape, samples))
}

/// How many positions of a sample are asked about one by one: pixels of a picture, steps of a sequence. 1 where `y` says something about
/// the sample as a whole.
fn n_positions(shape: &[usize], answers: &Array<'_>) -> usize {
    let positions = &shape[..shape.len() - 1];
    if answers.dimensions[1..].starts_with(positions) { positions.iter().product() } else { 1 }
}

/// How many classes there have to be for these.
fn n_classes(labels: &[u32]) -> usize {
    labels.iter().filter(|&&label| label != IGNORED).map(|&label| label as usize + 1).max().unwrap_or(0)
}

/// The class of each sample or position. A position with a negative number is not asked about.
fn labels(array: &Array<'_>, n_positions: usize) -> Result<Vec<u32>, String> {
    if !array.is_whole() {
        return Err(
            "holds no whole numbers, so it names no classes; leave out `target`, or set it to \"numbers\"".to_owned()
        );
    }
    if array.dimensions[1..].iter().product::<usize>() != n_positions {
        return Err(format!(
            "has the dimensions {:?}, so it holds no one class for each sample, nor for each of its positions; set `target` to \"labels\" \
             or \"numbers\"",
            array.dimensions
        ));
    }
    let label = |(at, label): (usize, i64)| match label {
        0..=MAX_CLASS => Ok(label as u32),
        ..0 if n_positions > 1 => Ok(IGNORED),
        _ => Err(format!(
            "value {at} is {label}; classes are 0 to {MAX_CLASS}. Set `target = \"numbers\"` to predict numbers"
        )),
    };
    array.whole().enumerate().map(label).collect()
}

/// The bytes of an array: mapped from a file, or unpacked.
enum Bytes {
    Mapped(Option<Mmap>),
    Unpacked(Vec<u8>),
}

impl Bytes {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map.as_deref().unwrap_or_default(),
            Self::Unpacked(bytes) => bytes,
        }
    }
}

impl Place {
    fn find(path: &Path) -> Result<Self, DataError> {
        if !path.is_dir() {
            return match path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("npz")) {
                true => Ok(Self::Archive(path.to_owned())),
                false => {
                    let problem = "is one array; name the folder with x_train.npy and y_train.npy, or an .npz archive";
                    Err(DataError::malformed(path, problem))
                }
            };
        }
        let is_archive = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "npz");
        let archives: Vec<PathBuf> = files::list(path)?.into_iter().filter(is_archive).collect();
        match archives.as_slice() {
            [only] => Ok(Self::Archive(only.clone())),
            [] => Ok(Self::Folder(path.to_owned())),
            _ => Err(DataError::malformed(
                path,
                format!("holds {} .npz archives; name the one to be read", archives.len()),
            )),
        }
    }

    /// The names of a part's arrays, if they are there; without a training part, those of the whole set.
    fn names(&self, split: Split) -> Result<Option<(&'static str, &'static str)>, DataError> {
        let here: Vec<String> = match self {
            Self::Folder(folder) => files::list(folder)?.iter().map(|path| files::name_of(path)).collect(),
            Self::Archive(path) => unzip(path)?.file_names().flatten().map(Cow::into_owned).collect(),
        };
        let is_here = |name: &str| here.iter().any(|other| other.strip_suffix(".npy") == Some(name));
        let find =
            |names: &[(&'static str, &'static str)]| names.iter().find(|(x, y)| is_here(x) && is_here(y)).copied();
        Ok(match split {
            Split::Train => find(&TRAIN_NAMES).or_else(|| find(&WHOLE_NAMES)),
            Split::Test => find(&TRAIN_NAMES).and_then(|_| find(&TEST_NAMES)),
        })
    }

    /// The bytes of one array, and what to call it.
    fn read(&self, name: &str) -> Result<(PathBuf, Bytes), DataError> {
        match self {
            Self::Folder(folder) => {
                let path = folder.join(format!("{name}.npy"));
                let map = files::map(&path)?;
                Ok((path, Bytes::Mapped(map)))
            }
            Self::Archive(archive) => {
                let path = archive.join(format!("{name}.npy"));
                let damaged = |error: &dyn std::fmt::Display| {
                    DataError::malformed(&path, format!("cannot be unpacked ({error}); get the archive again"))
                };
                let mut zip = unzip(archive)?;
                let mut file = zip.by_name(&files::name_of(&path)).map_err(|error| damaged(&error))?;
                // Grown as it comes: the length that the archive claims is not to be trusted.
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(|error| damaged(&error))?;
                Ok((path, Bytes::Unpacked(bytes)))
            }
        }
    }

    /// How many classes both parts need.
    fn n_classes(&self, shape: &[usize]) -> Result<usize, DataError> {
        let mut n = 0;
        for split in [Split::Train, Split::Test] {
            if let Some((_, name)) = self.names(split)? {
                let (path, bytes) = self.read(name)?;
                let array = npy::parse(&path, bytes.bytes())?;
                let labels = labels(&array, n_positions(shape, &array))
                    .map_err(|problem| DataError::malformed(&path, problem))?;
                n = n.max(n_classes(&labels));
            }
        }
        Ok(n)
    }
}

fn unzip(path: &Path) -> Result<ZipArchive<File>, DataError> {
    let (file, _) = files::open(path)?;
    ZipArchive::new(file).map_err(|error| {
        DataError::malformed(
            path,
            format!("is no archive that can be read ({error}); get it again, or save it with numpy.savez"),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use zip::write::SimpleFileOptions;

    use super::{are_here, has_test, open};
    use crate::data::columns::Target;
    use crate::data::npy::tests::file;
    use crate::data::{Dataset, IGNORED, Split, TargetKind, Targets};

    fn pixels() -> Vec<u8> {
        file("|u1", "(3, 2, 2)", &(0..12).collect::<Vec<u8>>())
    }

    fn long(values: &[i64]) -> Vec<u8> {
        file(
            "<i8",
            &format!("({},)", values.len()),
            &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(),
        )
    }

    fn folder(arrays: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        arrays
            .iter()
            .for_each(|(name, bytes)| std::fs::write(folder.path().join(format!("{name}.npy")), bytes).unwrap());
        folder
    }

    fn archive(path: &Path, arrays: &[(&str, Vec<u8>)]) {
        let mut zip = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
        for (name, bytes) in arrays {
            zip.start_file(format!("{name}.npy"), SimpleFileOptions::default()).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap();
    }

    #[test]
    fn folders_and_archives_hold_the_same() {
        let arrays = [
            ("x_train", pixels()),
            ("y_train", file("|u1", "(3,)", &[0, 2, 1])),
            ("x_test", file("|u1", "(1, 2, 2)", &[9; 4])),
            ("y_test", file("|u1", "(1,)", &[4])),
        ];
        let folder = folder(&arrays);
        let outside = tempfile::tempdir().unwrap();
        archive(&outside.path().join("mnist.npz"), &arrays);
        for path in [folder.path(), outside.path(), &outside.path().join("mnist.npz")] {
            assert!(are_here(path) && has_test(path));
            let (train, test) = (open(path, Split::Train, None).unwrap(), open(path, Split::Test, None).unwrap());
            assert_eq!((train.shape(), train.labels()), ([2, 2, 1].as_slice(), [0, 2, 1].as_slice()));
            assert_eq!((train.classes().len(), test.classes().len(), test.labels()), (5, 5, [4].as_slice()));
            assert_eq!(train.batch(&[1]).unwrap().inputs, [4.0, 5.0, 6.0, 7.0]);
        }
    }

    #[test]
    fn fractions_are_numbers_to_predict() {
        let floats = [0.5_f32, 1.5, 2.5].map(f32::to_le_bytes).concat();
        let folder = folder(&[("x", file("<f4", "(3, 1)", &floats)), ("y", file("<f4", "(3,)", &floats))]);
        let set = open(folder.path(), Split::Train, None).unwrap();
        assert!(matches!(set.target(), TargetKind::Numbers { n: 1, .. }) && !has_test(folder.path()));
        assert_eq!((set.shape(), set.targets(&[2]).unwrap()), ([1].as_slice(), Targets::Numbers(vec![2.5])));
        assert!(
            open(folder.path(), Split::Train, Some(Target::Class))
                .unwrap_err()
                .to_string()
                .contains("no whole numbers")
        );
    }

    #[test]
    fn several_labels_and_whole_numbers_to_predict() {
        let folder = folder(&[("data", pixels()), ("labels", file("|u1", "(3, 2)", &[0, 1, 1, 1, 0, 0]))]);
        let error = open(folder.path(), Split::Train, None).unwrap_err().to_string();
        assert!(error.contains("labels.npy: has the dimensions [3, 2]") && error.contains("\"labels\""), "{error}");
        assert_eq!(open(folder.path(), Split::Train, Some(Target::Labels)).unwrap().target(), TargetKind::Labels);
        let numbers = open(folder.path(), Split::Train, Some(Target::Numbers)).unwrap();
        assert_eq!(numbers.targets(&[1]).unwrap(), Targets::Numbers(vec![1.0, 1.0]));
    }

    #[test]
    fn positions_have_classes_or_numbers_of_their_own() {
        let masks = [0, 1, 1, 0, 0, 0, 0, 1, -1, 0, 1, 2].map(i64::to_le_bytes).concat();
        let masked = folder(&[("x", pixels()), ("y", file("<i8", "(3, 2, 2)", &masks))]);
        let set = open(masked.path(), Split::Train, None).unwrap();
        assert_eq!((set.target(), set.classes().len()), (TargetKind::Positions { n: 4 }, 3));
        assert_eq!(set.targets(&[2, 0]).unwrap(), Targets::Classes(vec![IGNORED, 0, 1, 2, 0, 1, 1, 0]));
        assert_eq!(set.only(&[1]).unwrap().targets(&[0]).unwrap(), Targets::Classes(vec![0, 0, 0, 1]));
        let colours: Vec<u8> = (0_u8..24).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let painted = folder(&[("x", pixels()), ("y", file("<f4", "(3, 2, 2, 2)", &colours))]);
        let set = open(painted.path(), Split::Train, None).unwrap();
        let set = set.clone().judged_by(set.spread(true));
        assert!(
            matches!(set.target(), TargetKind::Numbers { n: 2, n_positions: 4, variance } if (variance - 1.0).abs() < 1e-5)
        );
        let Targets::Numbers(mut numbers) = set.targets(&[1]).unwrap() else { panic!("numbers are asked for") };
        set.restore(&mut numbers);
        assert!(
            numbers.iter().zip(8..).all(|(number, expected)| (number - expected as f32).abs() < 1e-4),
            "{numbers:?}"
        );
        let none = file("<i8", "(3, 2, 2)", &[-1_i64; 12].map(i64::to_le_bytes).concat());
        let error = open(folder(&[("x", pixels()), ("y", none)]).path(), Split::Train, None).unwrap_err().to_string();
        assert!(error.contains("y.npy: no position has a class"), "{error}");
        let wide = file("|u1", "(3, 2, 2, 2)", &[0; 24]);
        let error = open(folder(&[("x", pixels()), ("y", wide)]).path(), Split::Train, None).unwrap_err().to_string();
        assert!(error.contains("nor for each of its positions"), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let problem =
            |arrays: &[(&str, Vec<u8>)]| open(folder(arrays).path(), Split::Train, None).unwrap_err().to_string();
        assert!(problem(&[("x", pixels())]).contains("no arrays of a known name"));
        assert!(problem(&[("x", pixels()), ("y", long(&[0, 1]))]).contains("x.npy: has the dimensions [3, 2, 2]"));
        assert!(
            problem(&[("x", pixels()), ("y", long(&[0, -1, 2]))]).contains("y.npy: value 1 is -1; classes are 0 to")
        );
        assert!(problem(&[("x", pixels()), ("y", long(&[0, 1 << 40, 2]))]).contains("value 1 is 1099511627776"));
        assert!(problem(&[("x", pixels()), ("y", b"nonsense".to_vec())]).contains("y.npy: is no file of NumPy"));
        let outside = tempfile::tempdir().unwrap();
        let path = outside.path().join("a.npz");
        archive(&path, &[("x", pixels()), ("y", long(&[0, 1, 2]))]);
        let whole = std::fs::read(&path).unwrap();
        assert!(open(&path, Split::Train, None).is_ok());
        for bytes in [&whole[..whole.len() / 2], b"", b"PK\x03\x04"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(open(&path, Split::Train, None).unwrap_err().to_string().contains("a.npz: is no archive"));
        }
        assert!(
            open(&outside.path().join("x.npy"), Split::Train, None)
                .unwrap_err()
                .to_string()
                .contains("name the folder")
        );
    }
}
