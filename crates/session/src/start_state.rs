//! What a peer begins with: a state of the whole network, or what blocks of it are made from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nettorrent_engine::checkpoint::{self, Progress};
use nettorrent_engine::job::Job;
use nettorrent_engine::model::Part;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;
use nettorrent_pipeline::{BlockSource, Origin, PipelinePeer};
use nettorrent_swarm::{Peer, PeerId, Place, State};

use crate::error::SessionError;
use crate::run_folder::RunFolder;
use crate::start_point::StartPoint;
use crate::training::Training;

/// What a peer begins with.
#[derive(Clone)]
pub enum StartState {
    /// The whole network.
    Whole(State),
    /// Blocks, which are read or made when it is known which ones.
    Layers {
        /// Where blocks come from.
        origin: Origin,
        /// How far they are.
        place: Place,
    },
}

impl StartState {
    /// As the job's seed gives it.
    pub fn fresh(training: &Training) -> Self {
        match &training.pipelines {
            None => Self::Whole(State::fresh(training.setup.training())),
            Some(network) => Self::Layers { origin: network.fresh(), place: Place::default() },
        }
    }

    /// From parameters that come from elsewhere.
    pub fn from_values(training: &Training, values: Vec<f32>) -> Self {
        let state = State::from_values(training.setup.training(), values);
        match &training.pipelines {
            None => Self::Whole(state),
            Some(network) => Self::Layers { place: state.place.clone(), origin: network.origin(state) },
        }
    }

    /// From a checkpoint.
    pub fn from_checkpoint(run: &RunFolder, checkpoint: &Path, training: &Training) -> Result<Self, SessionError> {
        let Some(network) = &training.pipelines else {
            return Ok(Self::Whole(load(run, checkpoint, training)?));
        };
        // The first block tells how far it is; who needs another reads that one.
        let place = read_block(run, checkpoint, training.task.as_ref(), &training.job, network.part(0))?.place;
        let block = blocks_of(run.clone(), checkpoint.to_owned(), training.task.clone(), training.job.clone());
        Ok(Self::Layers { origin: Origin { version: place.version, block, newer: None }, place })
    }

    /// The same for peers that share the run's folder: if nobody has a block in memory any more, they go on from what was saved last.
    pub(crate) fn with_saved(mut self, run: &RunFolder, training: &Training) -> Self {
        if let (Self::Layers { origin, .. }, Some(network)) = (&mut self, &training.pipelines) {
            let (run, network) = (run.clone(), network.clone());
            let (task, job) = (training.task.clone(), training.job.clone());
            origin.newer = Some(Arc::new(move |since| {
                let saved = run.checkpoints().ok()?.pop()?;
                let version = read_block(&run, &saved, task.as_ref(), &job, network.part(0)).ok()?.place.version;
                (version > since).then(|| (version, blocks_of(run.clone(), saved, task.clone(), job.clone())))
            }));
        }
        self
    }

    /// How far it is.
    pub fn place(&self) -> &Place {
        match self {
            Self::Whole(state) => &state.place,
            Self::Layers { place, .. } => place,
        }
    }

    /// Where a run begins with it.
    pub fn point(&self) -> StartPoint {
        let n_left_out = if let Self::Whole(state) = self { state.left_out.len() } else { 0 };
        StartPoint { place: self.place().clone(), n_left_out }
    }

    /// Some fields of the job are set anew: a learning rate that is given is used as it is, and samples of other data are not those that
    /// were left out.
    pub fn forget_what_is_set_anew(&mut self, settings: &[String]) {
        let Self::Whole(state) = self else { return };
        let is_set = |name: &str| settings.iter().any(|setting| setting.starts_with(name));
        if is_set("optimizer") {
            state.place.forget_rollbacks();
        }
        if is_set("data") {
            state.left_out = Arc::default();
        }
    }

    /// A peer that begins with it.
    ///
    /// # Panics
    /// If it is of another training, which has pipelines where this one has none.
    pub fn into_peer(self, id: PeerId, training: &Training) -> Box<dyn Peer> {
        match self {
            Self::Whole(state) => training.setup.peer(id, state),
            Self::Layers { origin, .. } => {
                let pipelines = training.pipelines.clone().expect("a training with pipelines");
                Box::new(PipelinePeer::new(id, pipelines, origin))
            }
        }
    }
}

/// Where the blocks of a checkpoint come from.
fn blocks_of(run: RunFolder, checkpoint: PathBuf, task: Arc<dyn Task>, job: Job) -> Arc<BlockSource> {
    Arc::new(move |_, part| read_block(&run, &checkpoint, task.as_ref(), &job, part).map_err(|error| error.to_string()))
}

/// Reads a block's share of a checkpoint, and nothing else of it.
fn read_block(
    run: &RunFolder,
    checkpoint: &Path,
    task: &dyn Task,
    job: &Job,
    part: &Part,
) -> Result<State, SessionError> {
    let mut optimizer = Optimizer::new(job.optimizer.clone(), part.n_params());
    let (values, progress) = checkpoint::load_part(checkpoint, task.layout(), part, &mut optimizer)
        .map_err(|source| run.unreadable(checkpoint, source))?;
    state(values, optimizer, progress, task.labels().len())
}

/// Reads a state back from a checkpoint.
fn load(run: &RunFolder, checkpoint: &Path, training: &Training) -> Result<State, SessionError> {
    let Training { job, task, .. } = training;
    let mut optimizer = Optimizer::new(job.optimizer.clone(), task.n_params());
    let (values, progress) = run.load(checkpoint, task.layout(), &mut optimizer)?;
    let state = state(values, optimizer, progress, task.labels().len())?;
    if let Some((n_done, n_batches)) = training.setup.training().sampler.overrun(&state.place.ledger) {
        return Err(SessionError::Run(format!(
            "the run stopped after {n_done} batches of an epoch, and an epoch now has {n_batches}; the data or the batch size are \
             not those it began with: bring them back, or go on from a checkpoint at the end of an epoch"
        )));
    }
    Ok(state)
}

fn state(values: Vec<f32>, optimizer: Optimizer, progress: Progress, n_samples: usize) -> Result<State, SessionError> {
    let (epoch_score, left_out) = (progress.epoch_score(), Arc::new(progress.left_out.iter().copied().collect()));
    let place = place_of(&progress, n_samples)?;
    let (mut values, mut strategy_state, mut average) = (Arc::new(values), progress.swarm_vectors, None);
    if let Some(parameters) = strategy_state.pop_if(|_| progress.is_average) {
        average = Some(std::mem::replace(&mut values, parameters));
    }
    Ok(State { values, optimizer, place, strategy_state, average, epoch_score, left_out })
}

/// How far a checkpoint is.
fn place_of(progress: &Progress, n_samples: usize) -> Result<Place, SessionError> {
    if let Some(place) = &progress.swarm {
        return Ok(serde_json::from_value(place.clone())?);
    }
    // It is of a version in which one machine trained in a way of its own.
    let Progress { epoch, batch, step, epoch_n, n_rollbacks, .. } = *progress;
    let n_trained = epoch * n_samples as u64 + epoch_n as u64;
    Ok(Place { n_rollbacks, ..Place::after_batches(epoch, batch as u32, step, n_trained) })
}
