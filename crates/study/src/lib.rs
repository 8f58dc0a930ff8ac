//! From a question to runs, and from runs to measurements that can be compared.
//!
//! A [`Study`] is a file: what is asked, what is varied, and what is the same in all runs. A [`Plan`] is the list of its runs, a
//! [`Runner`] makes them with the program that it is handed, and a [`StudyFolder`] keeps what came of each,
//! so that a study that was stopped goes on where it was. [`Results`] is all that was found; [`groups`] puts it side by side.
//!
//! The peers of a run are processes on this machine, or one each on [`RemoteHosts`]; the rest is the same.
//!
//! What was found is shown beside what `nettorrent-advise` predicts.

pub mod report;

mod axis;
mod compare;
mod cores;
mod folder;
mod machine;
mod making;
mod measure;
mod plan;
mod points;
mod process;
mod ready;
mod remote;
mod results;
mod run_prediction;
mod runner;
mod runner_error;
mod study;
mod targets;
mod time_left;
mod welch;

pub use axis::{AxisError, AxisSpec};
pub use compare::{Group, SpeedUp, Spread, groups};
pub use cores::Cores;
pub use folder::{FolderError, Origin, StudyFolder};
pub use measure::{Evaluation, MeasureError, measure};
pub use plan::{Plan, RunSpec, text};
pub use ready::{READY, Ready, find};
pub use remote::RemoteHosts;
pub use results::{
    Axis, EpochPoint, Facts, Host, JoinMeasurement, LossMeasurement, Machine, Measurement, Outcome, PeerMeasurement,
    Prediction, Published, ReplicaDistance, ResourcePoint, ResourceUse, Results, RunResult, StudyHead, Targets,
    TestPoint, TimedValue, WaitedFor,
};
pub use runner::{Progress, Runner, RunnerEnd};
pub use runner_error::RunnerError;
pub use study::{Form, Study, StudyError};
