//! The layers, one a file.

mod activation;
mod attention;
mod batch_norm;
mod cell;
mod conv;
mod dense;
mod depthwise;
mod dropout;
mod embedding;
mod pool;
mod positions;
mod recurrent;
mod rotary;
mod row_norm;
mod rows;
mod states;
mod window;

pub use activation::{Activation, ActivationKind};
pub use attention::Attention;
pub use batch_norm::BatchNorm;
pub use cell::Cell;
pub use conv::Conv;
pub use dense::Dense;
pub use depthwise::Depthwise;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use pool::{GlobalPool, Pool, PoolKind};
pub use positions::Positions;
pub use recurrent::Recurrent;
pub use rotary::Rotary;
pub use row_norm::{RowNorm, RowNormKind};
pub use states::States;
pub use window::Window;
