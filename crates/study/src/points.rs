//! How things stood at the tests of a run.

use nettorrent_engine::measure::Measure;
use nettorrent_swarm::record::number_or_none;
use serde::{Deserialize, Serialize};

/// How things stood after an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochPoint {
    /// Which, counted from 1.
    pub epoch: u64,
    /// The time since training began, without that of tests.
    pub seconds: f64,
    /// Share of the test samples that were classified correctly; no number where samples have no class.
    #[serde(deserialize_with = "number_or_none")]
    pub test_accuracy: f64,
    /// Mean loss of the test samples.
    #[serde(deserialize_with = "number_or_none")]
    pub test_loss: f64,
    /// Mean loss of the training samples, each when it was trained.
    pub train_loss: f64,
    /// Bytes of bodies that all peers had sent.
    pub sent_bytes: u64,
}

/// What a test showed, at an epoch's end or within.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TestPoint {
    /// How many epochs were done.
    pub epoch: f64,
    /// The time since training began, without that of tests.
    pub seconds: f64,
    /// Share of the test samples that were classified correctly; no number where samples have no class.
    #[serde(deserialize_with = "number_or_none")]
    pub test_accuracy: f64,
    /// Mean loss of the test samples.
    #[serde(deserialize_with = "number_or_none")]
    pub test_loss: f64,
    /// Bytes of bodies that all peers had sent.
    pub sent_bytes: u64,
}

impl TestPoint {
    /// What it came to by a measure.
    pub fn value(&self, measure: Measure) -> f64 {
        measure.value(self.test_loss, self.test_accuracy)
    }
}

impl From<&EpochPoint> for TestPoint {
    fn from(epoch: &EpochPoint) -> Self {
        let EpochPoint { seconds, test_accuracy, test_loss, sent_bytes, .. } = *epoch;
        Self { epoch: epoch.epoch as f64, seconds, test_accuracy, test_loss, sent_bytes }
    }
}

/// What was reached by some time, by the run's measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedValue {
    /// The time of training, without tests.
    pub seconds: f64,
    /// The best that had been tested by then; none before the first test.
    #[serde(alias = "accuracy")]
    pub value: Option<f64>,
}

/// How far replicas were apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaDistance {
    /// At the end of which epoch, counted from 1.
    pub epoch: u64,
    /// Of a replica from the mean of all, as a share of that mean's length.
    pub distance: f64,
}
