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

use super::layer_options::{
    ConvSpec, DenseSpec, DepthwiseSpec, EmbeddingSpec, NormSpec, PoolSpec, RecurrentSpec, RowNormSpec, SwigluSpec,
    UpsampleSpec,
};
use super::sequence_options::{AttentionSpec, PositionsSpec, TiedSpec};

/// A whole network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// The shape of a sample: `[depth, height, width, channels]`, `[height, width, channels]`, `[steps, features]` or
    /// `[features]`.
    pub input: Vec<usize>,
    /// What is done to it, in order.
    pub layers: Vec<LayerSpec>,
}

impl ModelSpec {
    /// Whether a stage of a pipeline may begin at this layer: not between one that is needed above, and the one that needs it.
    pub fn can_cut(&self, layer: usize) -> bool {
        let (below, above) = self.layers.split_at(layer.min(self.layers.len()));
        let (mut below_all, mut above_all) = (Vec::new(), Vec::new());
        below.iter().for_each(|layer| layer.visit(&mut |layer| below_all.push(layer)));
        above.iter().for_each(|layer| layer.visit(&mut |layer| above_all.push(layer)));
        above_all.retain(|layer| matches!(layer, LayerSpec::Concat(_) | LayerSpec::TiedDense(_)));
        !above_all.iter().any(|above| below_all.iter().any(|below| above.needs(below)))
    }
}

