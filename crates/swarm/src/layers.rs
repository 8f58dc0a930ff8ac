//! Layer networks: model parallelism. Each peer holds a block of the network, alone or beside replicas of it.
//!
//! A *pipeline* is one copy of the network, cut into groups of consecutive layers; each group is a grid of *slots*, rows of
//! samples by columns of outputs ([`plan`]). A peer that has a slot holds its *block*: the numbers of its part of the network.
//! What goes up and down between blocks is a *pass* of a batch.
//!
//! A block is a `Replica` like that of any other swarm: with those who hold the same block in other
//! pipelines it exchanges by the job's strategy, and its ledger says which batch is next. Only what it wants computed, a gradient, a
//! test or a judgement of its parameters, is not computed by one machine but by the pipeline. So all strategies work here as they are,
//! and nothing of theirs is written twice.
//!
//! Inputs and labels never travel: every block knows from the sampler which samples a batch has. With several batches in flight the
//! next ones are begun before the replica asks for them, with the parameters as they are; what comes down is then computed with the
//! parameters that went up.
//!
//! From time to time every block remembers itself, all after the same round: a *mark*. When a peer comes or goes, all go back to the
//! last mark that is whole.

mod accord;
mod agreeing;
mod block;
mod exam;
mod gather;
mod label;
mod marking;
mod marks;
mod network;
mod origin;
mod pass;
mod peer;
pub mod plan;
pub mod planner;
mod post;
mod row_sum;
mod saving;
mod seat;
mod snapshot;
mod splitting;
mod work;

pub use network::LayerNetwork;
pub use origin::{BlockSource, Origin};
pub use peer::{BlockView, LayerPeer};
pub use work::PartDone;
pub(crate) use work::PartWork;
