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
        Measure::Loss | Measure::Perplexity { .. } => format!("{:.1} % above", (value / best - 1.0) * 100.0),
    }
}

/// A value that is to be reached: `95.0 %`, `a perplexity of 5.2`.
pub(crate) fn target_text(measure: Measure, target: f64) -> String {
    match measure {
        Measure::Accuracy => Unit::Share.format(target),
        Measure::Loss | Measure::Perplexity { .. } => format!("a {} of {target}", measure.noun()),
    }
}
