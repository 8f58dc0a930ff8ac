//! Keeps what a swarm learns: writes checkpoints beside the training.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use nettorrent_engine::checkpoint::{PieceWriter, Progress};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_swarm::{Place, SavedBlock, State};

use super::prepared_job::PreparedJob;
use crate::run_folder::RunFolder;

/// A checkpoint that is whole on the disk.
pub(crate) struct Kept {
    pub path: PathBuf,
    pub epoch: u64,
    pub step: u64,
}

/// What is to be written.
enum Order {
    /// A whole state.
    State(State),
    /// A block of one.
    Block(SavedBlock),
}

/// Writes states on a thread of its own, in order: the network must not wait for a disk.
pub(crate) struct CheckpointWriter {
    orders: Sender<Order>,
    /// Says that a block is written, and whether one is being.
    written: Receiver<()>,
    is_writing: Cell<bool>,
    kept: Receiver<anyhow::Result<Kept>>,
    thread: JoinHandle<()>,
}

impl CheckpointWriter {
    pub(crate) fn start(run: RunFolder, prepared: &PreparedJob) -> anyhow::Result<Self> {
        let (sender, orders) = channel::<Order>();
        let (answers, kept) = channel();
        let (done, written) = channel();
        let (learning, seed, keep) = (prepared.learning.clone(), prepared.job.seed, prepared.job.checkpoint.keep);
        let optimizer = prepared.job.optimizer.clone();
        let thread = std::thread::Builder::new().name("checkpoints".into()).spawn(move || {
            let (run, learning) = (&run, &*learning);
            let mut pieces = Pieces { run, learning, optimizer: &optimizer, seed, keep, writer: None };
            for order in orders {
                let kept = match order {
                    Order::State(state) => Some(write(run, learning, seed, &state, keep)),
                    Order::Block(block) => {
                        let kept = pieces.put(&block).transpose();
                        drop(block);
                        let _ = done.send(());
                        kept
                    }
                };
                // If nobody wants to know, it is kept all the same.
                kept.into_iter().for_each(|kept| drop(answers.send(kept)));
            }
        })?;
        Ok(Self { orders: sender, written, is_writing: Cell::new(false), kept, thread })
    }

    /// Has a state written.
    pub(crate) fn keep(&self, state: State) {
        // Only a panic ends the thread, and `finish` tells of that.
        let _ = self.orders.send(Order::State(state));
    }

    /// Has a block of a layer network written. When all have come, the checkpoint is whole.
    ///
    /// It waits for the block before to be written: who trains a network that is larger than its memory must not have all of it
    /// waiting for the disk.
    pub(crate) fn keep_block(&self, block: SavedBlock) {
        if self.is_writing.replace(true) {
            // If the thread is gone, `finish` tells of that.
            let _ = self.written.recv();
        }
        let _ = self.orders.send(Order::Block(block));
    }

    /// What was written since the last call.
    pub(crate) fn news(&self) -> impl Iterator<Item = anyhow::Result<Kept>> {
        self.kept.try_iter()
    }

    /// Waits until all is written.
    pub(crate) fn finish(self) -> anyhow::Result<Vec<anyhow::Result<Kept>>> {
        drop(self.orders);
        let rest = self.kept.iter().collect();
        self.thread.join().map_err(|_| anyhow!("the thread that writes checkpoints has failed"))?;
        Ok(rest)
    }
}

/// Writes parameters that a run is to begin with at once.
pub(crate) fn save_values(run: &RunFolder, prepared: &PreparedJob, values: &[f32]) -> anyhow::Result<Kept> {
    let state = State::from_values(prepared.setup.training(), values.to_vec());
    write(run, &prepared.learning, prepared.job.seed, &state, prepared.job.checkpoint.keep)
}

/// A checkpoint of a layer network that is being written block by block: the whole is never in memory.
struct Pieces<'a> {
    run: &'a RunFolder,
    learning: &'a Learning,
    optimizer: &'a OptimizerSpec,
    seed: u64,
    keep: usize,
    writer: Option<(PieceWriter, PathBuf)>,
}

impl Pieces<'_> {
    fn put(&mut self, block: &SavedBlock) -> anyhow::Result<Option<Kept>> {
        let SavedBlock { part, state, is_first, is_last } = block;
        let (epoch, step) = (state.place.ledger.epoch, state.place.step);
        if *is_first {
            let progress = progress(self.seed, &state.place, Vec::new())?;
            let path = self.run.checkpoint_path(step);
            self.writer = None;
            if !path.exists() {
                let n_memories = state.memories.len();
                let layout = self.learning.layout();
                let writer = PieceWriter::create(&path, layout, self.optimizer, &progress, n_memories)?;
                self.writer = Some((writer, path));
            }
        }
        let Some((writer, _)) = &mut self.writer else { return Ok(None) };
        writer.put(part, &state.values, &state.optimizer, &state.memories)?;
        if !is_last {
            return Ok(None);
        }
        let Some((writer, path)) = self.writer.take() else { return Ok(None) };
        writer.finish()?;
        self.run.remove_old(self.keep)?;
        Ok(Some(Kept { path, epoch, step }))
    }
}

fn progress(seed: u64, place: &Place, swarm_memories: Vec<Vec<f32>>) -> anyhow::Result<Progress> {
    let (epoch, step) = (place.ledger.epoch, place.step);
    let swarm = Some(serde_json::to_value(place).context("cannot write how far the swarm is")?);
    Ok(Progress { seed, step, epoch, swarm, swarm_memories, ..Progress::default() })
}

fn write(run: &RunFolder, learning: &Learning, seed: u64, state: &State, keep: usize) -> anyhow::Result<Kept> {
    let State { values, optimizer, place, memories } = state;
    let (epoch, step) = (place.ledger.epoch, place.step);
    let progress = progress(seed, place, memories.clone())?;
    let path = run.save(learning.layout(), values, optimizer, &progress, keep)?;
    Ok(Kept { path, epoch, step })
}