/// One layer. Shapes are not given: they follow from the input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerSpec {
    /// Multi-head attention over rows of queries, keys and values.
    Attention(AttentionSpec),
    /// The mean of a sliding window.
    AveragePool(PoolSpec),
    /// Mean 0 and deviation 1 for each channel over the batch.
    BatchNorm(NormSpec),
    /// Joins the channels of the value that the `mark` of this name remembers to those of the current one, which come first.
    Concat(String),
    /// Two-dimensional convolution.
    Conv(ConvSpec),
    /// Convolution along the steps of a sequence.
    Conv1d(ConvSpec),
    /// Three-dimensional convolution over `[depth, height, width, channels]`.
    Conv3d(ConvSpec),
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
    /// The tanh approximation of gelu, as GPT-2 has it.
    GeluTanh,
    /// The mean of each channel over the whole image, or of each feature over all steps.
    GlobalPool,
    /// Gated recurrent unit.
    Gru(RecurrentSpec),
    /// Mean 0 and deviation 1 for each row over its features.
    LayerNorm(RowNormSpec),
    /// Long short-term memory.
    Lstm(RecurrentSpec),
    /// Remembers the value here, under this name, for a `concat` further on.
    Mark(String),
    /// The largest value of a sliding window.
    MaxPool(PoolSpec),
    /// A learnt vector for every position, added to what is there.
    Positions(PositionsSpec),
    /// Simple recurrent layer with tanh.
    Recurrent(RecurrentSpec),
    /// The positive part.
    Relu,
    /// A list of layers whose result is added to their input.
    Residual(ResidualSpec),
    /// Root mean square 1 for each row over its features, without taking the mean off.
    RmsNorm(RowNormSpec),
    /// The pixels of an image as the steps of a sequence, row by row.
    Sequence,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// x / (1 + e^-x).
    Silu,
    /// The product of two dense layers of the same input, one of them through silu, as in Llama's feed-forward blocks.
    Swiglu(SwigluSpec),
    /// The hyperbolic tangent.
    Tanh,
    /// Fully connected at every position, with the vectors of an embedding as weights.
    TiedDense(TiedSpec),
    /// Two-dimensional transposed convolution, which makes images larger: by `stride` times, beside what the filter needs.
    TransposedConv(ConvSpec),
    /// Every pixel becomes a square of equal ones.
    Upsample(UpsampleSpec),
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
            Self::Attention(_) => "attention",
            Self::AveragePool(_) => "average-pool",
            Self::BatchNorm(_) => "batch-norm",
            Self::Concat(_) => "concat",
            Self::Conv(_) => "conv",
            Self::Conv1d(_) => "conv1d",
            Self::Conv3d(_) => "conv3d",
            Self::Dense(_) => "dense",
            Self::DepthwiseConv(_) => "depthwise-conv",
            Self::Dropout(_) => "dropout",
            Self::Embedding(_) => "embedding",
            Self::Flatten => "flatten",
            Self::Gelu => "gelu",
            Self::GeluTanh => "gelu-tanh",
            Self::GlobalPool => "global-pool",
            Self::Gru(_) => "gru",
            Self::LayerNorm(_) => "layer-norm",
            Self::Lstm(_) => "lstm",
            Self::Mark(_) => "mark",
            Self::MaxPool(_) => "max-pool",
            Self::Positions(_) => "positions",
            Self::Recurrent(_) => "recurrent",
            Self::Relu => "relu",
            Self::Residual(_) => "residual",
            Self::RmsNorm(_) => "rms-norm",
            Self::Sequence => "sequence",
            Self::Sigmoid => "sigmoid",
            Self::Silu => "silu",
            Self::Swiglu(_) => "swiglu",
            Self::Tanh => "tanh",
            Self::TiedDense(_) => "tied-dense",
            Self::TransposedConv(_) => "transposed-conv",
            Self::Upsample(_) => "upsample",
        }
    }

    /// Whether it looks past what comes out of the layer below it, at this one.
    fn needs(&self, below: &Self) -> bool {
        match (self, below) {
            (Self::Concat(name), Self::Mark(mark)) => name == mark,
            (Self::TiedDense(spec), Self::Embedding(below)) => below.name.as_ref() == Some(&spec.to),
            _ => false,
        }
    }

    /// Calls `visit` for this layer and for all within it.
    fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        if let Self::Residual(spec) = self {
            spec.body.iter().chain(&spec.projection).for_each(|layer| layer.visit(visit));
        }
    }

    /// Whether it has anything to train.
    pub fn has_parameters(&self) -> bool {
        match self {
            Self::Residual(spec) => spec.body.iter().chain(&spec.projection).any(Self::has_parameters),
            Self::BatchNorm(_)
            | Self::Conv(_)
            | Self::Conv1d(_)
            | Self::Conv3d(_)
            | Self::Dense(_)
            | Self::DepthwiseConv(_)
            | Self::Embedding(_)
            | Self::Gru(_)
            | Self::LayerNorm(_)
            | Self::Lstm(_)
            | Self::Positions(_)
            | Self::Recurrent(_)
            | Self::RmsNorm(_)
            | Self::Swiglu(_)
            | Self::TiedDense(_)
            | Self::TransposedConv(_) => true,
            Self::Attention(_)
            | Self::AveragePool(_)
            | Self::Concat(_)
            | Self::Dropout(_)
            | Self::Flatten
            | Self::Gelu
            | Self::GeluTanh
            | Self::GlobalPool
            | Self::Mark(_)
            | Self::MaxPool(_)
            | Self::Relu
            | Self::Sequence
            | Self::Sigmoid
            | Self::Silu
            | Self::Tanh
            | Self::Upsample(_) => false,
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
            | Self::GeluTanh
            | Self::GlobalPool
            | Self::Mark(_)
            | Self::MaxPool(_)
            | Self::Relu
            | Self::Sequence
            | Self::Sigmoid
            | Self::Silu
            | Self::Tanh
            | Self::Upsample(_) => true,
            Self::Attention(_)
            | Self::Concat(_)
            | Self::Conv(_)
            | Self::Conv1d(_)
            | Self::Conv3d(_)
            | Self::Dense(_)
            | Self::Embedding(_)
            | Self::Gru(_)
            | Self::LayerNorm(_)
            | Self::Lstm(_)
            | Self::Positions(_)
            | Self::Recurrent(_)
            | Self::Residual(_)
            | Self::RmsNorm(_)
            | Self::Swiglu(_)
            | Self::TiedDense(_)
            | Self::TransposedConv(_) => false,
        }
    }

    /// How many outputs (channels, where it has positions) it makes, if several peers can make some of them each.
    pub fn outputs_to_split(&self) -> Option<usize> {
        self.clone().outputs_mut().copied()
    }

    /// The same, to be changed.
    pub(super) fn outputs_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Conv(spec) | Self::Conv1d(spec) | Self::Conv3d(spec) => Some(&mut spec.out),
            Self::Dense(spec) if spec.parts.is_empty() => Some(&mut spec.out),
            Self::Embedding(spec) => Some(&mut spec.out),
            Self::Swiglu(spec) => Some(&mut spec.out),
            _ => None,
        }
    }

    /// Its name in checkpoints, if it was given one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Conv(spec) | Self::Conv1d(spec) | Self::Conv3d(spec) | Self::TransposedConv(spec) => {
                spec.name.as_deref()
            }
            Self::Dense(spec) => spec.name.as_deref(),
            Self::DepthwiseConv(spec) => spec.name.as_deref(),
            Self::Embedding(spec) => spec.name.as_deref(),
            Self::BatchNorm(spec) => spec.name.as_deref(),
            Self::LayerNorm(spec) | Self::RmsNorm(spec) => spec.name.as_deref(),
            Self::Gru(spec) | Self::Lstm(spec) | Self::Recurrent(spec) => spec.name.as_deref(),
            Self::Positions(spec) => spec.name.as_deref(),
            Self::Residual(spec) => spec.name.as_deref(),
            Self::Swiglu(spec) => spec.name.as_deref(),
            _ => None,
        }
    }
}
