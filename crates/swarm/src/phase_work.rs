//! A local phase as a piece of work: all the batches that a peer trains by itself before an exchange.
//!
//! A host with a worker for its peer has that train the whole phase ([`PhaseWork::run`]): parameters and optimizer go to the worker once
//! and come back once. A host whose gradients come from elsewhere (many simulated peers share a few workers; a pipeline's come from many
//! peers) goes through it batch by batch: [`PhaseWork::compute`] or [`PhaseWork::put`], then [`PhaseWork::end_batch`]. The steps are the same.
//!
//! The peer who asked for it may say other rates while it lasts, and that it does not want it any more.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
use nettorrent_engine::model::Score;
use nettorrent_engine::task::Worker;
use nettorrent_engine::train_error::TrainError;

use crate::batch_place::BatchPlace;
use crate::local_state::LocalState;
use crate::outliers::{Computed, Outliers};
use crate::step_work::StepTaken;
use crate::train_plan::TrainPlan;

/// A step of a phase, or what went wrong with it.
#[derive(Debug)]
pub struct Stepped {
    /// How the batch was classified.
    pub score: Score,
    /// Samples that were left out for the first time: they have no finite loss or gradient, or an enormous one.
    pub left_out: Vec<usize>,
    /// Whether the gradient was made of numbers; if not, no step was taken, and the phase is over.
    pub is_finite: bool,
    /// What the phase came to, after its last batch.
    pub end: Option<Box<LocalState>>,
}

impl Stepped {
    /// How many samples the batch had.
    pub fn n_samples(&self) -> usize {
        self.score.n + self.left_out.len()
    }
}

/// A local phase, or what is left of it.
pub struct PhaseWork {
    state: LocalState,
    batches: Batches,
    /// The gradient of the present batch, where it is not the worker that takes the step.
    gradient: Vec<f32>,
    computed: Option<(Score, Vec<usize>)>,
    /// Whether the step with it is taken already, because only the worker can take it.
    is_applied: bool,
}

/// What a peer says about a phase while it lasts. When it is dropped, nobody wants the phase any more.
pub(crate) struct PhaseHandle(Arc<Control>);

struct Control {
    /// The bits of the learning rate of each batch.
    rates: Vec<AtomicU32>,
    is_cancelled: AtomicBool,
    /// Whether it is to end after the present batch, and what was trained is wanted back.
    is_ending: AtomicBool,
}

/// The batches that are left.
struct Batches {
    training: Arc<TrainPlan>,
    /// The next one, and behind which there is none.
    place: BatchPlace,
    end: usize,
    /// The samples of the next one that are not left out.
    samples: Vec<usize>,
    outliers: Outliers,
    n_done: usize,
    control: Arc<Control>,
}

impl PhaseHandle {
    /// From now on, these are the learning rates of the batches, by their number in the phase.
    pub(crate) fn set_rates(&self, rate: impl Fn(usize) -> f32) {
        for (k, bits) in self.0.rates.iter().enumerate() {
            bits.store(rate(k).to_bits(), Ordering::Relaxed);
        }
    }
}

impl PhaseHandle {
    /// Has the phase end after the present batch: what it has come to by then is handed back.
    pub(crate) fn end_early(&self) {
        self.0.is_ending.store(true, Ordering::Relaxed);
    }
}

impl Drop for PhaseHandle {
    fn drop(&mut self) {
        self.0.is_cancelled.store(true, Ordering::Relaxed);
    }
}

impl Batches {
    fn is_over(&self) -> bool {
        self.place.batch >= self.end
    }

    /// Whether there is another one, and somebody wants it.
    fn go_on(&self) -> bool {
        !self.is_over() && !self.is_cancelled() && !self.control.is_ending.load(Ordering::Relaxed)
    }

    fn is_cancelled(&self) -> bool {
        self.control.is_cancelled.load(Ordering::Relaxed)
    }

    fn seed(&self) -> u64 {
        self.training.batch_seed(self.place.slot, self.place.step)
    }

    fn lr(&self) -> f32 {
        f32::from_bits(self.control.rates[self.n_done].load(Ordering::Relaxed))
    }

    /// A batch is trained.
    fn advance(&mut self, left_out: &[usize], loss: f64) {
        self.outliers.learn(left_out, 0.0, loss);
        self.place.batch += 1;
        self.place.step += 1;
        self.n_done += 1;
        self.look_at_next();
    }

