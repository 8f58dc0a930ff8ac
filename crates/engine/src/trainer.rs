//! The training loop of one peer, a step at a time: whoever drives it decides when to stop, save and show.
//!
//! It looks after itself: samples that spoil their batch are left out, and a run that diverges goes back to its last good
//! state and on with half the learning rate. What it did is told as an [`Incident`].

mod recovery;

use std::collections::BTreeSet;

use crate::bad_samples::find_bad_samples;
use crate::checkpoint::Progress;
use crate::collapse::{Collapse, size};
use crate::cpu_worker::CpuWorker;
use crate::data::batches::BatchError;
use crate::guard::{Divergence, LossGuard};
use crate::guessing::Guessing;
use crate::job::Job;
use crate::learning::Learning;
use crate::model::Score;
use crate::optimizer::Optimizer;
use crate::rng::mix;
use crate::task::Task;
use crate::train_error::TrainError;
use recovery::{FEWEST_OTHERS, GoodState, KEEP_EVERY, Setback};

pub use recovery::{Incident, MOST_ROLLBACKS};

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepReport {
    /// How the batch was classified, before the step.
    pub score: Score,
    /// The rate that was used.
    pub lr: f32,
    /// If it was the epoch's last: how the whole epoch went.
    pub epoch_score: Option<Score>,
}

/// A model in training.
pub struct Trainer<'a> {
    job: &'a Job,
    learning: &'a Learning,
    /// Which samples are this peer's.
    indices: Vec<usize>,
    values: Vec<f32>,
    optimizer: Optimizer,
    progress: Progress,
    /// The present epoch's batches, without the samples that are left out.
    batches: Vec<Vec<usize>>,
    guard: LossGuard,
    collapse: Collapse,
    /// Where it goes back to.
    good: GoodState,
    /// The batch that was trained last, and the one with which the loss exploded: they are suspected if the run diverges.
    last_batch: Vec<usize>,
    exploding_batch: Vec<usize>,
    incidents: Vec<Incident>,
}

impl<'a> Trainer<'a> {
    /// A run from the beginning, over all samples.
    pub fn new(job: &'a Job, learning: &'a Learning) -> Result<Self, TrainError> {
        let values = learning.init(job.seed);
        let optimizer = Optimizer::new(job.optimizer.clone(), learning.n_params());
        Self::resume(job, learning, values, optimizer, Progress { seed: job.seed, ..Progress::default() })
    }

    /// A run that goes on where another stopped.
    pub fn resume(
        job: &'a Job,
        learning: &'a Learning,
        values: Vec<f32>,
        optimizer: Optimizer,
        progress: Progress,
    ) -> Result<Self, TrainError> {
        let guessing = Guessing::new(learning.labels());
        let mut guard = LossGuard::beside(guessing);
        if progress.n_rollbacks > 0 {
            guard.go_on_after(&Divergence::NotFinite { what: "the loss", value: f64::INFINITY });
        }
        let initial_size = match progress.step {
            0 => size(&values[..learning.n_params()]),
            _ => size(&learning.init(progress.seed)[..learning.n_params()]),
        };
        let mut trainer = Self {
            job,
            learning,
            indices: (0..learning.labels().len()).collect(),
            good: GoodState::new(&values, &optimizer, &progress, &guard),
            values,
            optimizer,
            progress,
            batches: Vec::new(),
            guard,
            collapse: Collapse::new(guessing, initial_size),
            last_batch: Vec::new(),
            exploding_batch: Vec::new(),
            incidents: Vec::new(),
        };
        trainer.batches = trainer.epoch_batches()?;
        if trainer.batches.is_empty() {
            return Err(TrainError::Mismatch("the training set gives no batch; use a smaller batch size".into()));
        }
        let (batch, n_batches) = (trainer.progress.batch, trainer.batches.len());
        if batch >= n_batches {
            return Err(TrainError::Mismatch(format!(
                "the run stopped after {batch} batches of an epoch, and an epoch now has {n_batches}; the data or the batch \
                 size are not those it began with: bring them back, or go on from a checkpoint at the end of an epoch"
            )));
        }
        Ok(trainer)
    }

    /// The parameters as they are.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Puts other parameters in their place, for example a trained model's to be trained on.
    ///
    /// # Panics
    /// If there are more or fewer of them than the network has.
    pub fn set_values(&mut self, values: Vec<f32>) {
        assert_eq!(values.len(), self.learning.n_values(), "the parameters belong to another network");
        self.values = values;
        self.good = GoodState::new(&self.values, &self.optimizer, &self.progress, &self.guard);
    }

    /// Whether all parameters are numbers. The loss tells only a step later, and a broken state must not become a checkpoint.
    pub fn check_finite(&self) -> Result<(), TrainError> {
        let Some(&value) = self.values.iter().find(|value| !value.is_finite()) else { return Ok(()) };
        let Progress { step, epoch, .. } = self.progress;
        Err(TrainError::NotFinite {
            what: "a parameter",
            value: f64::from(value),
            step,
            epoch: epoch + 1,
            lr: self.lr(),
        })
    }

