//! Checkpoints: the model in PyTorch's names and layouts, and beside it what is needed to go on as if nothing had happened.
//!
//! A checkpoint is a folder with two files in the safetensors format: `model.safetensors`, which any program of that world
//! can read, and `state.safetensors` with the optimizer's state vectors and the place in the run. Beside them `checksums.json` has a
//! SHA-256 of every tensor, which is checked when it is read. It is written beside its final place under another name, synced, and renamed: it is there whole or not at all, even if the process is killed in the
//! middle, by a person or by a limit of the system (one on the size of files ends programs that do not ignore SIGXFSZ).

mod checksums;
mod error;
mod file_layout;
mod pieces;
mod progress;
mod runs;
mod share;
mod state;
mod weights;

use std::path::Path;

use crate::model::{Layout, Part};
use crate::optimizer::Optimizer;
use pieces::STATE_FILE;
use share::Share;

pub use error::CheckpointError;
pub use pieces::{MODEL_FILE, PieceWriter};
pub use progress::Progress;
pub use weights::{load_weights, save_weights};

/// Writes a checkpoint as a folder, which must not exist yet.
pub fn save(
    folder: &Path,
    layout: &Layout,
    values: &[f32],
    optimizer: &Optimizer,
    progress: &Progress,
) -> Result<(), CheckpointError> {
    let vectors = &progress.swarm_vectors;
    let mut writer = PieceWriter::create(folder, layout, optimizer.spec(), progress, vectors.len())?;
    writer.put_share(&Share::whole(layout), values, optimizer, vectors)?;
    writer.finish()
}

/// Whether a checkpoint is whole, whatever model it is of: its files can be read, and all check sums are right.
pub fn verify(folder: &Path) -> Result<(), CheckpointError> {
    verify_model(folder)?;
    checksums::verify(&folder.join(STATE_FILE))
}

/// The same of its model alone.
pub fn verify_model(folder: &Path) -> Result<(), CheckpointError> {
    checksums::verify(&folder.join(MODEL_FILE))
}

/// Reads how far a checkpoint is, and nothing else of it.
pub fn progress(folder: &Path) -> Result<Progress, CheckpointError> {
    state::progress(&folder.join(STATE_FILE))
}

/// Reads a checkpoint back: the parameters, and the place in the run; the optimizer gets its state back.
pub fn load(
    folder: &Path,
    layout: &Layout,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    load_share(folder, layout, &Share::whole(layout), optimizer)
}

/// Reads a part's numbers of a checkpoint of the whole network, and nothing else: its parameters, and the place in the run with
/// its share of what the swarm remembers; its optimizer gets its state back.
pub fn load_part(
    folder: &Path,
    layout: &Layout,
    part: &Part,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    load_share(folder, layout, &Share::of(part), optimizer)
}

fn load_share(
    folder: &Path,
    layout: &Layout,
    share: &Share,
    optimizer: &mut Optimizer,
) -> Result<(Vec<f32>, Progress), CheckpointError> {
    let lens = (layout.n_params(), layout.n_values());
    assert!(share.fits(lens.0, lens.1), "the part belongs to another model");
    let values = weights::load_share(&folder.join(MODEL_FILE), layout, share)?;
    let progress = state::load_share(&folder.join(STATE_FILE), lens, share, optimizer)?;
    Ok((values, progress))
}
