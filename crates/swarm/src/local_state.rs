//! What steps of an optimizer begin and end with.

use std::fmt;
use std::sync::Arc;

use nettorrent_engine::optimizer::Optimizer;

/// What a worker is lent to take steps with.
#[derive(Clone)]
pub struct LocalState {
    /// The parameters.
    pub(crate) values: Arc<Vec<f32>>,
    /// What takes the steps, with what it remembers.
    pub(crate) optimizer: Optimizer,
}

impl fmt::Debug for LocalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalState").field("n_values", &self.values.len()).finish_non_exhaustive()
    }
}
