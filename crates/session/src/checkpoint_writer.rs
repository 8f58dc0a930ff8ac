//! Keeps what a swarm learns: writes checkpoints beside the training.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use nettorrent_engine::checkpoint::{PieceWriter, Progress};
use nettorrent_engine::job::{CheckpointSpec, Job};
use nettorrent_engine::model::Layout;
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_net::ticket::Ticket;
use nettorrent_swarm::{Place, SavedBlock, State};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

use crate::disk::Disk;
use crate::error::SessionError;
use crate::run_folder::RunFolder;
use crate::training::Training;
use crate::write_queue::{Order, WriteQueue};

/// A checkpoint that is whole on the disk.
pub struct Kept {
    /// Where.
    pub path: PathBuf,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
}

/// What was done.
pub enum Written {
    /// A checkpoint is whole on the disk.
    Kept(Kept),
    /// One is not.
    Failed {
        /// Epochs done.
        epoch: u64,
        /// Steps done.
        step: u64,
        /// Why.
        problem: SessionError,
    },
    /// One was taken out of the way: it is of a course that is void.
    SetAside(PathBuf),
    /// One could not be taken out of the way, an old one not be removed, or the ticket not be written.
    NotMoved(SessionError),
}

/// Has states written in order, beside the training.
pub struct CheckpointWriter {
    orders: Arc<WriteQueue>,
    news: Receiver<Written>,
    /// Comes when all is written; nothing comes if what writes has panicked.
    done: oneshot::Receiver<()>,
    /// Whether a thread of its own writes, for which one can wait without waiting for oneself.
    has_thread: bool,
}

impl CheckpointWriter {
    /// Begins to write into a run's folder on a disk; when a block is written or given up, it calls `on_block` with whether
    /// it is written. Needs a runtime.
    pub fn start(
        run: RunFolder,
        disk: Disk,
        training: &Training,
        on_block: impl AsyncFn(bool) + Send + 'static,
    ) -> Result<Self, SessionError> {
        let orders = Arc::new(WriteQueue::default());
        let (answers, news) = channel();
        let (ended, done) = oneshot::channel();
        let has_thread = matches!(disk, Disk::Here);
        let Job { seed, checkpoint: CheckpointSpec { keep, .. }, .. } = training.job;
        let (task, optimizer) = (training.task.clone(), training.job.optimizer.clone());
        let queue = Orders(orders.clone());
        let write = move || async move {
            let mut folder = Folder { run, layout: task.layout(), optimizer, seed, keep, pieces: None };
            folder.serve(&queue.0, &disk, &answers, on_block).await;
            drop(answers);
            // Who does not wait for the end does not want to know.
            let _ = ended.send(());
        };
        if has_thread {
            let runtime = tokio::runtime::Handle::current();
            std::thread::Builder::new().name("checkpoints".into()).spawn(move || runtime.block_on(write()))?;
        } else {
            spawn_local(write());
        }
        Ok(Self { orders, news, done, has_thread })
    }

    /// Has a state written. If the disk is slow, it takes the place of one that waits; the epochs of that one are returned.
    pub fn keep(&self, state: State) -> Option<u64> {
        self.orders.push(Order::State(Box::new(state))).map(|older| older.place.ledger.epoch)
    }

    /// Has a block of a layer network written. When all have come, the checkpoint is whole. Who trains a network that is larger than its
    /// memory gives the next one when this one is written.
    pub fn keep_block(&self, block: SavedBlock) {
        self.orders.push(Order::Block(block));
    }

    /// Has the swarm's present ticket written, so that it can be shown again.
    pub fn keep_ticket(&self, ticket: Ticket) {
        self.orders.push(Order::Ticket(ticket));
    }

    /// Training goes on from an earlier step: has the checkpoints of later ones taken out of the way.
    pub fn set_aside_after(&self, step: u64) {
        self.orders.push(Order::SetAside { step });
    }

    /// Waits until what was ordered is done, where a thread does it.
    pub fn wait(&self) {
        if !self.has_thread {
            return;
        }
        let (done, written) = channel();
        self.orders.push(Order::Wait(done));
        // If the thread is gone, `finish` tells of that.
        let _ = written.recv();
    }

    /// What was done since the last call.
    pub fn news(&self) -> impl Iterator<Item = Written> {
        self.news.try_iter()
    }

    /// Waits until all is written.
    pub async fn finish(self) -> Result<Vec<Written>, SessionError> {
        self.orders.close();
        self.done.await.map_err(|_| SessionError::CheckpointThread)?;
        Ok(self.news.try_iter().collect())
    }
}

/// The writer's end of the queue: when it goes, by a panic or otherwise, nobody is to wait for it.
struct Orders(Arc<WriteQueue>);

impl Drop for Orders {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Writes parameters that a run is to begin with at once.
pub fn save_values(run: &RunFolder, training: &Training, values: &[f32]) -> Result<Kept, SessionError> {
    let state = State::from_values(training.setup.training(), values.to_vec());
    save(run, training.task.layout(), training.job.seed, &state)
}

/// Writes into a run's folder, and tells how that went.
struct Folder<'a> {
    run: RunFolder,
    layout: &'a Layout,
    optimizer: OptimizerSpec,
    seed: u64,
    keep: usize,
    /// A checkpoint of a layer network that is being written block by block: the whole is never in memory.
    pieces: Option<(PieceWriter, PathBuf)>,
}

