//! The options of the layers that transformers are made of.

use serde::{Deserialize, Serialize};

/// Options of `attention`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionSpec {
    /// How many heads ask.
    pub heads: usize,
    /// How many heads are asked, each shared by as many that ask; by default as many as ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<usize>,
    /// Whether a position sees only itself and those before it, as in a language model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub causal: bool,
    /// The base of rotary positions (10000 in Llama); without it, positions are not told apart here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotary: Option<f32>,
    /// The probability that a weight is dropped while training.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropout: f32,
}

/// Options of `positions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionsSpec {
    /// How many positions there are vectors for; by default as many as a sample has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<usize>,
    /// The deviation of the normal numbers that they start as; 0.02 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<f32>,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `tied-dense`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TiedSpec {
    /// The name of the embedding whose vectors are the weights.
    pub to: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(number: &f32) -> bool {
    *number == 0.0
}
