//! What a study found: plain data, from which reports are made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use nettorrent_engine::measure::Measure;
use nettorrent_swarm::PeerId;
use nettorrent_swarm::record::{LossCause, number_or_none};
use serde::{Deserialize, Serialize};

pub use crate::points::{EpochPoint, ReplicaDistance, TestPoint, TimedValue};
pub use crate::targets::Targets;

/// All that a study found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What was asked.
    pub study: StudyHead,
    /// The command that was given.
    pub command: String,
    /// The program that ran: its commit, or its version where that is not known.
    pub commit: String,
    /// Where it ran: usually on one machine.
    pub machines: Vec<Machine>,
    /// Whether runs shared a machine, each on processors of its own.
    pub is_side_by_side: bool,
    /// When it began, in UTC: `2026-11-15 02:45:00`.
    pub date: String,
    /// What was varied; the last varied fastest.
    pub axes: Vec<Axis>,
    /// One a setting and trial, in the order in which they ran.
    pub runs: Vec<RunResult>,
    /// What others found.
    pub published: Vec<Published>,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyHead {
    /// The study's name.
    pub name: String,
    /// The question.
    pub about: String,
    /// What the runs were made with.
    pub host: Host,
    /// Whether it was the short form.
    pub is_quick: bool,
    /// What is to be reached, whose time is taken.
    #[serde(flatten)]
    pub targets: Targets,
    /// How often each setting was to be run.
    pub trials: u32,
}

/// What runs a swarm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    /// Processes on this machine, with sockets between them.
    #[default]
    Processes,
    /// The simulator: all times are simulated.
    Sim,
}

/// Where a study ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// How many threads it runs at a time.
    pub n_cores: usize,
    /// Its memory, where it is known.
    pub memory_bytes: Option<u64>,
    /// The operating system.
    pub system: String,
    /// By what name it is reached, if it is not the one that ran the study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// Something that was varied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Axis {
    /// Its name: `strategy`, `peers`, `link`, or a field of the job.
    pub name: String,
    /// Its values as they are shown, in the order of the study's file.
    pub values: Vec<String>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The name of its folder.
    pub id: String,
    /// Each axis and its value in this run, as it is shown. What means nothing to one who trains alone is left out, and its
    /// strategy is shown as `alone`.
    pub setting: BTreeMap<String, String>,
    /// What was run, whether it was varied or not.
    pub facts: Facts,
    /// Which trial, counted from 1.
    pub trial: u32,
    /// Where its randomness came from.
    pub seed: u64,
    /// What came of it.
    pub outcome: Outcome,
    /// Its folder, within that of the study.
    pub folder: PathBuf,
}

/// What was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// How peers exchanged what they learnt; none where one trained alone.
    pub strategy: Option<String>,
    /// How many peers.
    pub n_peers: usize,
    /// The model.
    pub model: String,
    /// The data.
    pub data: String,
    /// Samples in a batch.
    pub batch: usize,
    /// Every peer's link; none where it was as fast as the machine.
    pub link: Option<String>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It ended as it should.
    Done(Box<Measurement>),
    /// It did not, and why.
    Failed(String),
}

/// What was measured in a run. In the simulator all seconds are simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// How many numbers were trained.
    pub n_params: usize,
    /// Training samples.
    pub n_train: usize,
    /// How many of them the split gave to nobody.
    #[serde(default)]
    pub n_dropped: usize,
    /// How many lines of its events are damaged, and left out.
    #[serde(default)]
    pub n_damaged: usize,
    /// After each epoch.
    pub epochs: Vec<EpochPoint>,
    /// What tests within epochs showed.
    #[serde(default)]
    pub evaluations: Vec<TestPoint>,
    /// What it is judged by.
    #[serde(default)]
    pub measure: Measure,
    /// The best that any test showed, by that measure: an accuracy, a perplexity or a loss.
    #[serde(alias = "best_accuracy", deserialize_with = "number_or_none")]
    pub best_value: f64,
    /// That after the last epoch.
    #[serde(alias = "final_accuracy", deserialize_with = "number_or_none")]
    pub final_value: f64,
    /// How long it took to the target, without the time of tests; none if it was not reached.
    pub convergence_s: Option<f64>,
    /// What was reached at fixed times.
    #[serde(alias = "accuracy_at")]
    pub value_at: Vec<TimedValue>,
    /// How long training took, without the time of tests.
    pub total_s: f64,
    /// How long everything took.
    pub wall_s: f64,
    /// Samples a second of training, all peers together.
    pub samples_per_s: f64,
    /// Each peer's part, sorted by peer; where one trained alone, its own if it was measured.
    pub peers: Vec<PeerMeasurement>,
    /// Bytes of bodies that all peers sent.
    pub payload_bytes: u64,
    /// Bytes that all peers wrote to their sockets; none where they were not counted.
    pub socket_bytes: Option<u64>,
    /// The classes' names.
    pub classes: Vec<String>,
    /// Rows are what test samples are, columns what the trained model took them for; empty where it was not tested.
    pub confusion: Vec<Vec<u64>>,
    /// How far replicas were apart at the ends of epochs.
    pub replica_distances: Vec<ReplicaDistance>,
    /// Peers that joined, or came back.
    #[serde(default)]
    pub joins: Vec<JoinMeasurement>,
    /// Members that were lost.
    #[serde(default)]
    pub losses: Vec<LossMeasurement>,
    /// The peak memory of the largest process.
    pub peak_rss_bytes: Option<u64>,
    /// What was predicted, if something was.
    pub prediction: Option<Prediction>,
}

