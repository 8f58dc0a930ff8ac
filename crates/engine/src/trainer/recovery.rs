//! What the trainer does when a run diverges or a sample spoils its batch.

use crate::checkpoint::Progress;
use crate::data::batches::BatchError;
use crate::guard::{Divergence, LossGuard};
use crate::kernel::is_finite;
use crate::model::Score;
use crate::optimizer::Optimizer;
use crate::train_error::TrainError;

/// How often a run goes back and halves its learning rate before it gives up: what a sixteenth of the rate does not cure has
/// another cause.
pub const MOST_ROLLBACKS: u32 = 4;
/// A good state is kept at the beginning of an epoch and every so many batches.
pub(super) const KEEP_EVERY: usize = 100;
/// Suspected samples are compared with as many others, and at least so many.
pub(super) const FEWEST_OTHERS: usize = 16;

/// Something that the trainer had to do besides training.
#[derive(Clone, Debug, PartialEq)]
pub enum Incident {
    /// These training samples spoil their batches and are left out from here on.
    LeftOut {
        /// Their indices in the training set.
        samples: Vec<usize>,
        /// The step for which they were left out first.
        step: u64,
    },
    /// The run had diverged and goes on from an earlier state.
    WentBack {
        /// What showed it.
        why: Divergence,
        /// The step at which it showed.
        from_step: u64,
        /// Epochs done where it goes on.
        epoch: u64,
        /// Steps done where it goes on.
        step: u64,
        /// Whether the learning rate was halved; it was not if samples are to blame, which are left out instead.
        is_rate_halved: bool,
        /// How often it was halved so far.
        n_rollbacks: u32,
    },
}

/// A state whose loss was in order.
pub(super) struct GoodState {
    pub values: Vec<f32>,
    pub optimizer: Optimizer,
    pub progress: Progress,
    pub guard: LossGuard,
}

impl GoodState {
    pub(super) fn new(values: &[f32], optimizer: &Optimizer, progress: &Progress, guard: &LossGuard) -> Self {
        Self { values: values.to_vec(), optimizer: optimizer.clone(), progress: progress.clone(), guard: guard.clone() }
    }
}

/// Why a step was not taken.
pub(super) enum Setback {
    /// The run has diverged; it can go back.
    Diverged(Divergence),
    /// It cannot go on.
    Failed(TrainError),
}

impl From<Divergence> for Setback {
    fn from(why: Divergence) -> Self {
        Self::Diverged(why)
    }
}

impl From<TrainError> for Setback {
    fn from(error: TrainError) -> Self {
        Self::Failed(error)
    }
}

impl From<BatchError> for Setback {
    fn from(error: BatchError) -> Self {
        Self::Failed(error.into())
    }
}

/// Whether all numbers are finite.
pub(super) fn check(what: &'static str, numbers: &[f32]) -> Result<(), Divergence> {
    if is_finite(numbers) {
        return Ok(());
    }
    let value = numbers.iter().find(|number| !number.is_finite()).map_or(f64::NAN, |&number| f64::from(number));
    Err(Divergence::NotFinite { what, value })
}

