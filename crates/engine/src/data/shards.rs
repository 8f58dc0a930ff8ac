//! Tar archives of pictures, as WebDataset has them: `NAME.jpg` or `.png` and its class in `NAME.cls` or `NAME.json`.
//!
//! The archives are looked through once to find where each picture is; pictures are decoded from there as they are asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tar::Archive;

use super::files::Mapped;
use super::in_memory::Normalisation;
use super::names::sort_classes;
use super::pictures::{PictureFiles, Pictures};
use super::preparation::{Framing, Preparation};
use super::text::cache::Cache;
use super::text::documents::fingerprint;
use super::{DataError, files};

/// How such archives are called.
pub(crate) const EXTENSIONS: [&str; 1] = ["tar"];
/// The fields of a `.json` file that may hold the class, in the order they are looked for.
const CLASS_FIELDS: [&str; 3] = ["label", "cls", "class"];
/// The most that a file with a class can hold, in bytes.
const MAX_CLASS_LEN: u64 = 1 << 20;

/// What was found in archives.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Index {
    pictures: Vec<Picture>,
    /// The class of each picture.
    classes: Vec<String>,
}

/// Where a picture is.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Picture {
    /// In which archive.
    shard: usize,
    offset: u64,
    n_bytes: u64,
}

impl Index {
    /// What is in these archives, as it was found before or as it is found now.
    pub(crate) fn of(paths: &[PathBuf], cache: &Cache) -> Result<Self, DataError> {
        let name = format!("index-{}.json", fingerprint(paths, &["pictures"])?);
        let parse = |json: &str| serde_json::from_str::<Self>(json);
        let make = || Ok(serde_json::to_string(&look_through(paths)?).expect("an index is JSON"));
        let json = cache.text(&name, |json| parse(json).is_ok(), make)?;
        parse(&json).map_err(|error| DataError::malformed(&paths[0], error.to_string()))
    }

    /// The names of the classes, sorted.
    pub(crate) fn class_names(&self) -> Vec<String> {
        let mut names = self.classes.clone();
        names.sort();
        names.dedup();
        sort_classes(&mut names);
        names
    }

    /// The labels of all pictures by these classes: those of the training part, for both parts.
    pub(crate) fn labels(&self, path: &Path, names: &[String]) -> Result<Vec<u32>, DataError> {
        let numbers: BTreeMap<&str, u32> = names.iter().map(String::as_str).zip(0..).collect();
        let number = |class: &String| {
            numbers.get(class.as_str()).copied().ok_or_else(|| {
                DataError::malformed(path, format!("has the class `{class}`, which the training part has not"))
            })
        };
        self.classes.iter().map(number).collect()
    }

    /// Only the pictures with these indices, in this order.
    pub(crate) fn only(&self, indices: &[usize]) -> Self {
        Self {
            pictures: indices.iter().map(|&index| self.pictures[index]).collect(),
            classes: indices.iter().map(|&index| self.classes[index].clone()).collect(),
        }
    }
}

/// Pictures in archives.
pub(crate) type Shards = Pictures<ShardFiles>;

/// Archives that are read where their pictures are.
pub(crate) struct ShardFiles {
    paths: Vec<PathBuf>,
    maps: Vec<Mapped>,
    pictures: Vec<Picture>,
    classes: Vec<String>,
    labels: Vec<u32>,
    preparation: Preparation,
}

impl ShardFiles {
    /// The pictures of an index of these archives.
    pub(crate) fn new(
        paths: &[PathBuf],
        index: &Index,
        classes: Vec<String>,
        framing: Framing,
        normalisation: &Normalisation,
    ) -> Result<Self, DataError> {
        let maps: Vec<Mapped> = paths.iter().map(|path| Mapped::open(path)).collect::<Result<_, DataError>>()?;
        for Picture { shard, offset, n_bytes } in &index.pictures {
            let len = maps.get(*shard).map_or(0, |map| map.len() as u64);
            if offset.checked_add(*n_bytes).is_none_or(|end| end > len) {
                let path = paths.get(*shard).unwrap_or(&paths[0]);
                return Err(DataError::malformed(path, "ends within a picture; it was cut off: get it again"));
            }
        }
        let labels = index.labels(&paths[0], &classes)?;
        let preparation = Preparation::new(framing, normalisation)?;
        Ok(Self { paths: paths.to_vec(), maps, pictures: index.pictures.clone(), classes, labels, preparation })
    }
}

