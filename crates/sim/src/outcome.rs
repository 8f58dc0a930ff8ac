//! What a simulation leaves behind: who did what, and how it ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::train_error::TrainError;
use nettorrent_swarm::record::Record;
use nettorrent_swarm::{BlockView, PeerId, Place, Status};

use crate::scenario::ScenarioError;

/// How a simulation ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the peers told, in the order of time, if it was kept.
    pub records: Vec<Record>,
    /// The peers, by number.
    pub peers: Vec<PeerOutcome>,
    /// When the last peer was finished.
    pub time: Duration,
    /// Who could not go on, and why.
    pub failures: Vec<Failure>,
    /// Whose messages were refused. Honest peers send none that are.
    pub refusals: Vec<Refusal>,
    /// How many events the simulation was made of.
    pub n_events: u64,
}

impl Outcome {
    /// With model parallelism: the whole network's parameters, put together from the blocks of a pipeline. Nothing if one is missing.
    pub fn whole(&self, pipeline: usize, n_values: usize) -> Option<Vec<f32>> {
        let mut whole = vec![f32::NAN; n_values];
        let blocks = self.live().flat_map(|peer| &peer.blocks).filter(|block| block.pipeline == pipeline);
        blocks.for_each(|block| block.part.put(&block.values, &mut whole));
        whole.iter().all(|value| !value.is_nan()).then_some(whole)
    }

    /// The peers that were there at the end.
    pub fn live(&self) -> impl Iterator<Item = &PeerOutcome> {
        self.peers.iter().filter(|peer| peer.fate == Fate::Live)
    }
}

/// How a peer ended.
#[derive(Clone, Debug)]
pub struct PeerOutcome {
    /// Its name.
    pub id: PeerId,
    /// What became of it.
    pub fate: Fate,
    /// Whether it did all epochs.
    pub is_finished: bool,
    /// How far it came.
    pub place: Place,
    /// Its parameters; none if it holds blocks.
    pub values: Arc<Vec<f32>>,
    /// The blocks that it holds, if not the whole network.
    pub blocks: Vec<BlockView>,
    /// What it sent and received.
    pub traffic: Traffic,
}

/// What became of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was there to the end.
    Live,
    /// It was killed.
    Killed,
    /// It left.
    Left,
    /// It could not go on.
    Failed,
}

/// What went over a peer's links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of bodies that strategies sent: what strategies are compared by.
    pub payload_sent: u64,
    /// Bytes of bodies that strategies received.
    pub payload_received: u64,
    /// All bytes sent, heads too.
    pub bytes_sent: u64,
    /// All bytes received, heads too.
    pub bytes_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_received: u64,
}

/// A peer that could not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Who.
    pub peer: PeerId,
    /// When.
    pub at: Duration,
    /// Why.
    pub problem: String,
}

/// A message that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// By whom.
    pub peer: PeerId,
    /// Who had sent it; nobody, if it was the host's own.
    pub from: Option<PeerId>,
    /// When.
    pub at: Duration,
    /// Why.
    pub problem: String,
}

/// Where a peer stood when a simulation could not go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// Who.
    pub peer: PeerId,
    /// What it was doing, and for whom it waited.
    pub status: Status,
    /// Whether it hung, as the scenario wanted.
    pub is_hung: bool,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Status { phase, epoch, round, waits_for, .. } = &self.status;
        write!(f, "{}: {phase:?}, epoch {epoch}, round {round}", self.peer)?;
        if self.is_hung {
            f.write_str(", hung")?;
        }
        if !waits_for.is_empty() {
            let names: Vec<String> = waits_for.iter().take(8).map(ToString::to_string).collect();
            write!(f, ", waits for {}", names.join(", "))?;
            if waits_for.len() > names.len() {
                write!(f, " and {} more", waits_for.len() - names.len())?;
            }
        }
        Ok(())
    }
}

/// Why a simulation has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    /// The scenario makes no sense.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// There is nothing to compute with.
    #[error(transparent)]
    Worker(#[from] TrainError),
    /// There is no pool of threads.
    #[error("cannot start the threads that compute: {0}")]
    Pool(#[from] rayon::ThreadPoolBuildError),
    /// Nothing happens any more, and yet not all are done.
    #[error("after {at:?} nothing happens any more, but not all peers are finished:{}{}", lines(.peers), refused(.refusals))]
    Deadlock {
        /// When.
        at: Duration,
        /// Where those who live stand.
        peers: Vec<Stuck>,
        /// What was refused before.
        refusals: Vec<Refusal>,
    },
    /// The scenario's limit is reached.
    #[error("after {limit:?}, the limit, not all peers are finished:{}{}", lines(.peers), refused(.refusals))]
    TimeLimit {
        /// The limit.
        limit: Duration,
        /// Where those who live stand.
        peers: Vec<Stuck>,
        /// What was refused before.
        refusals: Vec<Refusal>,
    },
}

fn lines(peers: &[Stuck]) -> String {
    peers.iter().map(|peer| format!("\n  {peer}")).collect()
}

fn refused(refusals: &[Refusal]) -> String {
    let line = |refusal: &Refusal| {
        let from = refusal.from.map_or("the host".to_owned(), |from| from.to_string());
        format!("\n  {} refused what {from} sent after {:?}: {}", refusal.peer, refusal.at, refusal.problem)
    };
    refusals.iter().take(10).map(line).collect()
}
