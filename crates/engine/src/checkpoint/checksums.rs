//! Check sums of a checkpoint's tensors, in a file beside them: what a disk has damaged is noticed before anybody trains on with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::error::CheckpointError;
use super::file_layout::{FileLayout, TensorPlace};

/// The file of check sums in a checkpoint.
const CHECKSUMS_FILE: &str = "checksums.json";
const FORMAT: &str = "nettorrent-sha256/1";
/// How many bytes are read at once.
const BLOCK: usize = 1 << 18;

/// The check sums of all files of a checkpoint: SHA-256 in hexadecimal digits.
#[derive(Serialize, Deserialize)]
struct Checksums {
    format: String,
    files: BTreeMap<String, FileChecksums>,
}

/// The check sums of one file.
#[derive(Serialize, Deserialize)]
pub(super) struct FileChecksums {
    /// Of all that stands before the tensors.
    header: String,
    /// By name.
    tensors: BTreeMap<String, String>,
}

/// Writes the check sums of these files of a folder beside them.
pub(super) fn write(folder: &Path, names: &[&str]) -> io::Result<()> {
    let mut files = BTreeMap::new();
    for &name in names {
        let mut file = File::open(folder.join(name))?;
        let layout = FileLayout::read(&mut file).map_err(io::Error::other)?;
        let mut tensors = BTreeMap::new();
        for (tensor, place) in layout.tensors() {
            tensors.insert(tensor, sum(&mut file, place.first, place.n_bytes)?);
        }
        files.insert(name.to_owned(), FileChecksums { header: sum(&mut file, 0, layout.header_end())?, tensors });
    }
    let text = serde_json::to_vec(&Checksums { format: FORMAT.to_owned(), files })?;
    fs::write(folder.join(CHECKSUMS_FILE), text)
}

/// Whether a file is whole: it can be read, and if it has check sums, they are right.
pub(super) fn verify(path: &Path) -> Result<(), CheckpointError> {
    let unreadable = |source: io::Error| CheckpointError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let layout =
        FileLayout::read(&mut file).map_err(|error| CheckpointError::malformed(path, format!("damaged ({error})")))?;
    let Some(sums) = FileChecksums::of(path)? else { return Ok(()) };
    let mut problem = sums.check_header(&mut file, &layout).map_err(unreadable)?;
    for (name, place) in layout.tensors() {
        if problem.is_none() {
            problem = sums.check(&mut file, &name, &place).map_err(unreadable)?;
        }
    }
    problem.map_or(Ok(()), |problem| Err(CheckpointError::malformed(path, problem)))
}

impl FileChecksums {
    /// Those of a file, if there are any beside it: checkpoints of earlier versions have none.
    pub(super) fn of(path: &Path) -> Result<Option<Self>, CheckpointError> {
        let beside = path.with_file_name(CHECKSUMS_FILE);
        let text = match fs::read(&beside) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.map_err(|source| CheckpointError::Read { path: beside.clone(), source })?,
        };
        let sums: Checksums = serde_json::from_slice(&text)
            .map_err(|error| CheckpointError::malformed(&beside, format!("damaged ({error})")))?;
        if sums.format != FORMAT {
            let problem = format!("its format is `{}`, and this program reads `{FORMAT}`", sums.format);
            return Err(CheckpointError::malformed(&beside, problem));
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(sums.files.into_iter().find_map(|(file, sums)| (file == name).then_some(sums)))
    }

    /// Why what stands before the tensors is damaged, if it is.
    pub(super) fn check_header(
        &self,
        file: &mut (impl Read + Seek),
        layout: &FileLayout,
    ) -> io::Result<Option<String>> {
        let is_right = sum(file, 0, layout.header_end())? == self.header;
        Ok((!is_right).then(|| damage("what stands before its tensors")))
    }

    /// Why a tensor is damaged, if it is.
    pub(super) fn check(
        &self,
        file: &mut (impl Read + Seek),
        name: &str,
        place: &TensorPlace,
    ) -> io::Result<Option<String>> {
        let is_right = self.tensors.get(name) == Some(&sum(file, place.first, place.n_bytes)?);
        Ok((!is_right).then(|| damage(&format!("the tensor `{name}`"))))
    }
}

fn damage(what: &str) -> String {
    format!("{what} is damaged: it is not what was written")
}

fn sum(file: &mut (impl Read + Seek), first: u64, n_bytes: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(first))?;
    let (mut context, mut block, mut n_left) = (Context::new(&SHA256), vec![0; BLOCK], n_bytes);
    while n_left > 0 {
        let n = n_left.min(BLOCK as u64) as usize;
        file.read_exact(&mut block[..n])?;
        context.update(&block[..n]);
        n_left -= n as u64;
    }
    Ok(context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::CHECKSUMS_FILE;
    use crate::checkpoint::{MODEL_FILE, Progress, STATE_FILE, load, load_weights, save, verify};
    use crate::model::Layout;
    use crate::optimizer::{Optimizer, OptimizerSpec};

    #[test]
    fn every_bit_that_a_disk_turns_is_noticed_and_the_tensor_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step-1");
        let layout = Layout::of_tensors([("fc.bias", [2].as_slice()), ("fc.weight", [2, 3].as_slice())]);
        let spec = OptimizerSpec { momentum: 0.5, ..OptimizerSpec::default() };
        let mut optimizer = Optimizer::new(spec, 8);
        let progress = Progress { swarm_vectors: vec![vec![2.0; 8].into()], ..Progress::default() };
        save(&path, &layout, &[1.0; 8], &optimizer, &progress).unwrap();
        verify(&path).unwrap();
        for name in [MODEL_FILE, STATE_FILE] {
            let file = path.join(name);
            let whole = fs::read(&file).unwrap();
            for at in 0..whole.len() {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << (at % 8);
                fs::write(&file, damaged).unwrap();
                assert!(verify(&path).is_err(), "byte {at} of {name}");
                assert!(load(&path, &layout, &mut optimizer).is_err() || name == MODEL_FILE, "byte {at} of {name}");
            }
            let mut damaged = whole.clone();
            *damaged.last_mut().unwrap() ^= 1;
            fs::write(&file, damaged).unwrap();
            let message = load(&path, &layout, &mut optimizer).unwrap_err().to_string();
            let tensor = if name == MODEL_FILE { "`fc.weight`" } else { "`swarm.memory.0`" };
            for part in [name, tensor, "is damaged"] {
                assert!(message.contains(part), "{message}");
            }
            assert_eq!(load_weights(&path.join(MODEL_FILE), &layout).is_err(), name == MODEL_FILE);
            // Checkpoints of earlier versions have no check sums.
            fs::rename(path.join(CHECKSUMS_FILE), folder.path().join("aside")).unwrap();
            load(&path, &layout, &mut optimizer).unwrap();
            verify(&path).unwrap();
            fs::rename(folder.path().join("aside"), path.join(CHECKSUMS_FILE)).unwrap();
            fs::write(&file, whole).unwrap();
        }
        fs::write(path.join(CHECKSUMS_FILE), "{").unwrap();
        assert!(load(&path, &layout, &mut optimizer).unwrap_err().to_string().contains(CHECKSUMS_FILE));
    }
}
