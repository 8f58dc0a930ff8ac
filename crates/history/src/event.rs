//! The events of a run: plain data, one line of JSON each.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use nettorrent_engine::measure::Measure;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{LossCause, number_or_none};
use serde::{Deserialize, Serialize};

use crate::peer_work::{PeerEpoch, PeerProgress, Resources, Times};

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Seconds since training began; simulated ones where the run is simulated. After a stop they begin anew.
    pub at_s: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

impl Line {
    /// The line as it is written, with its end.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string(self).expect("events are plain data");
        text.push('\n');
        text
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// Training begins, or goes on.
    Start(Start),
    /// While an epoch goes on: once a second in files, more often for those who follow a run as it goes.
    Progress(Progress),
    /// How a peer gets on, a few times a second. Those who follow a run see it; files have `times` instead.
    PeerProgress(PeerProgress),
    /// An epoch is done and was tested.
    Epoch(Epoch),
    /// A test within an epoch.
    Evaluation(Evaluation),
    /// Where a peer's time went, about once a second.
    Times(Times),
    /// What a peer took of its machine, once a second.
    Resources(Resources),
    /// How far replicas were apart.
    Replicas(Replicas),
    /// A process of a swarm on this machine can be reached.
    Peer(PeerAddress),
    /// A peer has something to tell.
    Note(Note),
    /// The members of a swarm have changed and agreed on whose state they continue with.
    View(ViewChange),
    /// The split gives some samples to nobody.
    Dropped(Dropped),
    /// Training samples are left out from here on.
    LeftOut(LeftOut),
    /// A peer that was behind has got another's whole state.
    StateReceived(StateReceived),
    /// A peer that joined others has trained its first round with them.
    Joined(Joined),
    /// A member was lost, and training has gone on without it.
    Loss(Loss),
    /// A peer has other parameters than it should.
    Differs(Differs),
    /// Training had diverged and goes on from an earlier state.
    Rollback(Rollback),
    /// A checkpoint is whole on the disk.
    Checkpoint(Checkpoint),
    /// One could not be written.
    CheckpointFailed(CheckpointFailed),
    /// Events could not be written.
    LogFailed(LogFailed),
    /// Training ends.
    Stop(Stop),
}

/// Training begins, or goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The run's folder.
    pub run: PathBuf,
    /// The model's name, or its file.
    pub model: String,
    /// How many numbers are trained.
    pub n_params: usize,
    /// Training samples.
    pub n_train: usize,
    /// Test samples.
    pub n_test: usize,
    /// What people judge the model by.
    #[serde(default)]
    pub measure: Measure,
    /// Threads of each peer.
    pub threads: usize,
    /// Where all randomness comes from.
    pub seed: u64,
    /// How peers exchange what they learn; none where one process trains alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// How many peers there are at the beginning, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n_peers: Option<usize>,
    /// How the links were shaped, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
    /// How many epochs the run is to have.
    pub epochs: u64,
    /// Epochs done before.
    pub epoch: u64,
    /// Steps done before.
    pub step: u64,
    /// The program's version.
    pub version: String,
}

/// How an epoch goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Which, counted from 1.
    pub epoch: u64,
    /// Batches that a peer has trained one after the other, since the beginning.
    pub step: u64,
    /// The epoch's training samples so far.
    #[serde(default)]
    pub n_samples: u64,
    /// Their mean loss.
    pub loss: f64,
    /// Share of them that were classified correctly; left out where samples have no class.
    #[serde(default = "none", deserialize_with = "number_or_none", skip_serializing_if = "is_none")]
    pub accuracy: f64,
    /// The learning rate.
    pub lr: f32,
    /// Samples a second, of late.
    pub samples_per_s: f64,
    /// Seconds since training began.
    pub seconds: f64,
}

/// An epoch is done and was tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Which, counted from 1.
    pub epoch: u64,
    /// Batches that a peer has trained one after the other, since the beginning.
    pub step: u64,
    /// Mean loss of the training samples, each when it was trained.
    pub train_loss: f64,
    /// Share of them that were classified correctly then; left out where samples have no class.
    #[serde(default = "none", deserialize_with = "number_or_none", skip_serializing_if = "is_none")]
    pub train_accuracy: f64,
    /// Mean loss of the test samples now.
    #[serde(deserialize_with = "number_or_none")]
    pub test_loss: f64,
    /// Share of them that are classified correctly; left out where samples have no class.
    #[serde(default = "none", deserialize_with = "number_or_none", skip_serializing_if = "is_none")]
    pub test_accuracy: f64,
    /// The task's own metrics in that test, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// The learning rate.
    pub lr: f32,
    /// Samples a second, over the epoch.
    pub samples_per_s: f64,
    /// How long the epoch's training took, without its test.
    pub seconds: f64,
    /// How long its test took; a swarm's members each test a part, so it is how long one of them took.
    pub test_seconds: f64,
    /// Bytes of bodies that all peers who tell have sent since training began, or went on.
    pub sent_bytes: u64,
    /// What each peer did in it, as far as it has told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerEpoch>,
}

/// A test within an epoch. When it was known is the time of its line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How many epochs were done: 1.25 after a quarter of the second.
    pub epoch: f64,
    /// Batches that a peer had trained one after the other, since the beginning.
    pub step: u64,
    /// Mean loss of the test samples.
    #[serde(deserialize_with = "number_or_none")]
    pub test_loss: f64,
    /// Share of them that were classified correctly; left out where samples have no class.
    #[serde(default = "none", deserialize_with = "number_or_none", skip_serializing_if = "is_none")]
    pub test_accuracy: f64,
    /// The task's own metrics in that test, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// How long it took; a swarm's members each test a part, so it is how long one of them took.
    pub test_seconds: f64,
    /// Bytes of bodies that all peers who tell have sent since training began, or went on.
    pub sent_bytes: u64,
}

