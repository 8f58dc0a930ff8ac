//! From a question to runs, and from runs to measurements that can be compared.

pub mod report;
mod results;

pub use results::{
    Axis, EpochPoint, Facts, Host, Machine, Measurement, Outcome, PeerMeasurement, Prediction, Published,
    ReplicaDistance, ResourcePoint, ResourceUse, Results, RunResult, StudyHead, TimedAccuracy, WaitedFor,
};
