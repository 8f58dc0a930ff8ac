//! The options that all strategies share which average the peers' vectors in every round.

use nettorrent_engine::data::rounds::RoundLength;
use serde::{Deserialize, Serialize};

use super::{Mixing, OptimizerState, OptionDoc, OptionError, Payload, Scale, Turn};
use crate::codec::Codec;

/// What is averaged, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Averaging {
    payload: Payload,
    local_steps: u32,
    codec: Codec,
    optimizer_state: OptimizerState,
}

impl Default for Averaging {
    fn default() -> Self {
        Self { payload: Payload::Gradients, local_steps: 1, codec: Codec::F32, optimizer_state: OptimizerState::Keep }
    }
}

/// What `codec` does.
pub const CODEC: OptionDoc = OptionDoc {
    name: "codec",
    about: "how numbers travel: `f32` as they are, `f16` or `bf16` in half the bytes, `int8` in a quarter",
};

/// What `local_steps` does.
pub const LOCAL_STEPS: OptionDoc = OptionDoc {
    name: "local_steps",
    about: "with weights: how many batches each peer trains by itself before they are averaged",
};

/// What `payload` does.
pub const PAYLOAD: OptionDoc = OptionDoc {
    name: "payload",
    about: "what is averaged: `gradients`, with one step of the optimizer for all, or `weights`, after each peer's own",
};

impl Averaging {
    /// The turn and the codec that follow from them; options that contradict each other are refused.
    pub fn check(self, strategy: &'static str) -> Result<(Turn, Codec), OptionError> {
        let Self { payload, local_steps, codec, optimizer_state } = self;
        let problem = match (payload, local_steps) {
            (_, 0) => "local_steps = 0: must be at least 1",
            (Payload::Gradients, 2..) => {
                "local_steps is for payload = \"weights\": gradients are averaged after every batch"
            }
            (Payload::Gradients, _) if optimizer_state != OptimizerState::Keep => {
                "optimizer_state is for payload = \"weights\": with gradients all optimizers take the same steps and stay equal"
            }
            (_, n) => {
                let optimizer_state = optimizer_state.check(strategy, codec)?;
                let (length, scale) = (RoundLength::Batches(n), Scale::Share);
                return Ok((Turn { payload, length, scale, mixing: Mixing::Full, optimizer_state }, codec));
            }
        };
        Err(OptionError::Option { strategy, problem: problem.to_owned() })
    }
}
