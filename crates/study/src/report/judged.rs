//! What runs are judged by, in the words of a report.

use nettorrent_engine::measure::Measure;
use nettorrent_figures::Unit;

/// What values are shown in.
pub(crate) fn unit(measure: Measure) -> Unit {
    match measure {
        Measure::Accuracy => Unit::Share,
        Measure::Loss | Measure::Perplexity { .. } => Unit::Count,
    }
}

/// The word that begins a title.
pub(crate) fn title(measure: Measure) -> &'static str {
    match measure {
        Measure::Accuracy => "Accuracy",
        Measure::Loss => "Loss",
        Measure::Perplexity { .. } => "Perplexity",
    }
}

/// Several values.
pub(crate) fn plural(measure: Measure) -> &'static str {
    match measure {
        Measure::Accuracy => "accuracies",
        Measure::Loss => "losses",
        Measure::Perplexity { .. } => "perplexities",
    }
}

/// What the best and the worst value are called.
pub(crate) fn extremes(measure: Measure) -> (&'static str, &'static str) {
    match measure {
        Measure::Accuracy => ("highest", "lowest"),
        Measure::Loss | Measure::Perplexity { .. } => ("lowest", "highest"),
    }
}

/// How far a value is behind the best: `0.32 points below`, `4.1 % above`.
pub(crate) fn behind(measure: Measure, best: f64, value: f64) -> String {
    match measure {
        Measure::Accuracy => format!("{:.2} points below", (best - value) * 100.0),
        Measure::Loss | Measure::Perplexity { .. } if best > 0.0 => {
            format!("{:.1} % above", (value / best - 1.0) * 100.0)
        }
        Measure::Loss | Measure::Perplexity { .. } => format!("{} above", unit(measure).format(value - best)),
    }
}

/// A value that is to be reached: `95.0 %`, `a perplexity of 5.2`.
pub(crate) fn target_text(measure: Measure, target: f64) -> String {
    match measure {
        Measure::Accuracy => Unit::Share.format(target),
        Measure::Loss | Measure::Perplexity { .. } => format!("a {} of {target}", measure.noun()),
    }
}

#[cfg(test)]
mod tests {
    use super::{behind, target_text};
    use nettorrent_engine::measure::Measure;

    #[test]
    fn each_measure_has_words_of_its_own() {
        let text = Measure::Perplexity { n_tokens: 8 };
        assert_eq!(behind(Measure::Accuracy, 0.95, 0.94), "1.00 points below");
        assert_eq!(
            (behind(text, 4.0, 5.0), behind(Measure::Loss, 0.0, 0.5)),
            ("25.0 % above".into(), "0.5 above".into())
        );
        assert_eq!(target_text(Measure::Accuracy, 0.95), "95.0 %");
        assert_eq!(
            (target_text(text, 5.2), target_text(Measure::Loss, 0.1)),
            ("a perplexity of 5.2".into(), "a loss of 0.1".into())
        );
    }
}
