//! How a run that trains in one process is tested, at the ends of epochs and within.

use std::time::Instant;

use nettorrent_engine::model::Score;
use nettorrent_engine::task::Task;
use nettorrent_engine::trainer::Trainer;
use nettorrent_history::{Evaluation, Event};

use super::Session;
use crate::progress::evaluation_text;

impl Session<'_> {
    /// Whether it is time for a test within the epoch, after so many steps.
    fn is_evaluation_due(&self, step: u64) -> bool {
        let spec = &self.job.evaluate;
        spec.last_due(step - 1, step).is_some()
            || spec.interval().is_some_and(|interval| self.tested.elapsed() >= interval)
    }

    /// Tests within an epoch if it is time to; training goes on as if nothing had happened.
    pub(super) fn evaluate_if_due(&mut self, trainer: &Trainer<'_>) -> anyhow::Result<()> {
        if !self.is_evaluation_due(trainer.progress().step) {
            return Ok(());
        }
        let began = Instant::now();
        let Some(test) = self.test(trainer)? else { return Ok(()) };
        let (epoch, step) = (trainer.epochs_done(), trainer.progress().step);
        let (test_loss, test_accuracy, test_seconds) = (test.loss(), test.accuracy(), began.elapsed().as_secs_f64());
        let evaluation = Evaluation { epoch, step, test_loss, test_accuracy, test_seconds, sent_bytes: 0 };
        self.display.say(&evaluation_text(&evaluation, self.job.epochs));
        Ok(self.events.write(Event::Evaluation(evaluation))?)
    }

    /// How the test samples are classified. What a part of them says is no result: there is none if Ctrl-C cut the test short.
    pub(super) fn test(&mut self, trainer: &Trainer<'_>) -> anyhow::Result<Option<Score>> {
        self.display.testing();
        let interrupt = self.interrupt.clone();
        let samples = 0..self.learning.n_test();
        let test = self.worker.test_while(trainer.values(), samples, || !interrupt.is_set())?;
        self.tested = Instant::now();
        Ok((test.n == self.learning.n_test()).then_some(test))
    }
}
