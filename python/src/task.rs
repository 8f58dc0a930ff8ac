//! A model of Python's as a task, and the Python object that computes it as a worker.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use nettorrent_engine::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
use nettorrent_engine::measure::Measure;
use nettorrent_engine::model::{Layout, MOST_METRICS, Score};
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::resident::Resident;
use nettorrent_engine::task::{GradientSink, Task, Worker};
use nettorrent_engine::train_error::TrainError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::at_work::{AtWork, Presence};
use crate::failure::Failure;
use crate::give::take_buckets;
use crate::memory::{read_only, view};

/// What is trained, with an object that computes it for each peer of this process.
pub(crate) struct PyTask {
    layout: Layout,
    initial: Vec<f32>,
    labels: Vec<u32>,
    measure: Measure,
    n_test: usize,
    metrics: Vec<String>,
    /// The learning rate for which a worker's factor is 1.
    lr: f32,
    /// Those that no peer has yet.
    idle: Mutex<Vec<Py<PyAny>>>,
    failure: Failure,
    at_work: AtWork,
}

impl PyTask {
    /// The task of these objects, which are alike. See `nettorrent/_worker.py` for what they do.
    pub(crate) fn new(
        mut objects: Vec<Bound<'_, PyAny>>,
        lr: f32,
        (failure, at_work): (Failure, AtWork),
    ) -> PyResult<Self> {
        let Some(first) = objects.first() else { return Err(PyValueError::new_err("there is no worker")) };
        let tensors: Vec<(String, Vec<usize>, String)> = first.call_method0("tensors")?.extract()?;
        let layout = Layout::of_described(&tensors);
        let mut initial = vec![0.0_f32; layout.n_values()];
        first.call_method1("fill_initial", (view(first.py(), &mut initial)?,))?;
        let n_samples: usize = first.getattr("n_samples")?.extract()?;
        let labels: Option<Vec<u32>> = first.call_method0("labels")?.extract()?;
        let n_test: usize = first.getattr("n_test")?.extract()?;
        let metrics: Vec<String> = first.getattr("metrics")?.extract()?;
        if metrics.len() > MOST_METRICS {
            return Err(PyValueError::new_err(format!("a run has at most {MOST_METRICS} metrics of its own")));
        }
        objects.reverse();
        Ok(Self {
            layout,
            initial,
            measure: if labels.is_some() { Measure::Accuracy } else { Measure::Loss },
            labels: labels.unwrap_or_else(|| vec![0; n_samples]),
            n_test,
            metrics,
            lr,
            idle: Mutex::new(objects.into_iter().map(Bound::unbind).collect()),
            failure,
            at_work,
        })
    }
}

impl Task for PyTask {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, _: u64) -> Vec<f32> {
        self.initial.clone()
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn measure(&self) -> Measure {
        self.measure
    }

    fn n_test(&self) -> usize {
        self.n_test
    }

    fn metrics(&self) -> &[String] {
        &self.metrics
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        let object = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let object = object.ok_or_else(|| TrainError::Worker("every peer has its worker already".into()))?;
        let (gradient, buckets) = (vec![0.0; self.layout.n_values()], self.layout.buckets().into());
        let (there, expected) = (Resident::default(), Expected::default());
        let presence = self.at_work.enter();
        Ok(Box::new(PyWorker { object, gradient, buckets, there, expected, task: self, _presence: presence }))
    }
}

/// Has a Python object compute.
struct PyWorker {
    object: Py<PyAny>,
    task: Arc<PyTask>,
    /// The whole gradient or change of a batch, in between.
    gradient: Vec<f32>,
    /// Those of the layout.
    buckets: Arc<[Range<usize>]>,
    /// What the object has on its device.
    there: Resident,
    /// What the next call begins with.
    expected: Expected,
    /// The last to go.
    _presence: Presence,
}

/// What a call begins with, and whether the object has that on its device.
#[derive(Default)]
struct Expected {
    state: Resident,
    has_values: bool,
    has_optimizer: bool,
}

