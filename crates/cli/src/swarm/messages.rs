//! What the processes of a local swarm tell each other: lines of JSON, the one's standard output and the other's input.

use std::net::SocketAddr;
use std::path::PathBuf;

use nettorrent_history::{Resources, Times};
use nettorrent_swarm::record::Record;
use nettorrent_swarm::{PeerId, Phase};
use serde::{Deserialize, Serialize};

/// What a peer is told first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    /// The run's folder, with the job and the model.
    pub run: PathBuf,
    /// The swarm's secret. It comes this way because others can see a process's arguments.
    pub ticket: String,
    pub seat: u32,
    /// How many peers there are at the beginning.
    pub n_peers: usize,
    /// What to go on from: a checkpoint of the run.
    pub checkpoint: Option<PathBuf>,
    pub encryption: bool,
    /// How slow the network is to be.
    pub link: Option<String>,
    /// Where large payloads go.
    pub shared_dir: Option<PathBuf>,
    /// Whether to measure what it takes of the machine and for whom it waits.
    pub measures: bool,
}

/// What a peer is told after that.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub(crate) enum Order {
    /// Who is there; go.
    Begin { members: Vec<(PeerId, SocketAddr)> },
    /// Leave the others and end.
    Leave,
}

/// What a peer tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(crate) enum PeerEvent {
    /// It can be reached there.
    Listening { peer: PeerId, address: SocketAddr },
    /// How it goes, a few times in a second.
    Progress(Progress),
    /// What it took of its machine, once a second.
    Resources(Resources),
    /// Something that does not happen often.
    Record(Record),
    /// Somebody came, went, was given up or not let in.
    Note { peer: PeerId, text: String, is_routine: bool },
    /// A checkpoint is whole on the disk.
    Checkpoint { path: PathBuf, epoch: u64, step: u64 },
    /// Its last words.
    Ended { peer: PeerId, ending: EndingKind, epoch: u64, step: u64, peak_rss_bytes: Option<u64> },
}

/// How a peer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EndingKind {
    Finished,
    Left,
    Failed(String),
}

/// What a peer did since it last told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The epoch that it is in, counted from 0.
    pub epoch: u64,
    /// Batches that a peer has trained one after the other.
    pub step: u64,
    /// Samples that all peers have trained since the beginning.
    pub n_samples_all: u64,
    /// This peer's samples of the turn that goes on, which are not among those yet.
    pub n_ahead: u64,
    /// The epoch that the following is about, counted from 0.
    pub trained_in: u64,
    /// This peer's samples, their losses added up, and how many were right.
    pub n_samples: u64,
    pub loss_sum: f64,
    pub n_correct: u64,
    pub lr: f32,
    /// Who, and where its time went.
    pub times: Times,
    pub phase: Phase,
    pub waits_for: Vec<PeerId>,
}
