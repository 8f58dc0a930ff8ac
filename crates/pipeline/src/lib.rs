//! Model parallelism: pipelines of peers, each of which holds a block of the network (the originals' *layer network*).
//!
//! A *pipeline* is one copy of the network, cut into stages of consecutive layers; each stage is a grid of *slots*, batch shards
//! by tensor shards ([`plan`]). A peer that has a slot holds its *block*: the numbers of its part of the network.
//! What goes forward and backward between blocks is a *pass* of a batch. [`planner`] says which plan is fastest.
//!
//! A block is a `Replica` like that of any other swarm: with those who hold the same block in other
//! pipelines it exchanges by the job's strategy, and its ledger says which batch is next. Only what it wants computed, a gradient, a
//! test or a judgement of its parameters, is not computed by one machine but by the pipeline. So all strategies work here as they are,
//! and nothing of theirs is written twice.
//!
//! Inputs and labels never travel: every block knows from the sampler which samples a batch has. With several batches in flight the
//! next ones are begun before the replica asks for them, with the parameters as they are; the backward pass is then computed with the
//! parameters of the forward pass.
//!
//! From time to time every block keeps a *snapshot* of itself, all after the same round. When a peer comes or goes, all go back to the
//! last snapshot that is complete.

mod agreement;
mod assignment;
mod block;
mod blocks;
mod directory;
mod early;
mod evaluation;
mod gather;
mod gradient_sum;
mod message;
mod origin;
mod pass;
mod peer;
mod pipeline_setup;
pub mod plan;
pub mod planner;
mod position;
mod saving;
mod score_message;
mod setup;
mod snapshot_store;
mod snapshots;
mod splitting;
mod state_transfer;
mod work;

pub use origin::{BlockSource, NewerOrigin, Origin};
pub use peer::PipelinePeer;
pub use pipeline_setup::PipelineSetup;
pub use setup::{PipelineError, setup};