/// How far replicas were apart at the end of an epoch, before they were brought together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replicas {
    /// Which epoch, counted from 1.
    pub epoch: u64,
    /// The root of the mean square distance of a replica from the mean of all, as a share of that mean's length.
    pub distance: f64,
    /// How many replicas were compared.
    pub n_peers: usize,
}

/// Where a process of a swarm on this machine can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerAddress {
    /// Who.
    pub peer: PeerId,
    /// Where.
    pub address: SocketAddr,
    /// Its process.
    pub pid: u32,
}

/// Something that a peer tells: somebody came, went, was given up or not let in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    /// Who tells.
    pub peer: PeerId,
    /// What.
    pub text: String,
    /// Whether that is no news for those who started all peers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_routine: bool,
}

/// A new view, as one of its members saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ViewChange {
    /// Who tells.
    pub peer: PeerId,
    /// The view's number.
    pub view: u32,
    /// Who takes part.
    pub members: Vec<PeerId>,
    /// Whose parameters go on.
    pub donor: PeerId,
    /// Whether the one who tells was behind and took them over.
    pub was_behind: bool,
    /// The round that comes next.
    pub round: u32,
    /// By member, the number of its site; empty if all are at one, or where the strategy knows no sites.
    #[serde(default)]
    pub sites: Vec<u32>,
}

/// The split gives some samples to nobody: so many peers cannot all have as many of each class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// By what rule samples are shared out.
    pub split: String,
    /// Among how many peers.
    pub n_peers: usize,
    /// How many samples an epoch trains.
    pub n_trained: usize,
    /// How many nobody has.
    pub n_dropped: usize,
}

/// A peer that was behind, for example because it has just joined, has got another's whole state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateReceived {
    /// Who.
    pub peer: PeerId,
    /// How much of it came over links.
    pub n_bytes: u64,
    /// How long that took.
    pub seconds: f64,
    /// From whom it came.
    pub donors: Vec<PeerId>,
}

/// A peer that joined others has trained its first round with them. What it received before is told by `state-received`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// Who.
    pub peer: PeerId,
    /// How long it took since it began to look for the others until they had let it in and agreed on whose state goes on.
    pub admission_s: f64,
    /// How long it took since it began to look for them until its first round counted.
    pub round_s: f64,
}

/// A member was lost, as another one saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// Who tells.
    pub peer: PeerId,
    /// Who was lost.
    pub lost: PeerId,
    /// Why: `silent`, `ended`, `disconnected`, `cut-off`, `unreachable`, `stuck`, `left`, `removed`, or `told` if only others know.
    pub cause: LossCause,
    /// The number of the first view without it.
    pub view: u32,
    /// Seconds from the last sign of life of it until that view was there.
    pub detection_s: f64,
    /// Seconds from there until a round counted again; none if the run ended before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery_s: Option<f64>,
}

/// A peer has other parameters than another, though both say that they trained the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Differs {
    /// Who tells.
    pub peer: PeerId,
    /// Whose parameters are not as they should be.
    pub who: PeerId,
    /// Whose are.
    pub from: PeerId,
    /// The epoch after which all compared theirs, counted from 1; none if it showed in a state that was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Whether most have what the other has, so that it is clear who is wrong.
    pub is_outvoted: bool,
}

/// Training samples are left out from here on, because they spoil the batches that they are in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Which.
    pub samples: Vec<BadSample>,
    /// The step for which they were left out first.
    pub step: u64,
}

/// A training sample that gives no finite loss or gradient, or an enormous loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadSample {
    /// Its index in the training set.
    pub index: usize,
    /// Where it comes from, if that is known: its file, and the line where the file holds many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// Training had diverged and goes on from an earlier state. What was told of later steps is void.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// What showed that it had diverged.
    pub why: String,
    /// The step at which it showed.
    pub from_step: u64,
    /// Epochs done where it goes on.
    pub epoch: u64,
    /// Steps done where it goes on.
    pub step: u64,
    /// Whether the learning rate was halved; it was not if samples are to blame, which are left out instead.
    pub is_rate_halved: bool,
    /// The share of the job's learning rate that is left.
    pub lr_factor: f32,
}

/// A checkpoint is whole on the disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Where.
    pub path: PathBuf,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
}

/// A checkpoint could not be written. Training goes on, and the next one is tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFailed {
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// Why.
    pub problem: String,
}

/// Events could not be written down. That is said the first time, and at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFailed {
    /// How many, since training began or went on.
    pub n_lines: u64,
    /// Why, the first time.
    pub problem: String,
}

/// Training ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Why.
    pub reason: Reason,
    /// Epochs done.
    pub epoch: u64,
    /// Steps done.
    pub step: u64,
    /// Seconds since training began.
    pub seconds: f64,
    /// The peak memory of the largest process.
    pub peak_rss_bytes: Option<u64>,
    /// Whether a model that guesses would have done as well in the last test.
    #[serde(default)]
    pub is_guessing: bool,
}

/// Why training ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// All is done.
    Finished,
    /// Somebody wanted it to.
    Interrupted,
    /// It could not go on.
    Failed(String),
}

fn none() -> f64 {
    f64::NAN
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_none(number: &f64) -> bool {
    number.is_nan()
}

impl From<&Epoch> for Evaluation {
    /// The test at an epoch's end.
    fn from(epoch: &Epoch) -> Self {
        let Epoch { step, test_loss, test_accuracy, test_seconds, sent_bytes, .. } = *epoch;
        let metrics = epoch.metrics.clone();
        Self { epoch: epoch.epoch as f64, step, test_loss, test_accuracy, metrics, test_seconds, sent_bytes }
    }
}
