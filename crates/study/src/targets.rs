//! What runs are to reach.

use nettorrent_engine::measure::Measure;
use serde::{Deserialize, Serialize};

/// What is to be reached, by what runs are judged by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Targets {
    /// An accuracy, as a share.
    #[serde(rename = "target_accuracy")]
    pub accuracy: Option<f64>,
    /// A loss.
    #[serde(default, rename = "target_loss")]
    pub loss: Option<f64>,
    /// A perplexity.
    #[serde(default, rename = "target_perplexity")]
    pub perplexity: Option<f64>,
}

impl Targets {
    /// The one for runs that are judged by this measure.
    pub fn of(&self, measure: Measure) -> Option<f64> {
        match measure {
            Measure::Accuracy => self.accuracy,
            Measure::Loss => self.loss,
            Measure::Perplexity { .. } => self.perplexity,
        }
    }
}
