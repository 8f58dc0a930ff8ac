//! Checkpoints: the model in PyTorch's names and layouts, and beside it what is needed to go on as if nothing had happened.
//!
//! A checkpoint is a folder with two files in the safetensors format: `model.safetensors`, which any program of that world
//! can read, and `state.safetensors` with the optimizer's memories and the place in the run. It is written beside its final
//! place under another name, synced, and renamed: it is there whole or not at all, even if the process is killed in the
//! middle, by a person or by a limit of the system (one on the size of files ends programs that do not ignore SIGXFSZ).

mod atomic;
mod weights;

use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};

use crate::model::{Network, Score};
use crate::optimizer::Optimizer;

pub use atomic::{write_file, write_folder};
pub use weights::{load_weights, save_weights, weights_from_bytes, weights_to_bytes};

/// The model's file in a checkpoint.
pub const MODEL_FILE: &str = "model.safetensors";
const STATE_FILE: &str = "state.safetensors";
const FORMAT: &str = "nettorrent-state/1";
/// The note in the state's file. It is a single one, because safetensors writes several in any order, and the same state
/// must always give the same bytes.
const NOTE_KEY: &str = "nettorrent";

/// What the note says, as JSON.
#[derive(Serialize, Deserialize)]
struct Note {
    format: String,
    optimizer_steps: u64,
    progress: Progress,
}

/// Where a run stands. All randomness is a function of the job's seed and these numbers, so they are the random state too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// The job's seed.
    pub seed: u64,
    /// Steps taken.
    pub step: u64,
    /// Epochs finished.
    pub epoch: u64,
    /// Batches of the present epoch done.
    pub batch: usize,
    /// How the present epoch went so far.
    pub epoch_loss_sum: f64,
    /// See `epoch_loss_sum`.
    pub epoch_n_correct: usize,
    /// See `epoch_loss_sum`.
    pub epoch_n: usize,
    /// How far the swarm is, if one trained: what it makes of this is its own business.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<serde_json::Value>,
    /// Vectors that the swarm remembers besides; they lie in the file as tensors.
    #[serde(skip)]
    pub swarm_memories: Vec<Vec<f32>>,
}

impl Progress {
    /// How the present epoch went so far.
    pub fn epoch_score(&self) -> Score {
        Score { loss_sum: self.epoch_loss_sum, n_correct: self.epoch_n_correct, n: self.epoch_n }
    }

    pub(crate) fn set_epoch_score(&mut self, score: Score) {
        self.epoch_loss_sum = score.loss_sum;
        self.epoch_n_correct = score.n_correct;
        self.epoch_n = score.n;
    }
}

/// What went wrong with a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Writing failed; what was there before is still there.
    #[error("cannot write {}: {source}; earlier checkpoints are untouched{}", path.display(), advice(source))]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
}

/// What to do about a failed write, to be put after its message.
fn advice(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "; make room on the disk and resume the run"
        }
        std::io::ErrorKind::FileTooLarge => {
            "; files this large are not allowed here: raise the limit (`ulimit -f`) and resume the run"
        }
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a folder that can be written"
        }
        _ => "",
    }
}

impl CheckpointError {
    pub(crate) fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.into() }
    }
}

/// Writes a checkpoint as a folder, which must not exist yet.
pub fn save(
    folder: &Path,
    network: &Network,
    values: &[f32],
    optimizer: &Optimizer,
    progress: &Progress,
) -> Result<(), CheckpointError> {
    let model = weights_to_bytes(network, values);
    let state = state_to_bytes(optimizer, progress);
    write_folder(folder, &[(MODEL_FILE, &model), (STATE_FILE, &state)])
}

/// Reads a checkpoint back: the parameters, and the place in the run; the optimizer gets its memories back.
pub fn load(
    folder: &Path,
    network: &Network,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    let values = load_weights(&folder.join(MODEL_FILE), network)?;
    let path = folder.join(STATE_FILE);
    let bytes = std::fs::read(&path).map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
    let progress = state_from_bytes(&path, &bytes, optimizer)?;
    Ok((values, progress))
}

