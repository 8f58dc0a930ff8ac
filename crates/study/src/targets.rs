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

    /// What is to be said if there are some, and none for runs that are judged by this measure.
    pub fn unfit(&self, measure: Measure) -> Option<String> {
        let all =
            [("target_accuracy", self.accuracy), ("target_loss", self.loss), ("target_perplexity", self.perplexity)];
        let given: Vec<&str> = all.iter().filter(|(_, target)| target.is_some()).map(|(name, _)| *name).collect();
        let (noun, is_unfit) = (measure.noun(), !given.is_empty() && self.of(measure).is_none());
        let names = given.join(" and ");
        is_unfit.then(|| {
            format!("these runs are judged by their {noun}, so {names} says nothing of them; set target_{noun}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Measure, Targets};

    #[test]
    fn targets_for_other_measures_are_named() {
        let targets = Targets { accuracy: Some(0.9), ..Targets::default() };
        assert_eq!(targets.unfit(Measure::Accuracy), None);
        let said = targets.unfit(Measure::Loss).unwrap();
        assert!(
            said.contains("judged by their loss, so target_accuracy") && said.ends_with("set target_loss"),
            "{said}"
        );
        assert_eq!(Targets::default().unfit(Measure::Loss), None);
    }
}
