//! The line at the bottom of the terminal that shows how training goes, and the lines above it for what is done.

use std::path::Path;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use nettorrent_history::{Epoch, Evaluation};

/// A progress bar over the samples of an epoch. Where there is no terminal, only finished epochs are printed.
pub(crate) struct Display {
    bar: ProgressBar,
    quiet: bool,
}

impl Display {
    /// A display, or nothing at all if `quiet` (then other programs read standard output).
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(0) };
        let style = ProgressStyle::with_template("{prefix} {bar:24.cyan/dim} {msg}");
        bar.set_style(style.expect("the template is right").progress_chars("━╸─"));
        Self { bar, quiet }
    }

    /// Prints a line above the bar.
    pub(crate) fn say(&self, line: &str) {
        if self.quiet {
            return;
        }
        self.bar.suspend(|| println!("{line}"));
    }

    /// Tells people something that they need to know even when another program reads standard output.
    pub(crate) fn tell(&self, line: &str) {
        if self.quiet {
            eprintln!("{line}");
        } else {
            self.say(line);
        }
    }

    /// A new epoch of so many samples begins.
    pub(crate) fn begin(&self, epoch: u64, epochs: u64, n_samples: usize, done: usize) {
        self.bar.set_length(n_samples as u64);
        self.bar.set_position(done as u64);
        self.bar.set_prefix(epoch_name(epoch, epochs));
    }

    /// Shows how the epoch goes.
    pub(crate) fn advance(&self, done: usize, loss: f64, accuracy: f64, samples_per_s: f64, left: Duration) {
        self.bar.set_position(done as u64);
        self.bar.set_message(format!(
            "loss {loss:.4}  accuracy {:.2} %  {} samples/s  {} left",
            100.0 * accuracy,
            HumanCount(samples_per_s as u64),
            clock(left)
        ));
    }

    /// Shows that testing goes on.
    pub(crate) fn testing(&self) {
        self.bar.set_message("testing");
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A finished epoch in one line.
pub(crate) fn epoch_text(epoch: &Epoch, epochs: u64) -> String {
    format!(
        "{}  train loss {:.4}  accuracy {:>6.2} %   test loss {:.4}  accuracy {:>6.2} %  {:>7} samples/s  {:.1} s",
        epoch_name(epoch.epoch, epochs),
        epoch.train_loss,
        100.0 * epoch.train_accuracy,
        epoch.test_loss,
        100.0 * epoch.test_accuracy,
        HumanCount(epoch.samples_per_s as u64).to_string(),
        epoch.seconds,
    )
}

/// What people are told of a run that is finished.
pub(crate) fn finished_text(took: Duration, path: &Path) -> String {
    let (took, path) = (clock(took), path.display());
    format!("Finished in {took}. The run is in {path}\nEvaluate with: nettorrent eval {path}")
}

/// What they are told last if it has come to nothing.
pub(crate) const GUESSING: &str = "Finished, but the model has not learnt: its accuracy is that of guessing. Another optimizer.lr may \
                                   help, or more epochs, or another model.";

/// A test within an epoch in one line, below the other tests.
pub(crate) fn evaluation_text(evaluation: &Evaluation, epochs: u64) -> String {
    let Evaluation { epoch, test_loss, test_accuracy, .. } = *evaluation;
    let width = epochs.to_string().len() + 3;
    let train = "";
    format!(
        "epoch {epoch:>width$.2}/{epochs}  {train:<35} test loss {test_loss:.4}  accuracy {:>6.2} %",
        100.0 * test_accuracy
    )
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
