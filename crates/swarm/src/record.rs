//! Records: what a peer tells about itself, as the one plain type that metrics travel as.

use serde::{Deserialize, Serialize};

use crate::view::PeerId;

/// Something that happened at a peer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// At whom.
    pub peer: PeerId,
    /// When, in seconds since the host's beginning.
    pub at_s: f64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// There is a new view, and its members agreed on whose parameters go on.
    View {
        /// Its number.
        view: u32,
        /// Who takes part.
        members: Vec<PeerId>,
        /// Whose parameters go on.
        donor: PeerId,
        /// Whether this peer was behind and took them over.
        was_behind: bool,
        /// The round that comes next.
        round: u32,
    },
    /// A round is done.
    Round {
        /// The epoch it belongs to, counted from 0.
        epoch: u64,
        /// Its number.
        round: u32,
        /// Samples that this peer trained in it.
        n_samples: u64,
        /// Samples that all peers have trained since the beginning.
        n_samples_all: u64,
        /// The mean loss of this peer's samples.
        loss: f64,
        /// How many of them were classified rightly.
        n_correct: u64,
        /// The learning rate.
        lr: f32,
        /// How long the peer computed.
        compute_s: f64,
        /// How long it waited for others after that.
        wait_s: f64,
        /// By how many batches it was ahead of the hindmost peer whose batches it had heard of when it began.
        staleness: u32,
        /// Bytes of bodies that it sent.
        sent_bytes: u64,
        /// Bytes of bodies that it received.
        received_bytes: u64,
    },
    /// An epoch is done and its test too, over all peers.
    Epoch {
        /// Which, counted from 1.
        epoch: u64,
        /// The round it ended with.
        round: u32,
        /// Batches that a peer had trained one after the other by then, since the beginning.
        step: u64,
        /// How the training samples were classified while training: mean loss, share, and how many.
        train_loss: f64,
        /// See `train_loss`.
        train_accuracy: f64,
        /// See `train_loss`.
        n_train: u64,
        /// How the test samples are classified now.
        test_loss: f64,
        /// See `test_loss`.
        test_accuracy: f64,
        /// See `test_loss`.
        n_test: u64,
    },
    /// All epochs are done.
    Finished {
        /// How many rounds that took.
        rounds: u32,
    },
}
