//! `python`: a PyTorch model in a Python process for each worker, on the processor or a GPU.
//!
//! The job names it as `file.py:function`; the function gives a `torch.nn.Module` that takes the samples of the job's data and gives a
//! number for each class. Samples are read here, and strategies are ours: the process computes gradients and scores, and trains local phases,
//! for which parameters and optimizer go to it once and come back once.
//! If the job's model is one of ours, a function that gives the same network lets a peer compute it with PyTorch among others that do not.

mod computer;
mod process;

use std::ops::Range;
use std::sync::Arc;

use computer::{Borrowed, Computer, Computers};
use process::ModelSource;
use serde::Deserialize;
use serde_json::json;

use crate::backend::{Backend, BackendError, Opened, Opening};
use crate::data::{Batch, Dataset};
use crate::job::{Augmentation, build_network};
use crate::local_phase::{LocalBatch, LocalPhase, PhaseEnd};
use crate::model::{Layout, Network, Score};
use crate::optimizer::Optimizer;
use crate::rng::Rng;
use crate::task::{GradientSink, Task, Worker};
use crate::team::Team;
use crate::train_error::TrainError;

pub(super) const BACKEND: Backend =
    Backend { name: "python", about: "a PyTorch model (`model = \"file.py:function\"`) in Python processes", open };

fn open(opening: Opening<'_>) -> Result<Opened, BackendError> {
    let Opening { job, spec, python, train_set, test_set } = opening;
    let Some(model) = python.map(str::to_owned) else {
        let problem = format!(
            "the backend `python` computes models of Python, and `{}` is one of ours; write model = \"file.py:function\"",
            job.model
        );
        return Err(TrainError::Mismatch(problem).into());
    };
    let network = spec.map(|spec| build_network(&job.model, spec)).transpose()?;
    let (n_classes, threads, seed) = (train_set.classes().len(), job.threads, job.seed);
    let source = ModelSource { model: &model, input_shape: train_set.shape(), n_classes, seed, threads };
    let known = network.as_ref().map(Network::layout);
    let (mut first, layout) = Computer::start(&source, known, job.batch)?;
    let initial = match &network {
        Some(network) => network.init(&mut Rng::stream(seed, "init", 0)),
        None => first.initial(layout.n_values())?,
    };
    let task = PythonTask {
        model,
        layout,
        initial,
        train_set,
        test_set,
        batch: job.batch,
        augment: job.augment,
        seed,
        computers: Arc::new(Computers::new(first)),
    };
    Ok(Opened { task: Arc::new(task), parts: None })
}

/// A model of Python's with its data.
struct PythonTask {
    model: String,
    layout: Layout,
    initial: Vec<f32>,
    train_set: Box<dyn Dataset>,
    test_set: Box<dyn Dataset>,
    batch: usize,
    augment: Augmentation,
    seed: u64,
    computers: Arc<Computers>,
}

impl Task for PythonTask {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, _: u64) -> Vec<f32> {
        self.initial.clone()
    }

    fn labels(&self) -> &[u32] {
        self.train_set.labels()
    }

    fn n_test(&self) -> usize {
        self.test_set.len()
    }

    fn origin(&self, sample: usize) -> Option<String> {
        self.train_set.origin(sample)
    }

    fn worker(self: Arc<Self>, threads: usize) -> Result<Box<dyn Worker>, TrainError> {
        let (input_shape, n_classes) = (self.train_set.shape(), self.train_set.classes().len());
        let source = ModelSource { model: &self.model, input_shape, n_classes, seed: self.seed, threads };
        let computer = self.computers.borrow(&source, &self.layout, self.batch)?;
        let team = Team::new(threads)?;
        Ok(Box::new(PythonWorker { gradient: vec![0.0; self.layout.n_values()], task: self, computer, team }))
    }
}

impl PythonTask {
    /// Training samples, augmented; read by these threads.
    fn batch(&self, samples: &[usize], seed: u64, team: &Team) -> Result<Batch, TrainError> {
        let mut batch = team.install(|| self.train_set.batch(samples))?;
        self.augment.apply(&mut batch, self.train_set.shape(), seed);
        Ok(batch)
    }
}

#[derive(Deserialize)]
struct Said {
    /// None if it is not a finite number, which JSON does not have.
    loss_sum: Option<f64>,
    n_correct: usize,
    /// Whether a step was taken, after the last part of a batch: its loss was as usual and its gradient finite.
    #[serde(default)]
    is_usual: bool,
}

impl Said {
    fn of(&self, n: usize) -> Score {
        let loss_sum = self.loss_sum.unwrap_or(f64::NAN);
        Score { loss_sum, n_correct: self.n_correct, n, ..Score::default() }
    }
}

/// Has a process compute.
struct PythonWorker {
    task: Arc<PythonTask>,
    computer: Borrowed,
    gradient: Vec<f32>,
    /// Who reads samples.
    team: Team,
}

