//! What people are told of a run's course, line by line.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use indicatif::HumanCount;
use nettorrent_engine::measure::Measure;
use nettorrent_history::{Epoch, Evaluation};

/// A finished epoch in one line.
pub(crate) fn epoch_text(epoch: &Epoch, epochs: u64, measure: Measure) -> String {
    format!(
        "{}  train {}   test {}  {}  {:.1} s",
        epoch_name(epoch.epoch, epochs),
        measure.text(epoch.train_loss, epoch.train_accuracy),
        tested_text(measure, epoch.test_loss, epoch.test_accuracy, &epoch.metrics),
        speed_text(epoch.samples_per_s, measure),
        epoch.seconds,
    )
}

/// How good a model is by a test. Where samples have no class of their own that is the loss, and beside it what else says so: the share of
/// labels or positions that are right, or R².
pub(crate) fn tested_text(measure: Measure, loss: f64, accuracy: f64, metrics: &BTreeMap<String, f64>) -> String {
    let mut text = measure.text(loss, accuracy);
    if measure == Measure::Loss {
        if let Some(accuracy) = metrics.get("accuracy") {
            text += &format!("  accuracy {:>6.2} %", 100.0 * accuracy);
        }
        if let Some(r2) = metrics.get("r2") {
            text += &format!("  R² {r2:>7.4}");
        }
    }
    text
}

/// `1,234 samples/s`, or tokens.
pub(crate) fn speed_text(samples_per_s: f64, measure: Measure) -> String {
    let (unit, n_each) = measure.unit();
    format!("{:>7} {unit}/s", HumanCount((samples_per_s * n_each as f64) as u64).to_string())
}

/// What people are told of a run that is finished, and where the model is: if not here, this peer held a part of it.
pub(crate) fn finished_text(took: Duration, path: Option<&Path>) -> String {
    let took = clock(took);
    let Some(path) = path.map(Path::display) else {
        return format!(
            "Finished in {took}. This peer held only a part of the network; the first peer keeps the whole."
        );
    };
    format!("Finished in {took}. The run is in {path}\nEvaluate with: nettorrent eval {path}")
}

/// What people are told of a run that was stopped. Where layers are shared out, nobody has the whole to keep: what is kept is gathered at
/// the end of epochs.
pub(crate) fn stopped_text(step: u64, is_kept: bool, path: &Path) -> String {
    let lost = if is_kept { "nothing is lost" } else { "what was learnt since the last checkpoint is lost" };
    format!("Stopped at step {step}; {lost}. Go on with: nettorrent resume {}", path.display())
}

/// What they are told last if it has come to nothing.
pub(crate) const GUESSING: &str = "Finished, but the model has not learnt: its accuracy is that of guessing. Another optimizer.lr may \
                                   help, or more epochs, or another model.";

/// A test within an epoch in one line, below the other tests.
pub(crate) fn evaluation_text(evaluation: &Evaluation, epochs: u64, measure: Measure) -> String {
    let Evaluation { epoch, test_loss, test_accuracy, ref metrics, .. } = *evaluation;
    let width = epochs.to_string().len() + 3;
    let tested = tested_text(measure, test_loss, test_accuracy, metrics);
    let train = " ".repeat("train ".len() + measure.text(test_loss, test_accuracy).len());
    format!("epoch {epoch:>width$.2}/{epochs}  {train}   test {tested}")
}

/// `epoch  3/10`, as wide for every epoch.
pub(crate) fn epoch_name(epoch: u64, epochs: u64) -> String {
    let width = epochs.to_string().len();
    format!("epoch {epoch:>width$}/{epochs}")
}

/// `1:02:03` or `4:05`.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nettorrent_engine::measure::Measure;

    use super::tested_text;

    #[test]
    fn what_has_no_class_of_its_own_is_told_by_what_is_measured_beside_its_loss() {
        let text = |measure, metrics: &[(&str, f64)]| {
            let metrics: BTreeMap<String, f64> =
                metrics.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
            tested_text(measure, 0.5, 0.25, &metrics)
        };
        assert_eq!(text(Measure::Loss, &[("accuracy", 0.9321)]), "loss 0.5000  accuracy  93.21 %");
        let numbers = [("absolute_error", 0.5), ("r2", 0.75), ("squared_error", 0.5)];
        assert_eq!(text(Measure::Loss, &numbers), "loss 0.5000  R²  0.7500");
        assert_eq!(text(Measure::Loss, &[]), "loss 0.5000");
        assert_eq!(text(Measure::Accuracy, &[("accuracy", 0.9)]), "loss 0.5000  accuracy  25.00 %");
    }
}
