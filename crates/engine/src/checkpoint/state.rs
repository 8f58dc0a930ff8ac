//! What is needed to go on with a run, as a safetensors file: the optimizer's state vectors, the swarm's, and a note with the place.
//!
//! Its vectors lie as in memory, all the trained numbers one after the other (and, in the swarm's, the running statistics
//! behind them).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Arc;

use safetensors::SafeTensorError;
use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};

use super::checksums::FileChecksums;
use super::error::CheckpointError;
use super::file_layout::{FileLayout, TensorPlace};
use super::progress::Progress;
use super::runs;
use super::share::Share;
use crate::model::{Init, Tensor};
use crate::optimizer::{Optimizer, OptimizerSpec};

const FORMAT: &str = "nettorrent-state/1";
/// The note in the state's file. It is a single one, because safetensors writes several in any order, and the same state
/// must always give the same bytes.
const NOTE_KEY: &str = "nettorrent";

/// What the note says, as JSON.
#[derive(Serialize, Deserialize)]
struct Note<P> {
    format: String,
    optimizer_steps: u64,
    progress: P,
}

/// Which vectors a state has, and how long they are.
pub(super) struct Vectors {
    optimizer: &'static [&'static str],
    n_of_swarm: usize,
    n_params: usize,
    n_values: usize,
}

impl Vectors {
    pub(super) fn new(optimizer: &OptimizerSpec, n_of_swarm: usize, n_params: usize, n_values: usize) -> Self {
        Self { optimizer: optimizer.state_names(), n_of_swarm, n_params, n_values }
    }

    /// The layout of a state's file, and the bytes that it begins with.
    pub(super) fn layout(&self, n_steps: u64, progress: &Progress) -> (FileLayout, Vec<u8>) {
        let of_optimizer = self.optimizer.iter().map(|&name| (name.to_owned(), vec![self.n_params]));
        let of_swarm = (0..self.n_of_swarm).map(|k| (swarm_vector(k), vec![self.n_values]));
        let note = Note { format: FORMAT.to_owned(), optimizer_steps: n_steps, progress };
        let note = serde_json::to_string(&note).expect("plain numbers can be written");
        FileLayout::new(of_optimizer.chain(of_swarm).collect(), (NOTE_KEY, note))
    }

    /// Why these are not a share's state vectors, if they are not.
    pub(super) fn refuse(
        &self,
        share: &Share,
        optimizer: &Optimizer,
        of_swarm: &[Arc<Vec<f32>>],
    ) -> Option<&'static str> {
        let (names, lens): (Vec<&str>, Vec<usize>) =
            optimizer.state().1.map(|(name, vector)| (name, vector.len())).unzip();
        if names != self.optimizer || lens.iter().any(|&len| len != share.n_params) {
            return Some("a part of it was trained by another optimizer");
        }
        if of_swarm.len() != self.n_of_swarm || of_swarm.iter().any(|vector| vector.len() != share.n_values) {
            return Some("the state vectors of its parts differ in number or length");
        }
        None
    }

    /// Writes a share's state vectors, which were not refused, to their places in a file of this layout.
    pub(super) fn write(
        &self,
        file: &mut (impl Write + Seek),
        layout: &FileLayout,
        share: &Share,
        optimizer: &Optimizer,
        of_swarm: &[Arc<Vec<f32>>],
    ) -> io::Result<()> {
        let places = layout.tensors();
        for (name, vector) in optimizer.state().1 {
            write_vector(file, &places[name], self.n_params, share, vector)?;
        }
        for (k, vector) in of_swarm.iter().enumerate() {
            write_vector(file, &places[&swarm_vector(k)], self.n_values, share, vector)?;
        }
        Ok(())
    }
}

