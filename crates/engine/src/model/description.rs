//! How a network is described: the shape of a sample and a list of layers, in TOML.
//!
//! ```toml
//! input = [28, 28, 1]
//! layers = [
//!   { conv = { out = 32, kernel = 3 } },
//!   "relu",
//!   { max-pool = { size = 2 } },
//!   "flatten",
//!   { dense = { out = 10 } },
//! ]
//! ```

use serde::{Deserialize, Serialize};

/// A whole network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The shape of a sample: `[height, width, channels]`, `[steps, features]` or `[features]`.
    pub input: Vec<usize>,
    /// What is done to it, in order.
    pub layers: Vec<LayerSpec>,
}

/// One layer. Shapes are not given: they follow from the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerSpec {
    /// The mean of a sliding window.
    AveragePool(PoolSpec),
    /// Mean 0 and deviation 1 for each channel over the batch.
    BatchNorm(NormSpec),
    /// Two-dimensional convolution.
    Conv(ConvSpec),
    /// Fully connected.
    Dense(DenseSpec),
    /// Convolution with a filter for each channel.
    DepthwiseConv(DepthwiseSpec),
    /// Numbers become zero with this probability, while training.
    Dropout(f32),
    /// A learnt vector for every symbol.
    Embedding(EmbeddingSpec),
    /// A sample of any shape as one row.
    Flatten,
    /// x times the normal distribution's probability below x.
    Gelu,
    /// The mean of each channel over the whole image.
    GlobalPool,
    /// Mean 0 and deviation 1 for each row over its features.
    LayerNorm(NormSpec),
    /// The largest value of a sliding window.
    MaxPool(PoolSpec),
    /// Simple recurrent layer with tanh.
    Recurrent(RecurrentSpec),
    /// The positive part.
    Relu,
    /// A list of layers whose result is added to their input.
    Residual(ResidualSpec),
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
}

/// Options of `conv`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConvSpec {
    /// Channels of the output.
    pub out: usize,
    /// Rows and columns of the filter.
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
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `embedding`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddingSpec {
    /// How many symbols there are.
    pub symbols: usize,
    /// Numbers in a symbol's vector.
    pub out: usize,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Options of `batch-norm` and `layer-norm`.
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

/// Options of `recurrent`.
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

/// Options of `residual`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResidualSpec {
    /// The layers whose result is added.
    pub body: Vec<LayerSpec>,
    /// What is done to the input before it is added, where the shapes differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub projection: Vec<LayerSpec>,
    /// Its name in checkpoints, instead of its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl LayerSpec {
    /// The word that stands for this layer in a description.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::AveragePool(_) => "average-pool",
            Self::BatchNorm(_) => "batch-norm",
            Self::Conv(_) => "conv",
            Self::Dense(_) => "dense",
            Self::DepthwiseConv(_) => "depthwise-conv",
            Self::Dropout(_) => "dropout",
            Self::Embedding(_) => "embedding",
            Self::Flatten => "flatten",
            Self::Gelu => "gelu",
            Self::GlobalPool => "global-pool",
            Self::LayerNorm(_) => "layer-norm",
            Self::MaxPool(_) => "max-pool",
            Self::Recurrent(_) => "recurrent",
            Self::Relu => "relu",
            Self::Residual(_) => "residual",
            Self::Sigmoid => "sigmoid",
            Self::Tanh => "tanh",
        }
    }

    /// Whether it has anything to train.
    pub fn has_parameters(&self) -> bool {
        match self {
            Self::Residual(spec) => spec.body.iter().chain(&spec.projection).any(Self::has_parameters),
            Self::BatchNorm(_) | Self::Conv(_) | Self::Dense(_) | Self::DepthwiseConv(_) => true,
            Self::Embedding(_) | Self::LayerNorm(_) | Self::Recurrent(_) => true,
            Self::AveragePool(_) | Self::Dropout(_) | Self::Flatten | Self::Gelu | Self::GlobalPool => false,
            Self::MaxPool(_) | Self::Relu | Self::Sigmoid | Self::Tanh => false,
        }
    }

    /// Whether each channel of its output is made of the same channel of its input alone.
    pub fn is_by_channel(&self) -> bool {
        match self {
            Self::AveragePool(_)
            | Self::BatchNorm(_)
            | Self::DepthwiseConv(_)
            | Self::Dropout(_)
            | Self::Flatten
            | Self::Gelu
            | Self::GlobalPool
            | Self::MaxPool(_)
            | Self::Relu
            | Self::Sigmoid
            | Self::Tanh => true,
            Self::Conv(_)
            | Self::Dense(_)
            | Self::Embedding(_)
            | Self::LayerNorm(_)
            | Self::Recurrent(_)
            | Self::Residual(_) => false,
        }
    }

    /// Its name in checkpoints, if it was given one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Conv(spec) => spec.name.as_deref(),
            Self::Dense(spec) => spec.name.as_deref(),
            Self::DepthwiseConv(spec) => spec.name.as_deref(),
            Self::Embedding(spec) => spec.name.as_deref(),
            Self::BatchNorm(spec) | Self::LayerNorm(spec) => spec.name.as_deref(),
            Self::Recurrent(spec) => spec.name.as_deref(),
            Self::Residual(spec) => spec.name.as_deref(),
            _ => None,
        }
    }
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
