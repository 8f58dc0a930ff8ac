//! Models: layers, networks made of them from a description, and a zoo of well-known ones.
//!
//! A [`Network`] is an immutable function that any number of peers may share. Its parameters are a flat vector of `f32` that
//! lives elsewhere: first everything that is trained, then the running statistics of batch norms.

mod bucket_sink;
mod builder;
mod columns;
mod cut;
mod decoder;
mod description;
mod executor;
mod graph;
mod join;
mod layer;
mod layer_options;
pub mod layers;
mod layout;
mod loss;
mod network;
mod part;
mod part_spec;
mod pass;
mod place;
mod plan;
mod run;
mod score;
mod sequence_options;
mod shards;
mod workspace;
pub mod zoo;

pub use bucket_sink::BucketSink;
pub use columns::Columns;
pub use decoder::{Decoder, DecoderError};
pub use description::{LayerSpec, ModelSpec, ResidualSpec};
pub use graph::{ModelError, NamedTensor};
pub use layer::{
    Backward, BatchStatistics, Cache, Context, Init, Keeps, Layer, Mode, Role, Scratch, Shape, Tensor, n_values,
};
pub use layer_options::{
    ConvSpec, DenseSpec, DepthwiseSpec, EmbeddingSpec, NormSpec, PoolSpec, RecurrentSpec, RowNormSpec, StepsKept,
    SwigluSpec, UpsampleSpec,
};
pub use layout::{BUCKET_LEN, Layout};
pub use loss::{Loss, LossError, LossKind, LossSpec, best_class};
pub(crate) use loss::{R2, SQUARED_ERROR};
pub use network::{LayerSummary, Network};
pub use part::{Part, Rows, loss_gradient};
pub use part_spec::{PartSpec, Span};
pub use pass::Pass;
pub use score::{MOST_METRICS, Score};
pub use sequence_options::{AttentionSpec, PositionsSpec, TiedSpec};
pub use shards::{Unsplittable, most_tensor_shards};
pub use workspace::{Phase, Probe, Workspace};