    fn look_at_next(&mut self) {
        self.samples.clear();
        if !self.is_over() {
            self.samples.extend_from_slice(&self.outliers.left_of(self.place.samples()));
        }
    }
}

impl PhaseWork {
    /// So many batches from a place on; and what the peer says about them later. Their rates have yet to be set.
    pub(crate) fn new(
        training: Arc<TrainPlan>,
        place: BatchPlace,
        n_batches: usize,
        state: LocalState,
        outliers: Outliers,
    ) -> (Self, PhaseHandle) {
        let rates = (0..n_batches).map(|_| AtomicU32::new(0)).collect();
        let (is_cancelled, is_ending) = (AtomicBool::new(false), AtomicBool::new(false));
        let control = Arc::new(Control { rates, is_cancelled, is_ending });
        let handle = PhaseHandle(control.clone());
        let (end, samples) = (place.batch + n_batches, Vec::new());
        let mut batches = Batches { training, place, end, samples, outliers, n_done: 0, control };
        batches.look_at_next();
        (Self { state, batches, gradient: Vec::new(), computed: None, is_applied: false }, handle)
    }

    /// The batch that is next.
    pub fn place(&self) -> &BatchPlace {
        &self.batches.place
    }

    /// How many samples it has.
    pub fn n_samples(&self) -> usize {
        self.batches.place.samples().len()
    }

    /// The parameters with which it is trained.
    pub fn values(&self) -> &Arc<Vec<f32>> {
        &self.state.values
    }

    /// Whether there is another batch, and somebody wants it.
    pub fn goes_on(&self) -> bool {
        self.batches.go_on()
    }

    /// Has a worker train all of it. Each step is handed over when it is taken, the last one with what the phase came to. Returns what it
    /// came to if it was to end early.
    pub fn run(
        mut self,
        worker: &mut dyn Worker,
        hand_over: &mut (dyn FnMut(Stepped) + Send),
    ) -> Result<Option<StepTaken>, TrainError> {
        while self.goes_on() {
            let (LocalState { values, optimizer }, batches) = (&mut self.state, &mut self.batches);
            let mut last = None;
            let end = if batches.samples.is_empty() {
                PhaseEnd::Spoilt
            } else {
                let mut course = Course { batches, hand_over: &mut *hand_over, last: &mut last };
                worker.begin(values, Some(optimizer));
                let end = worker.local_steps(Arc::make_mut(values).as_mut_slice(), optimizer, &mut course)?;
                worker.end(values, optimizer);
                end
            };
            let (stepped, rest) = match (last, end) {
                (Some(score), _) => self.go_on(score, Vec::new()),
                // Nobody wants the rest, or there is a batch of which all samples are left out.
                (None, PhaseEnd::Over) => continue,
                (None, PhaseEnd::Spoilt) => {
                    self.compute(worker)?;
                    self.end_batch()
                }
            };
            hand_over(stepped);
            match rest {
                Some(rest) => self = rest,
                None => return Ok(None),
            }
        }
        Ok(self.give_back())
    }

    /// What it has come to, where it was to end early and its peer waits for that.
    pub fn give_back(self) -> Option<StepTaken> {
        let Self { state, batches, .. } = self;
        (!batches.is_cancelled()).then(|| StepTaken { state, changes: Vec::new(), spare: Vec::new() })
    }

    /// Computes the gradient of the next batch and keeps it.
    pub fn compute(&mut self, worker: &mut dyn Worker) -> Result<(), TrainError> {
        let Self { state, batches, gradient, .. } = self;
        let buckets = batches.training.task.buckets();
        gradient.resize(state.values.len(), 0.0);
        let mut put = |bucket: usize, numbers: &[f32]| gradient[buckets[bucket].clone()].copy_from_slice(numbers);
        let Computed { score, left_out, .. } =
            batches.outliers.whole_gradient(worker, &state.values, &batches.place, batches.seed(), &mut put)?;
        if state.optimizer.is_custom() && score.loss_sum.is_finite() && is_finite(gradient) {
            let parts: Vec<Vec<f32>> = buckets.iter().map(|bucket| gradient[bucket.clone()].to_vec()).collect();
            worker.apply(
                batches.lr(),
                Arc::make_mut(&mut state.values).as_mut_slice(),
                &mut state.optimizer,
                &parts,
            )?;
            self.is_applied = true;
        }
        self.computed = Some((score, left_out));
        Ok(())
    }

