//! What people are told of a run's course, line by line.

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
        measure.text(epoch.test_loss, epoch.test_accuracy),
        speed_text(epoch.samples_per_s, measure),
        epoch.seconds,
    )
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
    let Evaluation { epoch, test_loss, test_accuracy, .. } = *evaluation;
    let width = epochs.to_string().len() + 3;
    let tested = measure.text(test_loss, test_accuracy);
    let train = " ".repeat("train ".len() + tested.len());
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