fn state_to_bytes(optimizer: &Optimizer, progress: &Progress) -> Vec<u8> {
    let (n_steps, memories) = optimizer.state();
    let bytes = |memory: &[f32]| memory.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let of_swarm = progress.swarm_memories.iter().enumerate().map(|(k, memory)| (swarm_memory(k), bytes(memory)));
    let memories: Vec<(String, Vec<u8>)> =
        memories.map(|(name, memory)| (name.to_owned(), bytes(memory))).chain(of_swarm).collect();
    let views = memories.iter().map(|(name, bytes)| {
        let view = TensorView::new(Dtype::F32, vec![bytes.len() / 4], bytes).expect("as many bytes as it says");
        (name, view)
    });
    let note = Note { format: FORMAT.to_owned(), optimizer_steps: n_steps, progress: progress.clone() };
    let note = serde_json::to_string(&note).expect("plain numbers can be written");
    let metadata = [(NOTE_KEY.to_owned(), note)].into_iter().collect();
    safetensors::serialize(views, Some(metadata)).expect("the names differ and the sizes are right")
}

/// The name of a vector that the swarm remembers.
fn swarm_memory(k: usize) -> String {
    format!("swarm.memory.{k}")
}

fn state_from_bytes(path: &Path, bytes: &[u8], optimizer: &mut Optimizer) -> Result<Progress, CheckpointError> {
    let damaged = |why: String| {
        CheckpointError::malformed(path, format!("{why}; use an earlier checkpoint, or start from the model alone"))
    };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| damaged(format!("damaged ({error})")))?;
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| damaged(format!("damaged ({error})")))?;
    let note = header.metadata().as_ref().and_then(|notes| notes.get(NOTE_KEY));
    let note = note.ok_or_else(|| damaged(format!("the note `{NOTE_KEY}` is missing")))?;
    let note: serde_json::Value = serde_json::from_str(note).map_err(|error| damaged(format!("bad note: {error}")))?;
    // Looked at first, for the rest of another format may look different.
    if note["format"] != FORMAT {
        let found = &note["format"];
        return Err(CheckpointError::malformed(
            path,
            format!("its format is {found}, and this program reads \"{FORMAT}\""),
        ));
    }
    let Note { optimizer_steps, mut progress, .. } =
        serde_json::from_value(note).map_err(|error| damaged(format!("bad note: {error}")))?;
    let memory = |name: &str| {
        let tensor = tensors.tensor(name).ok().filter(|tensor| tensor.dtype() == Dtype::F32)?;
        Some(tensor.data().as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    progress.swarm_memories = (0..).map_while(|k| memory(&swarm_memory(k))).collect();
    if !optimizer.restore(optimizer_steps, memory) {
        let problem = "it was written by another optimizer than the job's; bring the job's optimizer back, or start a new \
                       run from the model alone with --weights";
        return Err(CheckpointError::malformed(path, problem));
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::{Progress, state_from_bytes, state_to_bytes};
    use crate::optimizer::{Optimizer, OptimizerSpec};

    #[test]
    fn what_a_swarm_remembers_comes_back() {
        let optimizer = Optimizer::new(OptimizerSpec { momentum: 0.9, ..OptimizerSpec::default() }, 2);
        for swarm_memories in [vec![], vec![vec![1.0, 2.0, 3.0]], vec![vec![0.5; 3], vec![-1.0; 3]]] {
            let progress = Progress { step: 7, swarm_memories, ..Progress::default() };
            let bytes = state_to_bytes(&optimizer, &progress);
            let back = state_from_bytes("state".as_ref(), &bytes, &mut optimizer.clone()).unwrap();
            assert_eq!(back, progress);
        }
    }
}