    /// What the optimizer remembers.
    pub fn optimizer(&self) -> &Optimizer {
        &self.optimizer
    }

    /// Where the run stands.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Samples in an epoch.
    pub fn n_samples(&self) -> usize {
        self.batches.iter().map(Vec::len).sum()
    }

    /// Whether all epochs are done.
    pub fn is_finished(&self) -> bool {
        self.progress.epoch >= self.job.epochs
    }

    /// The learning rate of the next step.
    pub fn lr(&self) -> f32 {
        let step = 1.0 / self.batches.len() as f64;
        self.job.schedule.rate(self.job.optimizer.lr, self.epochs_done(), step, self.job.epochs as f64)
            * self.lr_factor()
    }

    /// How many epochs are done, and what part of the present one.
    pub fn epochs_done(&self) -> f64 {
        self.progress.epoch as f64 + self.progress.batch as f64 * (1.0 / self.batches.len() as f64)
    }

    /// The share of the learning rate that is left after the run has diverged so often.
    fn lr_factor(&self) -> f32 {
        0.5_f32.powi(self.progress.n_rollbacks as i32)
    }

    /// Trains one batch. If the run has diverged, it goes back first, so this may be a batch that was trained before.
    pub fn step(&mut self, worker: &mut CpuWorker) -> Result<StepReport, TrainError> {
        loop {
            match self.try_step(worker) {
                Ok(report) => return Ok(report),
                Err(Setback::Diverged(why)) => self.go_back(why, worker)?,
                Err(Setback::Failed(error)) => return Err(error),
            }
        }
    }

    fn try_step(&mut self, worker: &mut CpuWorker) -> Result<StepReport, Setback> {
        let (lr, batch) = (self.lr(), self.progress.batch);
        let score = self.gradient_without_bad_samples(worker)?;
        // A batch of which all samples are left out is passed over.
        if score.n > 0 {
            self.guard.add(score.loss())?;
            self.look_after(batch);
            worker.step(&mut self.optimizer, lr, &mut self.values);
            self.last_batch.clone_from(&self.batches[batch]);
            recovery::check("a parameter", &self.values)?;
        }
        let is_last = batch + 1 == self.batches.len();
        if is_last && self.progress.epoch + 1 == self.job.epochs {
            self.guard.finish()?;
        }
        let report = self.count_step(score, lr)?;
        if let Some(epoch) = &report.epoch_score {
            self.collapse.judge(epoch, &self.values[..self.learning.n_params()])?;
        }
        Ok(report)
    }

    /// The gradient of the present batch. Samples that spoil it are left out from here on.
    fn gradient_without_bad_samples(&mut self, worker: &mut CpuWorker) -> Result<Score, Setback> {
        let Progress { seed, step, batch, .. } = self.progress;
        loop {
            let indices = &self.batches[batch];
            if indices.is_empty() {
                return Ok(Score::default());
            }
            let step_seed = mix(seed ^ mix(step));
            let score = worker.whole_gradient(&self.values, indices, step_seed)?;
            let problem = recovery::check_batch(&score, worker.last_gradient());
            if problem.is_ok() && !self.guard.is_enormous(score.loss()) {
                return Ok(score);
            }
            if !self.leave_out_bad_samples(worker)? {
                problem?;
                return Ok(score);
            }
        }
    }

    /// Moves on by a batch.
    fn count_step(&mut self, score: Score, lr: f32) -> Result<StepReport, TrainError> {
        let mut epoch_score = self.progress.epoch_score();
        epoch_score += score;
        self.progress.set_epoch_score(epoch_score);
        self.progress.step += 1;
        self.progress.batch += 1;
        let epoch_score = (self.progress.batch == self.batches.len()).then_some(epoch_score);
        if epoch_score.is_some() {
            self.progress.epoch += 1;
            self.progress.batch = 0;
            self.progress.set_epoch_score(Score::default());
            self.batches = self.epoch_batches()?;
        }
        Ok(StepReport { score, lr, epoch_score })
    }

    fn epoch_batches(&self) -> Result<Vec<Vec<usize>>, BatchError> {
        let Progress { seed, epoch, .. } = self.progress;
        let rule = self.job.batch_rule();
        let mut batches = rule.epoch_batches(&self.indices, self.learning.labels(), seed, epoch)?;
        self.progress.strike_out(&mut batches);
        Ok(batches)
    }

    /// What it had to do besides training since it was asked last.
    pub fn take_incidents(&mut self) -> Vec<Incident> {
        std::mem::take(&mut self.incidents)
    }

    /// Whether the latest losses speak for the present state, so that it is worth a checkpoint.
    pub fn is_healthy(&self) -> bool {
        self.guard.is_healthy()
    }

