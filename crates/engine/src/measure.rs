//! What people judge a model by.

use serde::{Deserialize, Serialize};

use crate::data::{Dataset, TargetKind};

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

/// What people judge a model of these data by.
pub fn measure_of(data: &dyn Dataset) -> Measure {
    match data.target() {
        TargetKind::Class => Measure::Accuracy,
        TargetKind::Tokens => Measure::Perplexity { n_tokens: data.shape()[0] },
        TargetKind::Labels | TargetKind::Numbers { .. } | TargetKind::Positions { .. } => Measure::Loss,
    }
}

impl Measure {
    /// Its name, if there is one beside the loss.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Accuracy => Some("accuracy"),
            Self::Loss => None,
            Self::Perplexity { .. } => Some("perplexity"),
        }
    }

    /// What it is called, also where it is the loss itself.
    pub fn noun(self) -> &'static str {
        self.name().unwrap_or("loss")
    }

    /// Whether a value is as good as another, or better. What is no number is not.
    pub fn reaches(self, value: f64, target: f64) -> bool {
        match self {
            Self::Accuracy => value >= target,
            Self::Loss | Self::Perplexity { .. } => value <= target,
        }
    }

    /// An accuracy that was counted: none where samples have no class that could be right.
    pub fn counted(self, accuracy: f64) -> Option<f64> {
        // A task of somebody's own may count what is right and be judged by its loss.
        (self == Self::Accuracy || accuracy > 0.0).then_some(accuracy)
    }

    /// The better of two values. One that is no number is never the better.
    pub fn better(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Accuracy => a.max(b),
            Self::Loss | Self::Perplexity { .. } => a.min(b),
        }
    }

    /// A value with its name: `accuracy 98.40 %`, `perplexity 5.213`.
    pub fn value_text(self, value: f64) -> String {
        match self {
            Self::Accuracy => format!("accuracy {:.2} %", 100.0 * value),
            Self::Loss => format!("loss {value:.4}"),
            Self::Perplexity { .. } => format!("perplexity {value:.3}"),
        }
    }

    /// What it comes to.
    pub fn value(self, loss: f64, accuracy: f64) -> f64 {
        match self {
            Self::Accuracy => accuracy,
            Self::Loss => loss,
            Self::Perplexity { .. } => loss.exp(),
        }
    }

    /// How good that is, between 0 and 1: the accuracy, or where there is none e to minus the loss, the mean probability of what is right.
    pub fn quality(self, loss: f64, accuracy: f64) -> f64 {
        match self {
            Self::Accuracy => accuracy,
            // What is no number is no good.
            Self::Loss | Self::Perplexity { .. } if loss.is_nan() => 0.0,
            Self::Loss | Self::Perplexity { .. } => (-loss).exp().min(1.0),
        }
    }

    /// How good it is to come to this value.
    pub fn quality_of(self, value: f64) -> f64 {
        match self {
            Self::Accuracy => value,
            Self::Loss => self.quality(value, 0.0),
            Self::Perplexity { .. } => self.quality(value.ln(), 0.0),
        }
    }

    /// A quality that is a little worse: by this share, which for an accuracy is points.
    pub fn a_little_worse(self, quality: f64, share: f64) -> f64 {
        match self {
            Self::Accuracy => quality - share,
            Self::Loss | Self::Perplexity { .. } => quality * (1.0 - share),
        }
    }

    /// A quality in the words of what it was made of: `98.4 %`, `a perplexity of 5.21`.
    pub fn quality_text(self, quality: f64) -> String {
        match self {
            Self::Accuracy => format!("{:.1} %", 100.0 * quality),
            Self::Loss => format!("a loss of {:.4}", -quality.ln()),
            Self::Perplexity { .. } => format!("a perplexity of {:.2}", 1.0 / quality),
        }
    }

    /// The loss and what it comes to, as wide for every value: `loss 0.0512  accuracy  98.40 %`.
    pub fn text(self, loss: f64, accuracy: f64) -> String {
        match self {
            Self::Accuracy => format!("loss {loss:.4}  accuracy {:>6.2} %", 100.0 * accuracy),
            Self::Loss => format!("loss {loss:.4}"),
            Self::Perplexity { .. } => format!("loss {loss:.4}  perplexity {:>8.3}", loss.exp()),
        }
    }

    /// What is counted to say how fast training is: samples or tokens, and how many of them are in a sample.
    pub fn unit(self) -> (&'static str, usize) {
        match self {
            Self::Accuracy | Self::Loss => ("samples", 1),
            Self::Perplexity { n_tokens } => ("tokens", n_tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Measure;

    #[test]
    fn each_is_told_in_its_own_words() {
        assert_eq!(Measure::Accuracy.text(0.5, 0.984), "loss 0.5000  accuracy  98.40 %");
        assert_eq!(Measure::Loss.text(0.5, 0.0), "loss 0.5000");
        assert_eq!((Measure::Accuracy.counted(0.0), Measure::Loss.counted(0.25)), (Some(0.0), Some(0.25)));
        assert_eq!(Measure::Loss.counted(0.0), None);
        let text = Measure::Perplexity { n_tokens: 64 };
        assert_eq!(text.text(0.0, 0.0), "loss 0.0000  perplexity    1.000");
        assert_eq!((text.quality(0.0, 0.0), text.quality(f64::INFINITY, 0.0)), (1.0, 0.0));
        assert_eq!((text.quality(f64::NAN, 0.0), Measure::Accuracy.quality(9.0, 0.5)), (0.0, 0.5));
        assert_eq!(text.quality_text(text.quality_of(4.0)), "a perplexity of 4.00");
        assert_eq!(Measure::Loss.quality_text(Measure::Loss.quality_of(0.5)), "a loss of 0.5000");
        assert_eq!(Measure::Accuracy.quality_text(Measure::Accuracy.quality_of(0.984)), "98.4 %");
        assert_eq!((Measure::Accuracy.a_little_worse(0.5, 0.25), text.a_little_worse(0.5, 0.5)), (0.25, 0.25));
        assert_eq!(
            (Measure::Accuracy.better(0.5, 0.75), text.better(5.0, 4.0), text.better(f64::NAN, 4.0)),
            (0.75, 4.0, 4.0)
        );
        assert!(Measure::Accuracy.reaches(0.5, 0.5) && !Measure::Accuracy.reaches(f64::NAN, 0.5));
        assert!(text.reaches(4.0, 5.0) && !text.reaches(5.5, 5.0) && !Measure::Loss.reaches(f64::NAN, 5.0));
        assert_eq!(Measure::Accuracy.value_text(0.984), "accuracy 98.40 %");
        assert_eq!(
            (text.value_text(4.0), Measure::Loss.value_text(0.5)),
            ("perplexity 4.000".into(), "loss 0.5000".into())
        );
        assert_eq!((text.unit(), Measure::Accuracy.unit()), (("tokens", 64), ("samples", 1)));
    }
}
