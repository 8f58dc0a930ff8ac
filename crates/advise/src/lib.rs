//! What this machine and its links can do, and what follows from it: which strategy to take, if any, and which plan of a pipeline.
//!
//! [`Findings`] are about strategies: steps and messages are measured, [`predict`] says how fast each strategy is, simulations show
//! whether it learns, and from that follows which one to take. A [`PipelineReport`] is about networks that no peer holds
//! whole. [`ModelSpeed`] is how fast this machine trains a model by itself.

mod advice;
mod compute_speed;
mod cores;
mod error;
mod findings;
mod findings_text;
mod judge;
mod message_rate;
mod model_speed;
mod pilot;
mod pipeline_report;
mod predict;
mod sampled;
mod step_time;
mod timed;
mod trial;
mod verdict;

pub use compute_speed::{ComputeSpeed, SpeedSource};
pub use error::AdviseError;
pub use findings::{Findings, Inquiry};
pub use findings_text::ASSUMPTIONS;
pub use judge::{Depth, JudgeError};
pub use model_speed::{LayerTime, ModelSpeed, Workload, peak_gflop_per_s};
pub use pilot::PilotError;
pub use pipeline_report::{PIPELINE_ASSUMPTIONS, PipelineReport};
pub use predict::{Forecast, MessageTime, Situation, StepTime, Steps, predict};
