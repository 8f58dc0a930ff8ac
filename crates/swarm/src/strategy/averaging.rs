//! The options that all strategies share which average the peers' vectors in every round.

use nettorrent_engine::data::rounds::RoundLength;
use serde::{Deserialize, Serialize};

use super::{OptionDoc, OptionError, Payload, Scale, Turn};
use crate::codec::Codec;

/// What is averaged, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Averaging {
    payload: Payload,
    local_steps: u32,
    codec: Codec,
}

impl Default for Averaging {
    fn default() -> Self {
        Self { payload: Payload::Gradients, local_steps: 1, codec: Codec::F32 }
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
        let problem = match (self.payload, self.local_steps) {
            (_, 0) => "local_steps = 0: must be at least 1",
            (Payload::Gradients, 2..) => {
                "local_steps is for payload = \"weights\": gradients are averaged after every batch"
            }
            (payload, n) => {
                return Ok((
                    Turn { payload, length: RoundLength::Batches(n), scale: Scale::Share, is_averaged: true },
                    self.codec,
                ));
            }
        };
        Err(OptionError::Option { strategy, problem: problem.to_owned() })
    }
}