impl PictureFiles for ShardFiles {
    fn preparation(&self) -> &Preparation {
        &self.preparation
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn origin(&self, index: usize) -> String {
        let Picture { shard, offset, .. } = self.pictures[index];
        format!("{}, byte {offset}", self.paths[shard].display())
    }

    fn pixels(&self, index: usize) -> Result<Vec<u8>, DataError> {
        let Picture { shard, offset, n_bytes } = self.pictures[index];
        let bytes = &self.maps[shard].bytes()?[offset as usize..(offset + n_bytes) as usize];
        self.preparation.pixels(&self.paths[shard].join(format!("byte {offset}")), bytes)
    }
}

/// What is known of a sample so far.
#[derive(Default)]
struct Found {
    picture: Option<Picture>,
    class: Option<String>,
}

fn look_through(paths: &[PathBuf]) -> Result<Index, DataError> {
    let mut index = Index::default();
    for (shard, path) in paths.iter().enumerate() {
        for (name, found) in look_into(shard, path)? {
            let missing = match (found.picture, found.class) {
                (Some(picture), Some(class)) => {
                    index.pictures.push(picture);
                    index.classes.push(class);
                    continue;
                }
                (Some(_), None) => "a class: add NAME.cls with its name or number",
                (None, _) => "a picture: add NAME.jpg or NAME.png",
            };
            return Err(DataError::malformed(path, format!("the sample `{name}` lacks {missing}")));
        }
    }
    if index.pictures.is_empty() {
        return Err(DataError::malformed(&paths[0], "holds no pictures; expected NAME.jpg or NAME.png, and NAME.cls"));
    }
    Ok(index)
}

/// The samples of one archive by name.
fn look_into(shard: usize, path: &Path) -> Result<BTreeMap<String, Found>, DataError> {
    use std::io::Read;

    let damaged = |error: std::io::Error| {
        DataError::malformed(
            path,
            format!("cannot be read as a tar archive ({error}); it is damaged or was cut off: get it again"),
        )
    };
    let (file, _) = files::open(path)?;
    let mut samples: BTreeMap<String, Found> = BTreeMap::new();
    for entry in Archive::new(file).entries_with_seek().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || files::name_of(Path::new(&name)).starts_with('.') {
            continue;
        }
        let Some((sample, ending)) = split_name(&name) else { continue };
        let ending = ending.to_ascii_lowercase();
        let is_class = ["cls", "json"].contains(&ending.as_str());
        let is_picture = ["jpeg", "jpg", "png"].contains(&ending.as_str());
        if !is_class && !is_picture {
            continue;
        }
        let n_bytes = entry.size();
        let found = samples.entry(sample.to_owned()).or_default();
        if is_picture {
            found.picture = Some(Picture { shard, offset: entry.raw_file_position(), n_bytes });
            continue;
        }
        if n_bytes > MAX_CLASS_LEN {
            return Err(DataError::malformed(path, format!("`{name}` has {n_bytes} bytes, too many for a class")));
        }
        let mut content = String::new();
        entry.read_to_string(&mut content).map_err(damaged)?;
        let class = if ending == "cls" { Some(content.trim().to_owned()) } else { class_in(&content) };
        // A .json file may say something else about a picture whose class is in its .cls file.
        if ending == "cls" || found.class.is_none() {
            found.class = class.filter(|class| !class.is_empty()).or(found.class.take());
        }
    }
    Ok(samples)
}

/// A sample's name, and what its file holds: all after the first dot of the file's name.
fn split_name(path: &str) -> Option<(&str, &str)> {
    let start = path.rfind('/').map_or(0, |slash| slash + 1);
    let dot = start + path[start..].find('.')?;
    Some((&path[..dot], &path[dot + 1..]))
}

