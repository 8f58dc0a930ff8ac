//! A plan and what is expected of it.

use serde::Serialize;

use super::estimate::Estimate;
use crate::plan::PipelinePlan;

/// What kind of plan it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// Every peer holds the whole network.
    DataParallel,
    /// Groups of layers, each held by a single peer of a replica.
    Pipeline,
    /// Some stage is shared by a grid of peers.
    Mixed,
}

/// A plan and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// What kind it is.
    pub kind: PlanKind,
    /// The stages.
    pub plan: PipelinePlan,
    /// How fast and how large.
    pub estimate: Estimate,
}

impl PlanKind {
    /// The kind of a plan.
    pub fn of(plan: &PipelinePlan) -> Self {
        match plan.stages.as_slice() {
            stages if stages.iter().any(|stage| stage.batch_shards * stage.tensor_shards > 1) => Self::Mixed,
            [_] => Self::DataParallel,
            _ => Self::Pipeline,
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::DataParallel => "data parallel",
            Self::Pipeline => "pipeline",
            Self::Mixed => "mixed",
        }
    }
}
