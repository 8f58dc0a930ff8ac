//! The options that all strategies share which average the peers' vectors in every round.

use serde::{Deserialize, Serialize};

use super::local_steps::LocalSteps;
use super::optimizer_state::OptimizerState;
use super::options::{OptionDoc, OptionError};
use super::round_plan::{Mixing, Payload, RoundPlan, Scale};
use crate::codec::Codec;

/// What is averaged, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Averaging {
    payload: Payload,
    local_steps: LocalSteps,
    codec: Codec,
    optimizer_state: OptimizerState,
}

impl Default for Averaging {
    fn default() -> Self {
        Self {
            payload: Payload::Gradients,
            local_steps: LocalSteps::Batches(1),
            codec: Codec::F32,
            optimizer_state: OptimizerState::Keep,
        }
    }
}

/// What `codec` does.
pub(crate) const CODEC: OptionDoc = OptionDoc {
    name: "codec",
    about: "how numbers travel: `f32` as they are, `f16` or `bf16` in half the bytes, `int8` in a quarter",
};

/// What `payload` does.
pub(crate) const PAYLOAD: OptionDoc = OptionDoc {
    name: "payload",
    about: "what is averaged: `gradients`, with one step of the optimizer for all, or `weights`, after each peer's own",
};

impl Averaging {
    /// The plan of a round and the codec that follow from them; options that contradict each other are refused.
    pub fn check(self, strategy: &'static str) -> Result<(RoundPlan, Codec), OptionError> {
        let Self { payload, local_steps, codec, optimizer_state } = self;
        let problem = match (payload, local_steps) {
            (Payload::Gradients, steps) if steps != LocalSteps::Batches(1) => {
                "local_steps is for payload = \"weights\": gradients are averaged after every batch"
            }
            (Payload::Gradients, _) if optimizer_state != OptimizerState::Keep => {
                "optimizer_state is for payload = \"weights\": with gradients all optimizers take the same steps and stay equal"
            }
            (_, steps) => {
                let optimizer_state = optimizer_state.check(strategy, codec)?;
                let (length, scale) = (steps.into(), Scale::Share);
                return Ok((RoundPlan { payload, length, scale, mixing: Mixing::Full, optimizer_state }, codec));
            }
        };
        Err(OptionError::Option { strategy, problem: problem.to_owned() })
    }
}