/// Reads a share of a state: the place in the run with the swarm's state vectors; the optimizer gets its own back. The network has
/// so many trained numbers, and so many with its running statistics.
pub(super) fn load_share(
    path: &Path,
    (n_params, n_values): (usize, usize),
    share: &Share,
    optimizer: &mut Optimizer,
) -> Result<Progress, CheckpointError> {
    let unreadable = |source: io::Error| CheckpointError::Read { path: path.to_owned(), source };
    let (mut file, layout) = open(path)?;
    let sums = FileChecksums::of(path)?;
    let check = |problem: io::Result<Option<String>>| match problem.map_err(unreadable)? {
        Some(problem) => Err(CheckpointError::malformed(path, problem)),
        None => Ok(()),
    };
    if let Some(sums) = &sums {
        check(sums.check_header(&mut file, &layout))?;
    }
    let Note { optimizer_steps, mut progress, .. } = read_note(path, &layout)?;
    let places = layout.tensors();
    let place = |name: &str| places.get(name).filter(|place| place.dtype == Dtype::F32);
    let names: Vec<&'static str> = optimizer.state().1.map(|(name, _)| name).collect();
    let mut vectors = BTreeMap::new();
    for name in names {
        if let Some(place) = place(name).filter(|place| place.shape == [n_params]) {
            sums.iter().try_for_each(|sums| check(sums.check(&mut file, name, place)))?;
            vectors.insert(name, read_vector(&mut file, place, n_params, share).map_err(unreadable)?);
        }
    }
    for k in 0.. {
        let name = swarm_vector(k);
        let Some(place) = place(&name) else { break };
        if place.shape != [n_values] {
            return Err(CheckpointError::malformed(
                path,
                format!("`{name}` has the shape {:?} and should have [{n_values}]", place.shape),
            ));
        }
        sums.iter().try_for_each(|sums| check(sums.check(&mut file, &name, place)))?;
        progress.swarm_vectors.push(Arc::new(read_vector(&mut file, place, n_values, share).map_err(unreadable)?));
    }
    if !optimizer.restore(optimizer_steps, |name| vectors.remove(name)) {
        let problem = "it was written by another optimizer than the job's; bring the job's optimizer back, or start a new \
                       run from the model alone with --weights";
        return Err(CheckpointError::malformed(path, problem));
    }
    Ok(progress)
}

/// Reads only the place in the run, without the swarm's state vectors.
pub(super) fn progress(path: &Path) -> Result<Progress, CheckpointError> {
    Ok(read_note(path, &open(path)?.1)?.progress)
}

fn open(path: &Path) -> Result<(File, FileLayout), CheckpointError> {
    let unreadable = |source: io::Error| CheckpointError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(unreadable)?;
    let layout = FileLayout::read(&mut file).map_err(|error| match error {
        SafeTensorError::IoError(source) => unreadable(source),
        error => CheckpointError::malformed(path, format!("damaged ({error})")),
    })?;
    Ok((file, layout))
}

fn read_note(path: &Path, layout: &FileLayout) -> Result<Note<Progress>, CheckpointError> {
    let note = layout
        .note(NOTE_KEY)
        .ok_or_else(|| CheckpointError::malformed(path, format!("the note `{NOTE_KEY}` is missing")))?;
    let bad = |error| CheckpointError::malformed(path, format!("bad note: {error}"));
    let note: serde_json::Value = serde_json::from_str(note).map_err(bad)?;
    // Looked at first, for the rest of another format may look different.
    if note["format"] != FORMAT {
        let found = &note["format"];
        return Err(CheckpointError::malformed(
            path,
            format!("its format is {found}, and this program reads \"{FORMAT}\""),
        ));
    }
    serde_json::from_value(note).map_err(bad)
}

/// The name of a vector that the swarm remembers.
fn swarm_vector(k: usize) -> String {
    format!("swarm.memory.{k}")
}

fn write_vector(
    file: &mut (impl Write + Seek),
    place: &TensorPlace,
    len: usize,
    share: &Share,
    numbers: &[f32],
) -> io::Result<()> {
    runs::write(file, place, &vector(len), &share.within(&(0..len)), numbers)
}

fn read_vector(file: &mut (impl Read + Seek), place: &TensorPlace, len: usize, share: &Share) -> io::Result<Vec<f32>> {
    let spans = share.within(&(0..len));
    let mut numbers = vec![0.0; spans.iter().map(|span| span.len).sum()];
    runs::read(file, place, &vector(len), &spans, &mut numbers)?;
    Ok(numbers)
}

/// A vector of the state as a tensor that lies in the file as in memory.
fn vector(len: usize) -> Tensor {
    Tensor::plain("vector", &[len], Init::Constant(0.0))
}