/// Whether a batch's loss and gradient are finite.
pub(super) fn check_batch(score: &Score, gradient: &[f32]) -> Result<(), Divergence> {
    if !score.loss_sum.is_finite() {
        return Err(Divergence::NotFinite { what: "the loss", value: score.loss() });
    }
    check("a gradient", gradient)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Incident, MOST_ROLLBACKS};
    use crate::cpu_worker::CpuWorker;
    use crate::data::Dataset;
    use crate::data::in_memory::{InMemory, Samples};
    use crate::guard::Divergence;
    use crate::job::{Job, build_network};
    use crate::learning::Learning;
    use crate::train_error::TrainError;
    use crate::trainer::Trainer;

    const N_SAMPLES: usize = 64;

    fn job(settings: &[&str]) -> Job {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let text = "model = \"mlp:8\"\nbatch = 8\nepochs = 4\n[optimizer]\nlr = 0.2\nmomentum = 0.5\n";
        Job::parse("the test's job", text, &settings).unwrap()
    }

    /// Two classes that the first of three features tells apart, but for samples in which it is another number.
    fn learning(job: &Job, changed: &[(usize, f32)]) -> Arc<Learning> {
        let set = |n: usize, changed: &[(usize, f32)]| -> Box<dyn Dataset> {
            let value =
                |i: usize| if i.is_multiple_of(3) { (i / 3 % 2) as f32 * 2.0 - 1.0 } else { (i % 7) as f32 / 7.0 };
            let mut values: Vec<f32> = (0..3 * n).map(value).collect();
            changed.iter().for_each(|&(index, value)| values[3 * index] = value);
            let labels = (0..n).map(|i| i as u32 % 2).collect();
            Box::new(InMemory::new(vec![3], vec!["a".into(), "b".into()], labels, Samples::Floats(values)).unwrap())
        };
        let network = build_network(&job.model, &job.model_spec(&[3], 2).unwrap()).unwrap();
        Arc::new(Learning::new(job, network, set(N_SAMPLES, changed), set(8, &[])).unwrap())
    }

    fn worker(learning: &Arc<Learning>) -> CpuWorker {
        CpuWorker::new(learning.clone(), 1).unwrap()
    }

    /// Trains to the end; how many samples each epoch had, and its accuracy.
    fn finish(trainer: &mut Trainer<'_>, learning: &Arc<Learning>) -> Result<Vec<(usize, f64)>, TrainError> {
        let (mut epochs, mut worker) = (Vec::new(), worker(learning));
        while !trainer.is_finished() {
            let report = trainer.step(&mut worker)?;
            epochs.extend(report.epoch_score.map(|score| (score.n, score.accuracy())));
        }
        Ok(epochs)
    }

    #[test]
    fn a_sample_that_gives_no_number_costs_that_sample() {
        // The last two are on the wrong side, which shows as soon as the model knows the sides.
        for bad in [f32::NAN, f32::INFINITY, -1e38, -1e9] {
            for batch in ["batch=8", "batch=1", "batch=64"] {
                let job = job(&[batch]);
                let learning = learning(&job, &[(5, bad)]);
                let mut trainer = Trainer::new(&job, &learning).unwrap();
                let epochs = finish(&mut trainer, &learning).unwrap();
                let incidents = trainer.take_incidents();
                let [Incident::LeftOut { samples, .. }] = incidents.as_slice() else {
                    panic!("{bad}, {batch}: {incidents:?}")
                };
                assert_eq!(samples, &[5], "{bad}, {batch}");
                assert_eq!(trainer.progress().left_out, [5]);
                let n_samples = |&(n, _): &(usize, f64)| n == N_SAMPLES - 1;
                let n_epochs = epochs.iter().filter(|epoch| n_samples(epoch)).count();
                assert!(n_epochs == 4 || bad.is_finite() && n_epochs > 0, "{bad}, {batch}: {epochs:?}");
                assert!(batch == "batch=64" || epochs[3].1 == 1.0, "{bad}, {batch}: {epochs:?}");
                trainer.check_finite().unwrap();
            }
        }
    }

    #[test]
    fn a_run_without_some_samples_can_be_resumed() {
        let job = job(&[]);
        let learning = learning(&job, &[(5, f32::NAN), (40, f32::NAN)]);
        let mut unbroken = Trainer::new(&job, &learning).unwrap();
        finish(&mut unbroken, &learning).unwrap();
        for n_steps in [1, 8, 11, 20] {
            let mut first = Trainer::new(&job, &learning).unwrap();
            (0..n_steps).for_each(|_| assert!(first.step(&mut worker(&learning)).is_ok()));
            let (values, optimizer) = (first.values().to_vec(), first.optimizer().clone());
            let mut second = Trainer::resume(&job, &learning, values, optimizer, first.progress().clone()).unwrap();
            finish(&mut second, &learning).unwrap();
            assert_eq!(second.values(), unbroken.values(), "after {n_steps} steps");
            assert_eq!(second.progress(), unbroken.progress());
        }
    }

    #[test]
    fn all_samples_cannot_be_to_blame() {
        let job = job(&[]);
        let all: Vec<(usize, f32)> = (0..N_SAMPLES).map(|index| (index, f32::NAN)).collect();
        let learning = learning(&job, &all);
        let mut trainer = Trainer::new(&job, &learning).unwrap();
        let error = finish(&mut trainer, &learning).unwrap_err();
        assert!(matches!(error, TrainError::Diverged { n_rollbacks: MOST_ROLLBACKS, .. }), "{error}");
    }

    #[test]
    fn a_hopeless_run_gives_up() {
        let job = job(&["optimizer.lr=1e30"]);
        let learning = learning(&job, &[]);
        let mut trainer = Trainer::new(&job, &learning).unwrap();
        let error = finish(&mut trainer, &learning).unwrap_err();
        assert!(error.to_string().contains("Lower optimizer.lr"), "{error}");
        assert!(matches!(error, TrainError::Diverged { n_rollbacks: MOST_ROLLBACKS, epoch: 1, .. }), "{error}");
        let incidents = trainer.take_incidents();
        assert_eq!(incidents.len(), MOST_ROLLBACKS as usize);
        for (incident, n) in incidents.iter().zip(1..) {
            let Incident::WentBack { why, from_step, step: 0, is_rate_halved: true, n_rollbacks, .. } = *incident
            else {
                panic!("{incident:?}")
            };
            assert!(from_step > 0 && n_rollbacks == n && matches!(why, Divergence::NotFinite { .. }), "{incident:?}");
        }
    }

    #[test]
    fn a_run_goes_back_and_on_with_half_the_rate() {
        let job = job(&[]);
        let learning = learning(&job, &[]);
        let mut trainer = Trainer::new(&job, &learning).unwrap();
        let mut at_start = trainer.values().to_vec();
        // A good state is kept at the beginning of the second epoch.
        for step in 0..16 {
            if step == 8 {
                at_start = trainer.values().to_vec();
            }
            trainer.step(&mut worker(&learning)).unwrap();
        }
        assert!(!trainer.judge_test(0.7, &mut worker(&learning)).unwrap());
        let before = trainer.progress().clone();
        assert_eq!((before.epoch, before.step, trainer.good_step()), (2, 16, 8));
        assert!(trainer.judge_test(f64::NAN, &mut worker(&learning)).unwrap());
        assert!(trainer.values() == at_start && trainer.progress().epoch == 1 && trainer.progress().step == 8);
        assert_eq!((trainer.lr(), trainer.progress().n_rollbacks), (0.1, 1));
        let incidents = trainer.take_incidents();
        assert!(
            matches!(incidents[..], [Incident::WentBack { from_step: 16, epoch: 1, step: 8, .. }]),
            "{incidents:?}"
        );
        let epochs = finish(&mut trainer, &learning).unwrap();
        assert_eq!((epochs.len(), epochs[2].1), (3, 1.0), "{epochs:?}");
        assert_eq!(trainer.take_incidents(), []);
    }

    #[test]
    fn parameters_that_were_broken_from_the_start_are_told() {
        let job = job(&[]);
        let learning = learning(&job, &[]);
        let mut trainer = Trainer::new(&job, &learning).unwrap();
        trainer.set_values(vec![f32::NAN; trainer.values().len()]);
        let error = trainer.step(&mut worker(&learning)).unwrap_err();
        assert!(matches!(error, TrainError::NotFinite { what: "a parameter", .. }), "{error}");
    }
}