impl PythonWorker {
    /// How the model does on these samples, a batch at a time.
    fn evaluate(&mut self, values: &[f32], set: Set, samples: &[usize]) -> Result<Score, TrainError> {
        let mut sum = Score::default();
        let data = if set == Set::Train { &self.task.train_set } else { &self.task.test_set };
        let mut batches = samples.chunks(self.computer.n_batch).peekable();
        while let Some(samples) = batches.next() {
            data.prefetch(batches.peek().copied().unwrap_or_default());
            let batch = self.team.install(|| data.batch(samples))?;
            if sum.n == 0 {
                self.computer.write_values(values)?;
            }
            self.computer.write_batch(&batch)?;
            let request = json!({ "do": "evaluate", "n": batch.len(), "load": sum.n == 0 });
            sum += self.computer.ask::<Said>(&request)?.of(batch.len());
        }
        Ok(sum)
    }

    fn begin_phase(&mut self, values: &[f32], optimizer: &Optimizer) -> Result<(), TrainError> {
        let (computer, (n_steps, vectors)) = (&mut self.computer, optimizer.state());
        let (spec, epsilon) = (optimizer.spec(), optimizer.spec().epsilon());
        computer.write_values(values)?;
        let request = json!({ "do": "begin_phase", "optimizer": spec, "epsilon": epsilon, "n_steps": n_steps });
        computer.tell(&request)?;
        for (name, vector) in vectors {
            computer.write_vector(vector)?;
            computer.tell(&json!({ "do": "load_vector", "name": name }))?;
        }
        Ok(())
    }

    /// Takes a step with a batch; None, and no step, if its loss or its gradient is not usual.
    fn local_step(
        &mut self,
        samples: &[usize],
        seed: u64,
        lr: f32,
        most_loss: f64,
    ) -> Result<Option<Score>, TrainError> {
        let Self { task, computer, team, .. } = self;
        let (mut score, mut is_usual) = (Score::default(), false);
        // A batch may be larger than the job's where peers are few.
        for some in samples.chunks(computer.n_batch) {
            computer.write_batch(&task.batch(some, seed, team)?)?;
            let (n, n_all) = (some.len(), samples.len());
            let request = json!({
                "do": "train", "n": n, "seed": seed, "share": n as f64 / n_all as f64, "is_first": score.n == 0,
                "is_last": score.n + n == n_all, "lr": lr, "most_loss": most_loss,
            });
            let said: Said = computer.ask(&request)?;
            score += said.of(n);
            is_usual = said.is_usual;
        }
        Ok(is_usual.then_some(score))
    }

    fn end_phase(&mut self, values: &mut [f32], optimizer: &mut Optimizer) -> Result<(), TrainError> {
        #[derive(Deserialize)]
        struct Ended {
            n_steps: u64,
        }
        let Ended { n_steps } = self.computer.ask(&json!({ "do": "end_phase" }))?;
        self.computer.read_values(values)?;
        let names: Vec<_> = optimizer.state().1.map(|(name, _)| name).collect();
        let (steps, vectors) = optimizer.state_mut();
        *steps = n_steps;
        for (name, vector) in names.into_iter().zip(vectors) {
            self.computer.tell(&json!({ "do": "store_vector", "name": name }))?;
            self.computer.read_vector(vector)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Set {
    Train,
    Test,
}

impl Worker for PythonWorker {
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
        let Self { task, computer, gradient, team } = self;
        let (mut score, mut part) = (Score::default(), vec![0.0; gradient.len()]);
        gradient.fill(0.0);
        // A batch may be larger than the job's where peers are few.
        computer.write_values(values)?;
        for some in samples.chunks(computer.n_batch) {
            let batch = task.batch(some, seed, team)?;
            computer.write_batch(&batch)?;
            score +=
                computer.ask::<Said>(&json!({ "do": "gradient", "n": batch.len(), "seed": seed }))?.of(batch.len());
            computer.read_vector(&mut part)?;
            let share = some.len() as f32 / samples.len() as f32;
            gradient.iter_mut().zip(&part).for_each(|(sum, number)| *sum += share * number);
        }
        let buckets = task.layout.buckets().iter().enumerate();
        buckets.for_each(|(k, bucket)| sink(k, &gradient[bucket.clone()]));
        Ok(score)
    }

    fn local_steps(
        &mut self,
        values: &mut [f32],
        optimizer: &mut Optimizer,
        phase: &mut dyn LocalPhase,
    ) -> Result<PhaseEnd, TrainError> {
        self.begin_phase(values, optimizer)?;
        let end = loop {
            let Some(LocalBatch { samples, seed, next }) = phase.next_batch() else { break PhaseEnd::Over };
            self.task.train_set.prefetch(next);
            let samples = samples.to_vec();
            match self.local_step(&samples, seed, phase.lr(), phase.most_loss())? {
                Some(score) => phase.on_step(score),
                None => break PhaseEnd::Spoilt,
            }
        };
        self.end_phase(values, optimizer)?;
        Ok(end)
    }

    fn prefetch(&mut self, samples: &[usize]) {
        self.task.train_set.prefetch(samples);
    }

    fn score(&mut self, values: &[f32], samples: &[usize]) -> Result<Score, TrainError> {
        self.evaluate(values, Set::Train, samples)
    }

    fn test(&mut self, values: &[f32], samples: Range<usize>) -> Result<Score, TrainError> {
        self.evaluate(values, Set::Test, &samples.collect::<Vec<_>>())
    }
}