/// A peer that joined, or came back, and took over the others' state.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct JoinMeasurement {
    /// Who.
    pub peer: PeerId,
    /// How much of the state came over links.
    pub n_bytes: u64,
    /// How long that took.
    pub state_s: f64,
    /// From how many it came.
    pub n_donors: usize,
    /// How long it took from when it began to look for the others until its first round counted; none for who came back.
    pub round_s: Option<f64>,
}

/// A member that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossMeasurement {
    /// Who.
    pub peer: PeerId,
    /// Why.
    pub cause: LossCause,
    /// How long it took from its last sign of life until the others were in a view without it.
    pub detection_s: f64,
    /// How long it took from there until a round counted again; none if the run ended before.
    pub recovery_s: Option<f64>,
}

impl Measurement {
    /// All tests in the order of training.
    pub fn tests(&self) -> Vec<TestPoint> {
        let mut tests: Vec<TestPoint> = self.epochs.iter().map(TestPoint::from).collect();
        tests.extend(&self.evaluations);
        tests.sort_by(|a, b| a.epoch.total_cmp(&b.epoch));
        tests
    }
}

/// What one peer did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerMeasurement {
    /// Who.
    pub peer: PeerId,
    /// On which machine it was, if not on the one that ran the study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The time that its times are about.
    pub elapsed_s: f64,
    /// How long it computed gradients.
    pub compute_s: f64,
    /// How long it worked on what it had computed.
    pub encode_s: f64,
    /// How long it worked on what others had sent.
    pub decode_s: f64,
    /// How long its links wrote, added up.
    pub send_s: f64,
    /// How long it waited for others.
    pub wait_s: f64,
    /// For whom it waited, as far as is known; sorted by peer.
    pub waits: Vec<WaitedFor>,
    /// Bytes of bodies that it sent.
    pub payload_sent_bytes: u64,
    /// Bytes of bodies that it received.
    pub payload_received_bytes: u64,
    /// What its process took of its machine; none where nobody looked.
    pub resources: Option<ResourceUse>,
}

/// For whom a peer waited.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitedFor {
    /// Whom.
    pub peer: PeerId,
    /// How long.
    pub seconds: f64,
}

/// What a process took of its machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResourceUse {
    /// Of one processor, in percent, over its time.
    pub cpu_percent_mean: f64,
    /// The most in one interval.
    pub cpu_percent_max: f64,
    /// Its peak memory.
    pub rss_bytes_max: u64,
    /// What went to its sockets: with framing and encryption.
    pub socket_sent_bytes: u64,
    /// What came from them.
    pub socket_received_bytes: u64,
    /// What was read from disks.
    pub disk_read_bytes: u64,
    /// What was written to disks.
    pub disk_written_bytes: u64,
    /// All that in its course, about once a second.
    pub series: Vec<ResourcePoint>,
}

/// What a process took of its machine in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourcePoint {
    /// The interval's end: seconds since training began, with tests.
    pub at_s: f64,
    /// How long the interval was.
    pub elapsed_s: f64,
    /// Of one processor, in percent.
    pub cpu_percent: f64,
    /// Memory at its end.
    pub rss_bytes: u64,
    /// Bytes to sockets.
    pub socket_sent_bytes: u64,
    /// Bytes from sockets.
    pub socket_received_bytes: u64,
    /// Bytes from disks.
    pub disk_read_bytes: u64,
    /// Bytes to disks.
    pub disk_written_bytes: u64,
}

/// What was predicted of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Samples a second of training, all peers together.
    pub samples_per_s: f64,
}

/// What others found, to be shown beside what we found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// What was measured: `training time`.
    pub name: String,
    /// In which setting; the axes that it names are those of the study, where they are.
    #[serde(default)]
    pub setting: BTreeMap<String, String>,
    /// What came out.
    pub value: f64,
    /// In what it is given: `s`, `%`, `x`.
    #[serde(default)]
    pub unit: String,
    /// Where it was published.
    pub source: String,
}

impl Results {
    /// Whether every run is of one process, without anybody to exchange with.
    pub(crate) fn has_no_peers(&self) -> bool {
        self.runs.iter().all(|run| run.facts.n_peers <= 1)
    }

    /// What its runs are judged by, going by the first that ended as it should.
    pub fn measure(&self) -> Measure {
        self.runs.iter().find_map(RunResult::measurement).map_or_else(Measure::default, |found| found.measure)
    }

    /// What is to be reached.
    pub fn target(&self) -> Option<f64> {
        self.study.targets.of(self.measure())
    }
}

impl Measurement {
    /// Bytes of bodies that a peer sent, in the mean over all.
    pub(crate) fn payload_bytes_per_peer(&self) -> f64 {
        self.payload_bytes as f64 / self.peers.len().max(1) as f64
    }

    /// Bytes that a peer wrote to its sockets, in the mean over all.
    pub(crate) fn socket_bytes_per_peer(&self) -> Option<f64> {
        self.socket_bytes.map(|bytes| bytes as f64 / self.peers.len().max(1) as f64)
    }
}

impl PeerMeasurement {
    /// What it is called, with its machine.
    pub(crate) fn name(&self) -> String {
        let host = self.host.as_ref().map_or(String::new(), |host| format!(" at {host}"));
        format!("{}{host}", self.peer)
    }
}

impl RunResult {
    /// What was measured, if the run ended as it should.
    pub fn measurement(&self) -> Option<&Measurement> {
        match &self.outcome {
            Outcome::Done(measurement) => Some(measurement),
            Outcome::Failed(_) => None,
        }
    }

    pub(crate) fn measurement_mut(&mut self) -> Option<&mut Measurement> {
        match &mut self.outcome {
            Outcome::Done(measurement) => Some(measurement),
            Outcome::Failed(_) => None,
        }
    }
}
