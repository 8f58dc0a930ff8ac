//! Keeps what a swarm learns: writes checkpoints beside the training.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nettorrent_engine::checkpoint::Progress;
use nettorrent_engine::learning::Learning;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;
use nettorrent_swarm::{Place, State};
use std::sync::Arc;

use super::material::Material;
use crate::run_folder::RunFolder;

/// A checkpoint that is whole on the disk.
pub(crate) struct Kept {
    pub path: PathBuf,
    pub epoch: u64,
    pub step: u64,
}

/// Writes states on a thread of its own, in order: the network must not wait for a disk.
pub(crate) struct Keeper {
    states: Sender<State>,
    kept: Receiver<anyhow::Result<Kept>>,
    thread: JoinHandle<()>,
}

impl Keeper {
    pub(crate) fn start(run: RunFolder, material: &Material) -> anyhow::Result<Self> {
        let (states, orders) = channel::<State>();
        let (answers, kept) = channel();
        let (learning, seed, keep) = (material.learning.clone(), material.job.seed, material.job.checkpoint.keep);
        let thread = std::thread::Builder::new().name("keeper".into()).spawn(move || {
            for state in orders {
                // If nobody wants to know, it is kept all the same.
                let _ = answers.send(write(&run, &learning, seed, &state, keep));
            }
        })?;
        Ok(Self { states, kept, thread })
    }

    /// Has a state written.
    pub(crate) fn keep(&self, state: State) {
        // Only a panic ends the thread, and `finish` tells of that.
        let _ = self.states.send(state);
    }

    /// What was written since the last call.
    pub(crate) fn news(&self) -> impl Iterator<Item = anyhow::Result<Kept>> {
        self.kept.try_iter()
    }

    /// Waits until all is written.
    pub(crate) fn finish(self) -> anyhow::Result<Vec<anyhow::Result<Kept>>> {
        drop(self.states);
        let rest = self.kept.iter().collect();
        self.thread.join().map_err(|_| anyhow!("the thread that writes checkpoints has failed"))?;
        Ok(rest)
    }
}

/// Writes a state at once.
pub(crate) fn save(run: &RunFolder, material: &Material, state: &State) -> anyhow::Result<Kept> {
    write(run, &material.learning, material.job.seed, state, material.job.checkpoint.keep)
}

fn write(run: &RunFolder, learning: &Learning, seed: u64, state: &State, keep: usize) -> anyhow::Result<Kept> {
    let State { values, optimizer, place, memories } = state;
    let (epoch, step) = (place.ledger.epoch, place.step);
    let swarm = Some(serde_json::to_value(place).context("cannot write how far the swarm is")?);
    let swarm_memories = memories.clone();
    let progress = Progress { seed, step, epoch, swarm, swarm_memories, ..Progress::default() };
    let path = run.save(learning.network(), values, optimizer, &progress, keep)?;
    Ok(Kept { path, epoch, step })
}

/// Reads a state back from a checkpoint.
pub(crate) fn load(run: &RunFolder, checkpoint: &std::path::Path, material: &Material) -> anyhow::Result<State> {
    let Material { job, learning, .. } = material;
    let mut optimizer = Optimizer::new(job.optimizer.clone(), learning.n_params());
    let (values, progress) = run.load(checkpoint, learning.network(), &mut optimizer)?;
    let place: Place = match progress.swarm {
        Some(place) => serde_json::from_value(place).context("the checkpoint does not say how far the swarm was")?,
        // It was one machine's: a swarm goes on from the beginning of the epoch that it was in.
        None => Place::at_epoch(progress.epoch, progress.step, progress.epoch * learning.labels().len() as u64),
    };
    Ok(State { values: Arc::new(values), optimizer, place, memories: progress.swarm_memories })
}