    /// Takes the gradient of the next batch from elsewhere.
    pub fn put(&mut self, gradient: Vec<f32>, score: Score) {
        (self.gradient, self.computed) = (gradient, Some((score, Vec::new())));
    }

    /// Takes the step with the gradient of the batch, at the rate of now. Returns what is left, if anything is.
    ///
    /// # Panics
    /// If there is no gradient yet.
    pub fn end_batch(mut self) -> (Stepped, Option<Self>) {
        let (score, left_out) = self.computed.take().expect("a gradient was computed");
        let is_finite = is_finite(&self.gradient);
        if !is_finite || !score.loss_sum.is_finite() {
            // What follows on it is for the peer to say; nobody goes on from here.
            return (Stepped { score, left_out, is_finite, end: None }, None);
        }
        if !std::mem::take(&mut self.is_applied) {
            let lr = self.batches.lr();
            let LocalState { values, optimizer } = &mut self.state;
            optimizer.step_alone(lr, Arc::make_mut(values).as_mut_slice(), &self.gradient);
        }
        self.batches.advance(&left_out, score.loss());
        self.go_on(score, left_out)
    }

    /// A step is taken.
    fn go_on(self, score: Score, left_out: Vec<usize>) -> (Stepped, Option<Self>) {
        let stepped = |end| Stepped { score, left_out, is_finite: true, end };
        match self.batches.is_over() {
            true => (stepped(Some(Box::new(self.state))), None),
            false => (stepped(None), Some(self)),
        }
    }
}

/// A phase as a worker sees it.
struct Course<'a> {
    batches: &'a mut Batches,
    hand_over: &'a mut (dyn FnMut(Stepped) + Send),
    /// How the last batch was classified: that is told when the worker has handed back what it has trained.
    last: &'a mut Option<Score>,
}

impl LocalPhase for Course<'_> {
    fn next_batch(&mut self) -> Option<LocalBatch<'_>> {
        let batches = &*self.batches;
        let is_wanted = batches.go_on() && !batches.samples.is_empty();
        let batch =
            || LocalBatch { samples: &batches.samples, seed: batches.seed(), next: batches.place.next_samples() };
        is_wanted.then(batch)
    }

    fn lr(&self) -> f32 {
        self.batches.lr()
    }

    fn most_loss(&self) -> f64 {
        self.batches.outliers.most_loss()
    }

    fn on_step(&mut self, score: Score) {
        self.batches.advance(&[], score.loss());
        if self.batches.is_over() {
            *self.last = Some(score);
        } else {
            (self.hand_over)(Stepped { score, left_out: Vec::new(), is_finite: true, end: None });
        }
    }
}

