//! The options of the layers that have any.

use serde::{Deserialize, Serialize};

/// Options of `conv`, `conv1d`, `conv3d` and `transposed-conv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Channels of the output.
    pub out: usize,
    /// Length of the filter along each axis.
    pub kernel: usize,
    /// Steps between neighbouring outputs; for `transposed-conv` between neighbouring inputs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stride: usize,
    /// Width of the border of zeros; `transposed-conv` cuts it off the output.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub padding: usize,
    /// Whether a bias is added.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub bias: bool,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `depthwise-conv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DepthwiseSpec {
    /// Rows and columns of the filters.
    pub kernel: usize,
    /// Steps between neighbouring outputs.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stride: usize,
    /// Width of the border of zeros.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub padding: usize,
    /// Whether a bias is added.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub bias: bool,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `dense`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DenseSpec {
    /// Numbers in the output.
    pub out: usize,
    /// Whether a bias is added.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub bias: bool,
    /// The deviation of the normal numbers that its weights start as, with biases of 0; by default both are uniform, as PyTorch's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<f32>,
    /// Names and numbers of outputs of the tensors that its weights are stored as in checkpoints, if not as one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, usize)>,
    /// Whether its weights are stored with a row for each input, as GPT-2's are, and not for each output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub transposed: bool,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl DenseSpec {
    /// So many outputs, and all else as usual.
    pub fn new(out: usize) -> Self {
        Self { out, bias: true, init: None, parts: Vec::new(), transposed: false, name: None }
    }

    /// The same under this name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }
}

/// Options of `embedding`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingSpec {
    /// How many symbols there are.
    pub symbols: usize,
    /// Numbers in a symbol's vector.
    pub out: usize,
    /// The deviation of the normal numbers that they start as; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<f32>,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `batch-norm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormSpec {
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `max-pool` and `average-pool`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolSpec {
    /// Rows and columns of the window.
    pub size: usize,
    /// Steps between neighbouring windows; by default they do not overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<usize>,
    /// Width of the border.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub padding: usize,
}

/// Options of `gru`, `lstm` and `recurrent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecurrentSpec {
    /// Numbers in a state.
    pub out: usize,
    /// Which steps go on to the next layer.
    #[serde(default)]
    pub steps: StepsKept,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Which steps of a recurrent layer go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepsKept {
    /// All of them, as a sequence.
    All,
    /// Only the last.
    #[default]
    Last,
}

/// Options of `layer-norm` and `rms-norm`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowNormSpec {
    /// Added to the mean square before the root, so that a row of zeros stays one; 1e-5 for `layer-norm` and 1e-6 for
    /// `rms-norm` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f32>,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `swiglu`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwigluSpec {
    /// Numbers in the output.
    pub out: usize,
    /// Whether the dense layers add a bias.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bias: bool,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `upsample`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpsampleSpec {
    /// How often each pixel is repeated, along rows and along columns.
    pub factor: usize,
}

fn one() -> usize {
    1
}

fn yes() -> bool {
    true
}

fn is_one(n: &usize) -> bool {
    *n == 1
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

fn is_yes(flag: &bool) -> bool {
    *flag
}