impl Folder<'_> {
    /// Does what is ordered, to the end.
    async fn serve(
        &mut self,
        orders: &WriteQueue,
        disk: &Disk,
        answers: &Sender<Written>,
        on_block: impl AsyncFn(bool),
    ) {
        // If nobody wants to know, it is kept all the same.
        let mut tell = |written| drop(answers.send(written));
        while let Some(order) = orders.pop().await {
            let ready = if let Order::Wait(_) = order { Ok(()) } else { disk.ready().await };
            let ready = ready.map_err(SessionError::file("cannot write into", self.run.path()));
            match order {
                Order::State(state) => {
                    let saved = ready.and_then(|()| self.save(&state, &mut tell));
                    self.conclude(&state, saved, &mut tell);
                }
                Order::Block(block) => {
                    let is_written = self.put(&block, ready, &mut tell);
                    drop(block);
                    on_block(is_written).await;
                }
                Order::Ticket(ticket) => {
                    let written = ready.and_then(|()| self.run.write_ticket(&ticket));
                    written.unwrap_or_else(|problem| tell(Written::NotMoved(problem)));
                }
                Order::SetAside { step } => self.set_aside_after(step, ready, &mut tell),
                Order::Wait(done) => drop(done.send(())),
            }
        }
    }

    /// Puts a block where it belongs, and says whether that went well. Of a checkpoint of which one could not be written, the others are not
    /// wanted.
    fn put(&mut self, block: &SavedBlock, ready: Result<(), SessionError>, tell: &mut dyn FnMut(Written)) -> bool {
        match ready.and_then(|()| self.put_piece(block, tell)) {
            Ok(None) => true,
            Ok(Some(kept)) => {
                self.conclude(&block.state, Ok(kept), tell);
                true
            }
            Err(problem) => {
                self.pieces = None;
                self.conclude(&block.state, Err(problem), tell);
                false
            }
        }
    }

    /// What became of a checkpoint; if it is whole, older ones may go.
    fn conclude(&self, state: &State, saved: Result<Kept, SessionError>, tell: &mut dyn FnMut(Written)) {
        match saved {
            Ok(kept) => {
                tell(Written::Kept(kept));
                self.run.remove_old(self.keep).unwrap_or_else(|problem| tell(Written::NotMoved(problem)));
            }
            Err(problem) => {
                let (epoch, step) = (state.place.ledger.epoch, state.place.step);
                tell(Written::Failed { epoch, step, problem });
            }
        }
    }

    fn put_piece(&mut self, block: &SavedBlock, tell: &mut dyn FnMut(Written)) -> Result<Option<Kept>, SessionError> {
        let SavedBlock { part, state, is_first, is_last } = block;
        let (epoch, step) = (state.place.ledger.epoch, state.place.step);
        if *is_first {
            let progress = progress(self.seed, state, Vec::new())?;
            let path = self.run.checkpoint_path(step);
            self.pieces = None;
            self.make_way(&progress, tell)?;
            if !path.exists() {
                let n_state_vectors = state.strategy_state.len();
                let writer = PieceWriter::create(&path, self.layout, &self.optimizer, &progress, n_state_vectors)?;
                self.pieces = Some((writer, path));
            }
        }
        let Some((writer, _)) = &mut self.pieces else { return Ok(None) };
        writer.put(part, &state.values, &state.optimizer, &state.strategy_state)?;
        if !is_last {
            return Ok(None);
        }
        let Some((writer, path)) = self.pieces.take() else { return Ok(None) };
        writer.finish()?;
        Ok(Some(Kept { path, epoch, step }))
    }

    fn save(&self, state: &State, tell: &mut dyn FnMut(Written)) -> Result<Kept, SessionError> {
        self.make_way(&progress(self.seed, state, Vec::new())?, tell)?;
        save(&self.run, self.layout, self.seed, state)
    }

    /// If another state was saved after as many steps, that is taken out of the way.
    fn make_way(&self, progress: &Progress, tell: &mut dyn FnMut(Written)) -> Result<(), SessionError> {
        self.run.make_way(progress)?.into_iter().for_each(|path| tell(Written::SetAside(path)));
        Ok(())
    }

    fn set_aside_after(&self, step: u64, ready: Result<(), SessionError>, tell: &mut dyn FnMut(Written)) {
        match ready.and_then(|()| self.run.set_aside_after(&self.run.checkpoint_path(step), step)) {
            Ok(paths) => paths.into_iter().for_each(|path| tell(Written::SetAside(path))),
            Err(problem) => tell(Written::NotMoved(problem)),
        }
    }
}

fn progress(seed: u64, state: &State, swarm_vectors: Vec<Arc<Vec<f32>>>) -> Result<Progress, SessionError> {
    let State { place, epoch_score, left_out, .. } = state;
    let mut progress = Progress { seed, step: place.step, epoch: place.ledger.epoch, ..Progress::default() };
    progress.set_epoch_score(*epoch_score);
    let place = Place { ledger: place.ledger.clone().without_names(), ..place.clone() };
    let (left_out, swarm) = (left_out.iter().copied().collect(), Some(serde_json::to_value(place)?));
    Ok(Progress { left_out, swarm, swarm_vectors, ..progress })
}

fn save(run: &RunFolder, layout: &Layout, seed: u64, state: &State) -> Result<Kept, SessionError> {
    let State { values, optimizer, place, strategy_state, average, .. } = state;
    let (epoch, step) = (place.ledger.epoch, place.step);
    let mut vectors = strategy_state.clone();
    // Whoever opens the model wants the average; who trains on wants the parameters too.
    vectors.extend(average.is_some().then(|| values.clone()));
    let progress = Progress { is_average: average.is_some(), ..progress(seed, state, vectors)? };
    let path = run.save(layout, average.as_ref().unwrap_or(values), optimizer, &progress)?;
    Ok(Kept { path, epoch, step })
}