impl fmt::Debug for PhaseWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PhaseWork")
            .field("next", &self.batches.place.batch)
            .field("end", &self.batches.end)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use crate::sampling::ledger::Ledger;
    use nettorrent_engine::fn_task::{FnTask, Sample};
    use nettorrent_engine::job::Job;
    use nettorrent_engine::local_phase::{LocalPhase, PhaseEnd};
    use nettorrent_engine::model::{Layout, Score};
    use nettorrent_engine::optimizer::Optimizer;
    use nettorrent_engine::task::{GradientSink, Worker};
    use nettorrent_engine::train_error::TrainError;

    use super::{LocalState, PhaseHandle, PhaseWork, Stepped};
    use crate::batch_place::BatchPlace;
    use crate::outliers::Outliers;
    use crate::setup::Setup;
    use crate::work::{What, Work};

    const N_BATCHES: usize = 5;

    /// Finds the mean of numbers, of which one may be none.
    fn setup(bad: Option<usize>) -> Setup {
        let task =
            FnTask::new(Layout::of_tensors([("mean", [3].as_slice())]), vec![0; 40], 1, move |values, which, to| {
                let (Sample::Train(k) | Sample::Test(k)) = which;
                let number = if bad == Some(k) { f32::NAN } else { k as f32 / 40.0 };
                let off: Vec<f32> = values.iter().map(|value| value - number).collect();
                if let Some(gradient) = to {
                    gradient.iter_mut().zip(&off).for_each(|(sum, off)| *sum += off);
                }
                Score {
                    loss_sum: off.iter().map(|&off| f64::from(off * off)).sum(),
                    n_correct: 0,
                    n: 1,
                    ..Score::default()
                }
            });
        let mut job = Job { batch: 8, ..Job::default() };
        job.optimizer.momentum = 0.9;
        Setup::new(&job, Arc::new(task)).unwrap()
    }

    fn phase(setup: &Setup) -> (PhaseWork, PhaseHandle) {
        let training = setup.replica.training.clone();
        let ledger = Ledger::of_segment(0, training.sampler.segment(0, vec![1], Vec::new()));
        let place = BatchPlace { plan: training.sampler.plan(&ledger), slot: 0, batch: 0, step: 0 };
        let optimizer = Optimizer::new(training.optimizer.clone(), training.task.n_params());
        let state = LocalState { values: Arc::new(training.task.init(1)), optimizer };
        let (phase, handle) = PhaseWork::new(training, place, N_BATCHES, state, Outliers::new(Arc::default(), 40));
        handle.set_rates(|k| 0.1 / (k + 1) as f32);
        (phase, handle)
    }

    fn worker(setup: &Setup) -> Box<dyn Worker> {
        setup.training().task.clone().worker(1).unwrap()
    }

    /// All steps of a phase that a worker trains, and those of one that is gone through batch by batch.
    fn both(setup: &Setup) -> [Vec<Stepped>; 2] {
        let (whole, _whole_handle) = phase(setup);
        let mut steps = Vec::new();
        whole.run(worker(setup).as_mut(), &mut |stepped| steps.push(stepped)).unwrap();
        let (left, _left_handle) = phase(setup);
        let (mut left, mut one_by_one) = (Some(left), Vec::new());
        while let Some(mut phase) = left {
            phase.compute(worker(setup).as_mut()).unwrap();
            let (stepped, rest) = phase.end_batch();
            one_by_one.push(stepped);
            left = rest;
        }
        [steps, one_by_one]
    }

    fn end(steps: &[Stepped]) -> &LocalState {
        steps.last().and_then(|stepped| stepped.end.as_deref()).expect("all batches are trained")
    }

    #[test]
    fn a_worker_takes_the_same_steps_as_who_goes_batch_by_batch() {
        for bad in [None, Some(3)] {
            let [whole, one_by_one] = both(&setup(bad));
            assert_eq!((whole.len(), one_by_one.len()), (N_BATCHES, N_BATCHES));
            for (here, there) in whole.iter().zip(&one_by_one) {
                assert_eq!(
                    (here.score, &here.left_out, here.is_finite),
                    (there.score, &there.left_out, there.is_finite)
                );
            }
            let (here, there) = (end(&whole), end(&one_by_one));
            assert_eq!((&here.values, &here.optimizer), (&there.values, &there.optimizer));
            assert!(here.values.iter().all(|value| value.is_finite() && *value > 0.0));
            let left_out: Vec<usize> = whole.iter().flat_map(|stepped| stepped.left_out.clone()).collect();
            assert_eq!(
                left_out,
                Vec::from_iter(bad),
                "a sample that is no number is left out once, and the phase goes on"
            );
        }
    }

    #[test]
    fn what_its_peer_does_not_want_any_more_is_not_trained() {
        let setup = setup(None);
        let (phase, handle) = phase(&setup);
        let (mut handle, mut n_steps) = (Some(handle), 0);
        let mut count = |stepped: Stepped| {
            n_steps += 1;
            assert!(stepped.end.is_none());
            if n_steps == 2 {
                handle = None;
            }
        };
        phase.run(worker(&setup).as_mut(), &mut count).unwrap();
        assert_eq!(n_steps, 2);
    }

    #[test]
    fn a_rate_is_that_of_the_moment() {
        let setup = setup(None);
        let end_with = |later: f32| {
            let (phase, handle) = phase(&setup);
            let (mut n_steps, mut end) = (0, None);
            let mut see = |stepped: Stepped| {
                n_steps += 1;
                if n_steps == 2 {
                    handle.set_rates(|_| later);
                }
                end = stepped.end;
            };
            phase.run(worker(&setup).as_mut(), &mut see).unwrap();
            end.unwrap().values
        };
        assert_ne!(end_with(0.1), end_with(0.01));
    }

    #[test]
    fn parameters_that_are_no_numbers_end_the_phase() {
        let setup = setup(None);
        let (mut phase, _handle) = phase(&setup);
        Arc::make_mut(&mut phase.state.values)[1] = f32::NAN;
        let mut steps = Vec::new();
        phase.run(worker(&setup).as_mut(), &mut |stepped| steps.push(stepped)).unwrap();
        assert_eq!(steps.len(), 1);
        assert!(!steps[0].is_finite && steps[0].left_out.is_empty() && steps[0].end.is_none());
    }

    /// A device of its own: it holds the parameters while a phase lasts, and whoever looks at the host's sees none.
    struct Device {
        host: Box<dyn Worker>,
        n_phases: usize,
    }

    impl Worker for Device {
        fn layout(&self) -> &Layout {
            self.host.layout()
        }

        fn gradient(&mut self, _: &[f32], _: &[usize], _: u64, _: &mut GradientSink<'_>) -> Result<Score, TrainError> {
            panic!("gradients need not leave the device")
        }

        fn local_steps(
            &mut self,
            values: &mut [f32],
            optimizer: &mut Optimizer,
            phase: &mut dyn LocalPhase,
        ) -> Result<PhaseEnd, TrainError> {
            self.n_phases += 1;
            let mut on_device = (values.to_vec(), optimizer.clone());
            values.fill(f32::NAN);
            let end = self.host.local_steps(&mut on_device.0, &mut on_device.1, phase)?;
            values.copy_from_slice(&on_device.0);
            *optimizer = on_device.1;
            Ok(end)
        }

        fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
            self.host.score(values, samples)
        }

        fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
            self.host.test(values, samples)
        }
    }

    #[test]
    fn a_device_keeps_the_parameters_for_the_whole_phase() {
        let setup = setup(None);
        let [expected, _] = both(&setup);
        let (phase, _handle) = phase(&setup);
        let mut device = Device { host: worker(&setup), n_phases: 0 };
        let mut steps = Vec::new();
        phase.run(&mut device, &mut |stepped| steps.push(stepped)).unwrap();
        assert_eq!((device.n_phases, steps.len()), (1, N_BATCHES));
        assert_eq!(end(&steps).values, end(&expected).values);
    }

    /// Hears which samples are next.
    struct Hearing {
        host: Box<dyn Worker>,
        heard: Vec<Vec<usize>>,
    }

    impl Worker for Hearing {
        fn layout(&self) -> &Layout {
            self.host.layout()
        }

        fn gradient(
            &mut self,
            values: &[f32],
            samples: &[usize],
            seed: u64,
            sink: &mut GradientSink<'_>,
        ) -> Result<Score, TrainError> {
            self.host.gradient(values, samples, seed, sink)
        }

        fn prefetch(&mut self, samples: &[usize]) {
            self.heard.push(samples.to_vec());
        }

        fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
            self.host.score(values, samples)
        }

        fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
            self.host.test(values, samples)
        }
    }

    #[test]
    fn a_worker_hears_which_batch_is_next() {
        let setup = setup(None);
        let (whole, _handle) = phase(&setup);
        let (plan, n_batches) = (whole.place().plan.clone(), N_BATCHES);
        let after = |batch: usize| if batch + 1 < n_batches { plan.batch(0, batch + 1).to_vec() } else { Vec::new() };
        let mut worker = Hearing { host: worker(&setup), heard: Vec::new() };
        whole.run(&mut worker, &mut |_| ()).unwrap();
        assert_eq!(worker.heard, (0..n_batches).map(after).collect::<Vec<_>>());

        worker.heard.clear();
        for batch in [1, n_batches - 1] {
            let place = BatchPlace { plan: plan.clone(), slot: 0, batch, step: 0 };
            let (values, outliers) = (Arc::new(setup.training().task.init(1)), Outliers::new(Arc::default(), 40));
            let what = What::Gradient { values, place, seed: 1, scale: 1.0, outliers, spare: Vec::new() };
            Work { id: 1, what }.prefetch(&mut worker);
        }
        assert_eq!(worker.heard, [after(1), Vec::new()]);
    }
}
