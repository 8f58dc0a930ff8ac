//! What a peer trains by itself before an exchange, and what is handed over then.

use std::time::Duration;

use crate::sampling::rounds::RoundLength;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::optimizer_state::OptimizerState;

/// What a peer trains by itself before each exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundPlan {
    /// What is handed over then.
    pub payload: Payload,
    /// How much is trained.
    pub length: RoundLength,
    /// How the numbers that are handed over are scaled.
    pub scale: Scale,
    /// With weights: how a round mixes those of all peers.
    pub mixing: Mixing,
    /// With weights: what becomes of this peer's optimizer when a round's result replaces them.
    pub optimizer_state: OptimizerState,
}

/// How a round mixes what all peers have learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mixing {
    /// Everybody has the mean of all.
    Full,
    /// Everybody has the mean of some: what one has learned reaches all in about log₂ N rounds.
    Partial,
    /// Nothing is averaged: one peer's weights win.
    None,
}

/// What peers exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Payload {
    /// The gradient of one batch; the optimizer then takes one step with the mean. All replicas stay equal.
    #[default]
    Gradients,
    /// The parameters after steps that each peer took by itself.
    Weights,
    /// What a step of the peer's own optimizer would add to the parameters, times the peer's share: asynchronously, batch by batch.
    #[serde(skip)]
    Updates,
}

/// How the numbers that are handed over are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Not at all.
    Plain,
    /// Not at all, and weights count alike whatever was trained: so a peer whose batches are larger than others', because it is faster,
    /// takes longer steps with them, and every sample counts as much as any other.
    Rate,
    /// By the peer's share of the samples that all train in this round, so that the sum over all peers is the mean.
    Share,
}

/// How a local phase went.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Trained {
    /// Samples trained.
    pub n_samples: u64,
    /// The mean over the batches of their mean losses.
    pub mean_loss: f64,
    /// How long it took to compute.
    pub compute: Duration,
    /// Whether numbers became infinite or none, so that all of it was forgotten.
    pub has_diverged: bool,
}

/// What another peer said in this round. What comes too early is kept until its round has come.
#[derive(Clone, Debug)]
pub struct Message {
    /// In which round of its sender; the present one, unless peers train asynchronously.
    pub round: u32,
    /// Which part of the round's exchange; each strategy numbers them for itself.
    pub part: u64,
    /// The bytes.
    pub body: Bytes,
}