/// What a Python worker says of samples: the sum of their losses, how many are right, how many there are, the sums of metrics.
type Said = (f64, usize, usize, Vec<f64>);

fn score((loss_sum, n_correct, n, sums): Said) -> Score {
    let mut metrics = [0.0; MOST_METRICS];
    metrics.iter_mut().zip(sums).for_each(|(metric, sum)| *metric = sum);
    Score { loss_sum, n_correct, n, metrics }
}

fn indices(samples: &[usize]) -> Vec<i64> {
    samples.iter().map(|&sample| sample as i64).collect()
}

impl PyWorker {
    /// Does something with the object. What it raises ends the run.
    fn with<R>(&self, act: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>) -> Result<R, TrainError> {
        let result =
            Python::try_attach(|py| act(self.object.bind(py)).map_err(|error| self.task.failure.keep(py, error)));
        result.unwrap_or_else(|| Err(TrainError::Worker("Python is shutting down".into())))
    }

    /// A rate as a factor on those of the worker's own optimizer.
    fn factor(&self, lr: f32) -> f64 {
        f64::from(lr) / f64::from(self.task.lr)
    }

    /// Whether the object has the values and the optimizer's state with which a call begins that changes both. What it has then is not
    /// known before the call has ended.
    fn begin_change(&mut self) -> (bool, bool) {
        let Expected { has_values, has_optimizer, .. } = std::mem::take(&mut self.expected);
        self.there = Resident::default();
        (has_values, has_optimizer)
    }

    /// The same of a call that only reads the values. If it succeeds, the object has them from then on.
    fn begin_reading(&mut self) -> Expected {
        self.there.forget_values();
        std::mem::take(&mut self.expected)
    }

    fn end_reading(&mut self, expected: &Expected, said: Result<Said, TrainError>) -> Result<Score, TrainError> {
        let said = said?;
        self.there.set_values(&expected.state);
        Ok(score(said))
    }

    /// A gradient that lies in buckets, in one piece: to be put back when it is spent.
    fn gather(&mut self, gradient: &[Vec<f32>]) -> Vec<f32> {
        let mut whole = std::mem::take(&mut self.gradient);
        for (place, bucket) in self.task.layout.buckets().iter().zip(gradient) {
            whole[place.clone()].copy_from_slice(bucket);
        }
        whole
    }
}

fn views<'py>(py: Python<'py>, vectors: Vec<&mut [f32]>) -> PyResult<Bound<'py, PyList>> {
    let views: PyResult<Vec<_>> = vectors.into_iter().map(|vector| view(py, vector)).collect();
    PyList::new(py, views?)
}

impl Worker for PyWorker {
    fn layout(&self) -> &Layout {
        &self.task.layout
    }

    fn gradient(
        &mut self,
        values: &[f32],
        samples: &[usize],
        seed: u64,
        sink: &mut GradientSink<'_>,
    ) -> Result<Score, TrainError> {
        let expected = self.begin_reading();
        let mut gradient = std::mem::take(&mut self.gradient);
        let samples = indices(samples);
        let said = take_buckets(sink, &mut gradient, &self.buckets, |give, gradient| {
            self.with(|object| {
                let py = object.py();
                let (values, samples) = (read_only(py, values)?, read_only(py, &samples)?);
                object
                    .call_method1("gradient", (values, samples, seed, view(py, gradient)?, expected.has_values, give))?
                    .extract()
            })
        });
        self.gradient = gradient;
        self.end_reading(&expected, said)
    }