fn class_in(json: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let class = CLASS_FIELDS.iter().find_map(|field| value.get(field)).unwrap_or(&value);
    match class {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::Path;

    use super::{Index, ShardFiles, Shards, split_name};
    use crate::data::in_memory::Normalisation;
    use crate::data::pictures::Pictures;
    use crate::data::preparation::Framing;
    use crate::data::text::cache::Cache;
    use crate::data::{DataError, Dataset};
    use crate::rng::Rng;

    pub(crate) fn png(grey: u8) -> Vec<u8> {
        let mut bytes = std::io::Cursor::new(Vec::new());
        image::RgbImage::from_pixel(4, 4, image::Rgb([grey; 3])).write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    pub(crate) fn archive(path: &Path, files: &[(&str, &[u8])]) {
        let mut tar = tar::Builder::new(std::fs::File::create(path).unwrap());
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
        tar.finish().unwrap();
    }

    fn open(folder: &Path) -> Result<Shards, DataError> {
        let paths = [folder.join("0.tar"), folder.join("1.tar")];
        let index = Index::of(&paths, &Cache::beside(folder))?;
        let framing = Framing { resize: 4, size: 4 };
        ShardFiles::new(&paths, &index, index.class_names(), framing, &Normalisation::scaled(255.0)).map(Pictures::new)
    }

    #[test]
    fn pictures_are_found_and_read_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let long = format!("{}/b.PNG", "very-long-name/".repeat(12));
        let class = long.replace("PNG", "cls");
        archive(
            &folder.path().join("0.tar"),
            &[("a.png", &png(51)), ("a.cls", b"10\n"), ("a.txt", b"a cat"), ("readme", b"")],
        );
        let json = b"{\"label\": 9}";
        archive(
            &folder.path().join("1.tar"),
            &[(&long, &png(102)), (&class, b"9"), ("x/c.json", json), ("x/c.jpg", &png(255))],
        );
        for _ in 0..2 {
            let set = open(folder.path()).unwrap();
            assert_eq!((set.shape(), set.labels()), ([4, 4, 3].as_slice(), [1, 0, 0].as_slice()));
            assert_eq!(set.classes(), ["9", "10"], "numbers are sorted as numbers");
            let batch = set.batch(&[1, 0, 2]).unwrap();
            assert_eq!((batch.inputs[0], batch.inputs[48], batch.inputs[96]), (0.4, 0.2, 1.0));
            assert!(set.origin(0).unwrap().ends_with("0.tar, byte 512") && set.origin(3).is_none());
        }
        let index = Index::of(&[folder.path().join("0.tar")], &Cache::beside(folder.path())).unwrap();
        assert!(index.labels(Path::new("t"), &["9".to_owned()]).unwrap_err().to_string().contains("the class `10`"));
        assert_eq!(index.only(&[0, 0]).class_names(), ["10"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        archive(&folder.path().join("1.tar"), &[("c.png", &png(1)), ("c.cls", b"0")]);
        let problem = |files: &[(&str, &[u8])]| {
            archive(&folder.path().join("0.tar"), files);
            open(folder.path()).err().unwrap().to_string()
        };
        assert!(problem(&[("a.png", &png(1))]).contains("0.tar: the sample `a` lacks a class"));
        assert!(problem(&[("a.cls", b"0")]).contains("the sample `a` lacks a picture"));
        assert!(problem(&[("a.png", &png(1)), ("a.cls", b" ")]).contains("lacks a class"));
        let path = folder.path().join("0.tar");
        archive(&path, &[("b.cls", b"0"), ("b.png", &vec![7; 2000])]);
        assert!(open(folder.path()).unwrap().batch(&[0]).unwrap_err().to_string().contains("0.tar/byte 1536"));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..2000]).unwrap();
        assert!(open(folder.path()).err().unwrap().to_string().contains("cut off"));
        std::fs::write(&path, vec![b'x'; 2000]).unwrap();
        assert!(open(folder.path()).err().unwrap().to_string().contains("cannot be read as a tar archive"));
        assert_eq!((split_name("a.b/c.seg.png"), split_name("x")), (Some(("a.b/c", "seg.png")), None));
    }

    #[cfg(unix)]
    #[test]
    fn an_archive_that_becomes_shorter_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        archive(&folder.path().join("0.tar"), &[("a.cls", b"0"), ("a.png", &png(51))]);
        archive(&folder.path().join("1.tar"), &[("c.png", &png(1)), ("c.cls", b"0")]);
        let set = open(folder.path()).unwrap();
        std::fs::File::options().write(true).open(folder.path().join("0.tar")).unwrap().set_len(600).unwrap();
        assert!(set.batch(&[1]).is_ok());
        let error = set.batch(&[0]).unwrap_err().to_string();
        assert!(error.contains("0.tar: it has become shorter"), "{error}");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let folder = tempfile::tempdir().unwrap();
        archive(&folder.path().join("1.tar"), &[("c.png", &png(1)), ("c.cls", b"0")]);
        let path = folder.path().join("0.tar");
        archive(&path, &[("a.png", &png(51)), ("a.cls", b"10\n")]);
        let whole = std::fs::read(&path).unwrap();
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut bytes = whole.clone();
            // The size of the first file, or anything.
            let end = if seed % 2 == 0 { 136 } else { bytes.len() };
            for _ in 0..rng.below(6) {
                let at = rng.below(end);
                bytes[at] = if seed % 2 == 0 { b'0' + (rng.below(8) as u8) } else { rng.next_u64() as u8 };
            }
            let sum: u32 = bytes[..512]
                .iter()
                .enumerate()
                .map(|(at, &byte)| if (148..156).contains(&at) { 32 } else { u32::from(byte) })
                .sum();
            bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            std::fs::write(&path, bytes).unwrap();
            if let Ok(set) = open(folder.path()) {
                let _ = set.batch(&(0..set.len()).collect::<Vec<usize>>());
            }
        }
    }
}
