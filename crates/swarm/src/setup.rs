//! What all peers of a swarm share: what a replica begins with, and how peers hold the network.

use std::sync::Arc;

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;

use crate::peer::Peer;
use crate::place::State;
use crate::replica::Replica;
use crate::replica_setup::ReplicaSetup;
use crate::strategy::{AnyStrategy, OptionError};
use crate::train_plan::TrainPlan;
use crate::view::PeerId;

/// How peers hold a network of which nobody holds the whole. Model parallelism plugs in here.
pub trait Partition: Send + Sync {
    /// Among how many the samples are shared out when there are so many peers.
    fn n_replicas(&self, n_peers: usize) -> usize;

    /// A peer that begins with what it is to hold of a whole state.
    fn peer(self: Arc<Self>, id: PeerId, whole: State) -> Box<dyn Peer>;
}

/// What all peers of a swarm share. It never changes, so those in one process hold the same one.
pub struct Setup {
    /// What a replica of the whole network begins with.
    pub replica: Arc<ReplicaSetup>,
    partition: Option<Arc<dyn Partition>>,
}

impl Setup {
    /// The setup of a job whose peers hold the whole network.
    pub fn new(job: &Job, task: Arc<dyn Task>) -> Result<Self, OptionError> {
        Ok(Self { replica: Arc::new(ReplicaSetup::new(job, task)?), partition: None })
    }

    /// The same where nobody holds it whole.
    pub fn with_partition(self, partition: Arc<dyn Partition>) -> Self {
        Self { partition: Some(partition), ..self }
    }

    /// A peer that begins with this state, or with its part of it; it waits for its first view.
    pub fn peer(&self, id: PeerId, state: State) -> Box<dyn Peer> {
        match &self.partition {
            Some(partition) => partition.clone().peer(id, state),
            None => Box::new(Replica::new(id, self.replica.clone(), state)),
        }
    }

    /// A peer that holds the whole network, with a strategy that need not be in the list.
    pub fn peer_with_strategy(&self, id: PeerId, strategy: AnyStrategy, state: State) -> Box<dyn Peer> {
        Box::new(Replica::with_strategy(id, self.replica.clone(), strategy, state))
    }

    /// Whether peers hold the whole network.
    pub fn holds_whole(&self) -> bool {
        self.partition.is_none()
    }

    /// The plan of the training.
    pub fn training(&self) -> &TrainPlan {
        &self.replica.training
    }

    /// The job's strategy for one peer.
    pub fn strategy(&self) -> AnyStrategy {
        self.replica.strategy()
    }

    /// Among how many the samples are shared out when there are so many peers.
    pub fn n_replicas(&self, n_peers: usize) -> usize {
        self.partition.as_ref().map_or(n_peers, |partition| partition.n_replicas(n_peers))
    }
}
