//! Checkpoints: the model in PyTorch's names and layouts, and beside it what is needed to go on as if nothing had happened.
//!
//! A checkpoint is a folder with two files in the safetensors format: `model.safetensors`, which any program of that world
//! can read, and `state.safetensors` with the optimizer's memories and the place in the run. It is written beside its final
//! place under another name, synced, and renamed: it is there whole or not at all, even if the process is killed in the
//! middle, by a person or by a limit of the system (one on the size of files ends programs that do not ignore SIGXFSZ).

mod atomic;
mod layout;
mod pieces;
mod runs;
mod share;
mod state;
mod weights;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::model::{Network, Part, Score};
use crate::optimizer::Optimizer;
use share::Share;

pub use atomic::write_file;
pub use pieces::PieceWriter;
pub use weights::{load_weights, save_weights, weights_from_bytes, weights_to_bytes};

/// The model's file in a checkpoint.
pub const MODEL_FILE: &str = "model.safetensors";
const STATE_FILE: &str = "state.safetensors";

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
    /// How often the run has diverged and gone back; each time the learning rate was halved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n_rollbacks: u32,
    /// Training samples that are left out because they spoil their batches, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<usize>,
    /// How far the swarm is, if one trained: what it makes of this is its own business.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<serde_json::Value>,
    /// Vectors that the swarm remembers besides; they lie in the file as tensors.
    #[serde(skip)]
    pub swarm_memories: Vec<Vec<f32>>,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl Progress {
    /// How the present epoch went so far.
    pub fn epoch_score(&self) -> Score {
        Score { loss_sum: self.epoch_loss_sum, n_correct: self.epoch_n_correct, n: self.epoch_n }
    }

    /// The same place, without what the swarm remembers.
    fn without_memories(&self) -> Self {
        let &Self { seed, step, epoch, batch, epoch_loss_sum, epoch_n_correct, epoch_n, n_rollbacks, .. } = self;
        let (left_out, swarm, swarm_memories) = (self.left_out.clone(), self.swarm.clone(), Vec::new());
        Self {
            seed,
            step,
            epoch,
            batch,
            epoch_loss_sum,
            epoch_n_correct,
            epoch_n,
            n_rollbacks,
            left_out,
            swarm,
            swarm_memories,
        }
    }

    /// Takes the samples that are left out away from batches, whose number stays.
    pub(crate) fn strike_out(&self, batches: &mut [Vec<usize>]) {
        if !self.left_out.is_empty() {
            batches.iter_mut().for_each(|batch| batch.retain(|index| self.left_out.binary_search(index).is_err()));
        }
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
    /// Writing a checkpoint failed; those before it are still there.
    #[error("cannot write {}: {source}; earlier checkpoints are untouched{}", path.display(), advice(source))]
    Save {
        /// Which one.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Writing another file failed.
    #[error("cannot write {}: {source}{}", path.display(), advice(source))]
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
    let memories = &progress.swarm_memories;
    let mut writer = PieceWriter::create(folder, network, optimizer.spec(), progress, memories.len())?;
    writer.put_share(&Share::whole(network), values, optimizer, memories)?;
    writer.finish()
}

/// Reads a checkpoint back: the parameters, and the place in the run; the optimizer gets its memories back.
pub fn load(
    folder: &Path,
    network: &Network,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    load_share(folder, network, &Share::whole(network), optimizer)
}

/// Reads a part's numbers of a checkpoint of the whole network, and nothing else: its parameters, and the place in the run with
/// its share of what the swarm remembers; its optimizer gets its memories back.
pub fn load_part(
    folder: &Path,
    network: &Network,
    part: &Part,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    load_share(folder, network, &Share::of(part), optimizer)
}

fn load_share(
    folder: &Path,
    network: &Network,
    share: &Share,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    let lens = (network.n_params(), network.n_values());
    assert!(share.fits(lens.0, lens.1), "the part belongs to another network");
    let values = weights::load_share(&folder.join(MODEL_FILE), network, share)?;
    let progress = state::load_share(&folder.join(STATE_FILE), lens, share, optimizer)?;
    Ok((values, progress))
}