    /// Steps done in the last state that is known to be good: where it would go back to.
    pub fn good_step(&self) -> u64 {
        self.good.progress.step
    }

    /// Looks at the loss of a test after an epoch; if it shows that the run has diverged, the run goes back. Whether it did.
    pub fn judge_test(&mut self, loss: f64, worker: &mut CpuWorker) -> Result<bool, TrainError> {
        match self.guard.judge_test(loss) {
            Ok(()) => Ok(false),
            Err(why) => self.go_back(why, worker).map(|()| true),
        }
    }

    /// Keeps the present state when it is time to and it is a good one. The loss of the present batch must be known: it is
    /// what speaks for the parameters, which no later step has changed yet.
    fn look_after(&mut self, batch: usize) {
        if self.guard.is_healthy() {
            self.exploding_batch.clear();
            let params = &self.values[..self.learning.n_params()];
            if batch.is_multiple_of(KEEP_EVERY) && self.collapse.is_worth_keeping(&self.guard, params) {
                self.good = GoodState::new(&self.values, &self.optimizer, &self.progress, &self.guard);
            }
        } else if self.exploding_batch.is_empty() {
            self.exploding_batch.clone_from(&self.batches[batch]);
        }
    }

    /// Leaves samples of the present batch out if they are to blame for its loss or gradient. Whether there are any.
    fn leave_out_bad_samples(&mut self, worker: &mut CpuWorker) -> Result<bool, TrainError> {
        if !self.guard.is_healthy() {
            // These parameters would make good samples look bad.
            return Ok(false);
        }
        let batch = &self.batches[self.progress.batch];
        let bad = self.find_bad(&self.values, batch.clone(), worker)?;
        if !bad.iter().any(|index| batch.contains(index)) {
            return Ok(false);
        }
        self.leave_out(bad)?;
        Ok(true)
    }

    /// Goes back to the last good state, and on from there: without the samples that are to blame, or with half the learning
    /// rate if there are none.
    fn go_back(&mut self, why: Divergence, worker: &mut CpuWorker) -> Result<(), TrainError> {
        let Progress { step: from_step, epoch, mut n_rollbacks, .. } = self.progress;
        let mut suspects = self.batches[self.progress.batch].clone();
        suspects.extend(&self.last_batch);
        suspects.extend(&self.exploding_batch);
        let bad = self.find_bad(&self.good.values, suspects, worker)?;
        let is_rate_halved = bad.is_empty();
        if is_rate_halved {
            recovery::check("a parameter", &self.good.values).or_else(|_| self.check_finite())?;
            if n_rollbacks >= MOST_ROLLBACKS {
                let (step, epoch, lr) = (from_step, epoch + 1, self.lr());
                return Err(TrainError::Diverged { why, n_rollbacks, step, epoch, lr });
            }
            n_rollbacks += 1;
        }
        self.values.clone_from(&self.good.values);
        self.optimizer.clone_from(&self.good.optimizer);
        self.guard.clone_from(&self.good.guard);
        self.guard.go_on_after(&why);
        let left_out = std::mem::take(&mut self.progress.left_out);
        self.progress = Progress { n_rollbacks, left_out, ..self.good.progress.clone() };
        self.batches = self.epoch_batches()?;
        self.last_batch.clear();
        self.exploding_batch.clear();
        let Progress { epoch, step, .. } = self.progress;
        self.incidents.push(Incident::WentBack { why, from_step, epoch, step, is_rate_halved, n_rollbacks });
        if is_rate_halved { Ok(()) } else { self.leave_out(bad) }
    }

    /// The bad ones among suspected samples, and among some others that they are compared with.
    fn find_bad(&self, values: &[f32], suspects: Vec<usize>, worker: &mut CpuWorker) -> Result<Vec<usize>, TrainError> {
        let is_left_out = |index: &usize| self.progress.left_out.binary_search(index).is_ok();
        let mut examined: BTreeSet<usize> = suspects.into_iter().filter(|index| !is_left_out(index)).collect();
        let n_wanted = examined.len() + examined.len().max(FEWEST_OTHERS);
        let (before, after) = self.batches.split_at(self.progress.batch);
        for &index in after.iter().chain(before).flatten() {
            if examined.len() >= n_wanted {
                break;
            }
            examined.insert(index);
        }
        let examined: Vec<usize> = examined.into_iter().collect();
        find_bad_samples(worker, values, &examined, self.guard.start())
    }

    fn leave_out(&mut self, samples: Vec<usize>) -> Result<(), TrainError> {
        let left_out = &mut self.progress.left_out;
        left_out.extend(&samples);
        left_out.sort_unstable();
        self.progress.strike_out(&mut self.batches);
        self.incidents.push(Incident::LeftOut { samples, step: self.progress.step });
        if self.batches.iter().all(Vec::is_empty) {
            let problem = "no training sample is left: all of them give losses or gradients that are not finite";
            return Err(TrainError::Mismatch(problem.into()));
        }
        Ok(())
    }
}
