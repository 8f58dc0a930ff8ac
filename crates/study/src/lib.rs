//! From a question to runs, and from runs to measurements that can be compared.
//!
//! A [`Study`] is a file: what is asked, what is varied, and what is the same in all runs. A [`Plan`] is the list of its runs, a
//! [`Runner`] makes them with the program that it is handed, and a [`StudyFolder`] keeps what came of each,
//! so that a study that was stopped goes on where it was. [`Results`] is all that was found; [`groups`] puts it side by side.
//!
//! What was found is shown beside what [`predict`] predicts; a [`Judge`] finds out by simulating what cannot be predicted, whether a
//! strategy learns, and [`advise`] says which one to take, if any.

pub mod report;

mod advice;
mod axis;
mod compare;
mod cores;
mod folder;
mod judge;
mod machine;
mod making;
mod measure;
mod message_rate;
mod pilot;
mod plan;
mod predict;
mod process;
mod ready;
mod results;
mod run_prediction;
mod runner;
mod runner_error;
mod sampled;
mod study;
mod time_left;
mod trial;
mod verdict;
mod welch;

pub use advice::{ALONE, Advice, Judged, advise};
pub use axis::{AxisError, AxisSpec};
pub use compare::{Group, SpeedUp, Spread, groups};
pub use cores::Cores;
pub use folder::{FolderError, Origin, StudyFolder};
pub use judge::{Depth, Judge, JudgeError, Question};
pub use measure::{Evaluation, MeasureError, measure};
pub use message_rate::message_rate;
pub use pilot::{Flight, Goal, Pilot, PilotEpoch, PilotError, fly};
pub use plan::{Plan, RunSpec, text};
pub use predict::{Forecast, MessageTime, Situation, StepTime, predict};
pub use ready::{READY, Ready, ready};
pub use results::{
    Axis, EpochPoint, Facts, Host, Machine, Measurement, Outcome, PeerMeasurement, Prediction, Published,
    ReplicaDistance, ResourcePoint, ResourceUse, Results, RunResult, StudyHead, TimedAccuracy, WaitedFor,
};
pub use runner::{Progress, Runner, RunnerEnd};
pub use runner_error::RunnerError;
pub use sampled::Sampled;
pub use study::{Form, Study, StudyError};
pub use trial::{Budget, Trial, try_out};
pub use verdict::{Learning, Verdict};