    fn local_steps(
        &mut self,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        phase: &mut dyn LocalPhase,
    ) -> Result<PhaseEnd, TrainError> {
        let there = self.begin_change();
        let (n_steps, mut vectors) = optimizer.state_mut();
        self.with(|object| {
            let py = object.py();
            let views = views(py, vectors.iter_mut().map(|vector| &mut **vector).collect())?;
            object.call_method1("local_begin", (view(py, values)?, views, *n_steps, there.0, there.1)).map(drop)
        })?;
        let end = loop {
            let Some(LocalBatch { samples, seed, .. }) = phase.next_batch() else { break PhaseEnd::Over };
            let (samples, factor, most_loss) = (indices(samples), self.factor(phase.lr()), phase.most_loss());
            let said = self.with(|object| {
                let samples = read_only(object.py(), &samples)?;
                object.call_method1("local_step", (samples, seed, factor, most_loss))?.extract::<Option<Said>>()
            });
            match said {
                Ok(Some(said)) => phase.on_step(score(said)),
                Ok(None) => break PhaseEnd::Spoilt,
                // What was trained until then is handed back and kept.
                Err(TrainError::Cancelled) => break PhaseEnd::Over,
                Err(error) => return Err(error),
            }
        };
        *n_steps = self.with(|object| {
            let py = object.py();
            let views = views(py, vectors.iter_mut().map(|vector| &mut **vector).collect())?;
            object.call_method1("local_end", (view(py, values)?, views))?.extract()
        })?;
        Ok(end)
    }

    fn apply(
        &mut self,
        lr: f32,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        gradient: &[Vec<f32>],
    ) -> Result<(), TrainError> {
        let mut gradient = self.gather(gradient);
        let there = self.begin_change();
        let (n_steps, vectors) = optimizer.state_mut();
        let stepped = self.with(|object| {
            let py = object.py();
            let (values, vectors, gradient) = (view(py, values)?, views(py, vectors)?, view(py, &mut gradient)?);
            let arguments = (values, vectors, *n_steps, gradient, self.factor(lr), there.0, there.1);
            object.call_method1("step", arguments)?.extract()
        });
        self.gradient = gradient;
        *n_steps = stepped?;
        Ok(())
    }

    fn change(
        &mut self,
        lr: f32,
        values: &[f32],
        optimizer: &mut Optimizer,
        gradient: &mut [Vec<f32>],
    ) -> Result<(), TrainError> {
        let mut whole = self.gather(gradient);
        let there = self.begin_change();
        let mut change = vec![0.0_f32; values.len()];
        let (n_steps, vectors) = optimizer.state_mut();
        let stepped = self.with(|object| {
            let py = object.py();
            let (values, vectors, gradient) = (read_only(py, values)?, views(py, vectors)?, view(py, &mut whole)?);
            let (factor, change) = (self.factor(lr), view(py, &mut change)?);
            let arguments = (values, vectors, *n_steps, gradient, factor, change, there.0, there.1);
            object.call_method1("change", arguments)?.extract()
        });
        self.gradient = whole;
        *n_steps = stepped?;
        for (place, part) in self.task.layout.buckets().iter().zip(gradient) {
            part.copy_from_slice(&change[place.clone()]);
        }
        Ok(())
    }

    fn begin(&mut self, values: &Arc<Vec<f32>>, optimizer: Option<&Optimizer>) {
        let has_values = self.there.has_values(values);
        let has_optimizer = optimizer.is_some_and(|optimizer| self.there.has_optimizer(optimizer));
        self.expected = Expected { state: Resident::new(values, None), has_values, has_optimizer };
    }

    fn end(&mut self, values: &Arc<Vec<f32>>, optimizer: &Optimizer) {
        self.there = Resident::new(values, Some(optimizer));
    }

    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        let expected = self.begin_reading();
        let samples = indices(samples);
        let said = self.with(|object| {
            let arguments = (read_only(object.py(), values)?, read_only(object.py(), &samples)?, expected.has_values);
            object.call_method1("score", arguments)?.extract()
        });
        self.end_reading(&expected, said)
    }

    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        let expected = self.begin_reading();
        let said = self.with(|object| {
            let values = read_only(object.py(), values)?;
            object.call_method1("test", (values, samples.start, samples.end, expected.has_values))?.extract()
        });
        self.end_reading(&expected, said)
    }
}
