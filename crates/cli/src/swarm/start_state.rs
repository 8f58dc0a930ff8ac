//! What a peer begins with: a state of the whole network, or what blocks of it are made from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use nettorrent_engine::checkpoint::{self, Progress};
use nettorrent_engine::job::Job;
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::Part;
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::task::Task;
use nettorrent_swarm::{Origin, Peer, PeerId, Place, State};

use super::prepared_job::PreparedJob;
use crate::run_folder::RunFolder;

/// What a peer begins with.
pub(crate) enum Start {
    /// The whole network.
    Whole(State),
    /// Blocks, which are read or made when it is known which ones.
    Layers { origin: Origin, place: Place },
}

impl Start {
    /// As the job's seed gives it.
    pub(crate) fn fresh(prepared: &PreparedJob) -> Self {
        match &prepared.setup.layers {
            None => Self::Whole(State::fresh(prepared.setup.training())),
            Some(network) => Self::Layers { origin: network.fresh(), place: Place::default() },
        }
    }

    /// From parameters that come from elsewhere.
    pub(crate) fn from_values(prepared: &PreparedJob, values: Vec<f32>) -> Self {
        let state = State::from_values(prepared.setup.training(), values);
        match &prepared.setup.layers {
            None => Self::Whole(state),
            Some(network) => Self::Layers { place: state.place.clone(), origin: network.origin(state) },
        }
    }

    /// From a checkpoint.
    pub(crate) fn from_checkpoint(run: &RunFolder, checkpoint: &Path, prepared: &PreparedJob) -> anyhow::Result<Self> {
        let Some(network) = &prepared.setup.layers else {
            return Ok(Self::Whole(load(run, checkpoint, prepared)?));
        };
        // The first block tells how far it is; who needs another reads that one.
        let place = read_block(checkpoint, &prepared.learning, &prepared.job, network.part(0))?.place;
        let (path, standing): (PathBuf, _) = (checkpoint.to_owned(), place.standing);
        let (learning, job) = (prepared.learning.clone(), prepared.job.clone());
        let block = move |_: usize, part: &Part| {
            let state = read_block(&path, &learning, &job, part);
            state.map_err(|error| crate::explain(&error))
        };
        Ok(Self::Layers { origin: Origin { standing, block: Arc::new(block) }, place })
    }

    /// How far it is.
    pub(crate) fn place(&self) -> &Place {
        match self {
            Self::Whole(state) => &state.place,
            Self::Layers { place, .. } => place,
        }
    }

    /// A peer that begins with it.
    pub(crate) fn into_peer(self, id: PeerId, prepared: &PreparedJob) -> Peer {
        match self {
            Self::Whole(state) => Peer::new(id, &prepared.setup, state),
            Self::Layers { origin, .. } => Peer::in_layers(id, prepared.setup.clone(), origin),
        }
    }
}

/// Reads a block's share of a checkpoint, and nothing else of it.
fn read_block(checkpoint: &Path, learning: &Learning, job: &Job, part: &Part) -> anyhow::Result<State> {
    let mut optimizer = Optimizer::new(job.optimizer.clone(), part.n_params());
    let (values, progress) = checkpoint::load_part(checkpoint, learning.layout(), part, &mut optimizer)
        .with_context(|| format!("cannot go on from {}", checkpoint.display()))?;
    let place = place_of(&progress, learning.labels().len() as u64)?;
    Ok(State { values: Arc::new(values), optimizer, place, memories: progress.swarm_memories })
}

/// Reads a state back from a checkpoint.
fn load(run: &RunFolder, checkpoint: &Path, prepared: &PreparedJob) -> anyhow::Result<State> {
    let PreparedJob { job, learning, .. } = prepared;
    let mut optimizer = Optimizer::new(job.optimizer.clone(), learning.n_params());
    let (values, progress) = run.load(checkpoint, learning.layout(), &mut optimizer)?;
    let place = place_of(&progress, learning.labels().len() as u64)?;
    Ok(State { values: Arc::new(values), optimizer, place, memories: progress.swarm_memories })
}

/// How far a checkpoint is.
fn place_of(progress: &Progress, n_samples: u64) -> anyhow::Result<Place> {
    match &progress.swarm {
        Some(place) => {
            serde_json::from_value(place.clone()).context("the checkpoint does not say how far the swarm was")
        }
        // It was one machine's: a swarm goes on from the beginning of the epoch that it was in.
        None => Ok(Place::at_epoch(progress.epoch, progress.step, progress.epoch * n_samples)),
    }
}
