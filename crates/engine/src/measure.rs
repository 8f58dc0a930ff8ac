//! What people judge a model by.

use serde::{Deserialize, Serialize};

/// What people judge a model by, beside its loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// The share of samples that were classified correctly.
    #[default]
    Accuracy,
    /// Nothing but the loss.
    Loss,
    /// The perplexity, e to the loss, of texts with so many tokens a sample.
    Perplexity {
        /// Tokens in a sample.
        n_tokens: usize,
    },
}
