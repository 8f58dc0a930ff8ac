//! A Python process with the memory it shares with its peer, and those of a task that nobody uses just now.
//!
//! To load PyTorch takes seconds. What tries many things out, as `advise` and `simulate` do, has workers come and go, so their processes
//! stay for those that come next. Whatever a process is asked to do, it is given all that the answer depends on.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::process::{ModelSource, Process, SharedFile};
use crate::data::Batch;
use crate::model::{Layout, NamedTensor};
use crate::train_error::TrainError;

/// A process with a model, and what it shares with its peer: values, a gradient, the samples of a batch, and their labels.
pub(super) struct Computer {
    process: Process,
    file: SharedFile,
    threads: usize,
    n_values: usize,
    pub(super) n_batch: usize,
    n_inputs: usize,
    /// Whether it has answered whatever it was asked.
    is_sound: bool,
}

#[derive(Deserialize)]
struct Nothing {}

impl Computer {
    /// Starts a process, which says what the model's layout is if that is not known.
    pub(super) fn start(
        source: &ModelSource<'_>,
        known: Option<Layout>,
        n_batch: usize,
    ) -> Result<(Self, Layout), TrainError> {
        let (process, described) = Process::start(source)?;
        let layout = known.unwrap_or_else(|| Layout::of_described(&described.tensors));
        let (n_values, n_inputs) = (layout.n_values(), n_batch * source.input_shape.iter().product::<usize>());
        let file = SharedFile::create(2 * n_values + n_inputs + n_batch).map_err(|error| unshared(&error))?;
        let mut computer = Self { process, file, threads: source.threads, n_values, n_batch, n_inputs, is_sound: true };
        computer.open(&layout)?;
        Ok((computer, layout))
    }

    /// Tells the process where the memory is, and where each tensor lies in the flat vector.
    fn open(&mut self, layout: &Layout) -> Result<(), TrainError> {
        let places: Vec<_> = layout.tensors().iter().map(place).collect();
        let (n_values, n_batch) = (self.n_values, self.n_batch);
        let opened = self.tell(&json!({
            "do": "open", "path": self.file.path(), "n_values": n_values, "n_batch": n_batch, "places": places,
        }));
        self.file.unlink();
        opened
    }

    /// Asks for something and waits for the answer.
    pub(super) fn ask<A: DeserializeOwned>(&mut self, request: &Value) -> Result<A, TrainError> {
        let answer = self.process.ask(request);
        self.is_sound &= answer.is_ok();
        answer
    }

    /// Has something done that needs no answer.
    pub(super) fn tell(&mut self, request: &Value) -> Result<(), TrainError> {
        self.ask::<Nothing>(request).map(drop)
    }

    fn set_threads(&mut self, threads: usize) -> Result<(), TrainError> {
        if self.threads != threads {
            self.tell(&json!({ "do": "set_threads", "threads": threads }))?;
            self.threads = threads;
        }
        Ok(())
    }

    pub(super) fn initial(&mut self, n_values: usize) -> Result<Vec<f32>, TrainError> {
        self.tell(&json!({ "do": "initial" }))?;
        let mut values = vec![0.0; n_values];
        self.read_values(&mut values)?;
        Ok(values)
    }

    pub(super) fn write_values(&self, values: &[f32]) -> Result<(), TrainError> {
        self.file.write(0, values).map_err(|error| unshared(&error))
    }

    pub(super) fn read_values(&self, values: &mut [f32]) -> Result<(), TrainError> {
        self.file.read(0, values).map_err(|error| unshared(&error))
    }

    /// Where a gradient lies, there is also room for a vector of an optimizer.
    pub(super) fn write_vector(&self, vector: &[f32]) -> Result<(), TrainError> {
        self.file.write(self.n_values, vector).map_err(|error| unshared(&error))
    }

    pub(super) fn read_vector(&self, vector: &mut [f32]) -> Result<(), TrainError> {
        self.file.read(self.n_values, vector).map_err(|error| unshared(&error))
    }

    pub(super) fn write_batch(&self, batch: &Batch) -> Result<(), TrainError> {
        self.file.write(2 * self.n_values, &batch.inputs).map_err(|error| unshared(&error))?;
        self.file.write_integers(2 * self.n_values + self.n_inputs, batch.classes()).map_err(|error| unshared(&error))
    }
}

fn unshared(error: &std::io::Error) -> TrainError {
    TrainError::Worker(format!("cannot share memory with the Python process: {error}"))
}

/// A tensor's name, start, lengths and steps in the flat vector.
fn place(NamedTensor { name, tensor, range }: &NamedTensor) -> (&str, usize, Vec<usize>, Vec<usize>) {
    let (lens, steps) = tensor.axes.iter().copied().unzip();
    (name, range.start, lens, steps)
}

/// Those of one model that nobody uses.
pub(super) struct Computers {
    idle: Mutex<Vec<Computer>>,
}

impl Computers {
    pub(super) fn new(first: Computer) -> Self {
        Self { idle: Mutex::new(vec![first]) }
    }

    /// One that is idle, or a new one.
    pub(super) fn borrow(
        self: &Arc<Self>,
        source: &ModelSource<'_>,
        layout: &Layout,
        n_batch: usize,
    ) -> Result<Borrowed, TrainError> {
        let idle = self.idle().pop();
        let mut computer = match idle {
            Some(computer) => computer,
            None => Computer::start(source, Some(layout.clone()), n_batch)?.0,
        };
        computer.set_threads(source.threads)?;
        Ok(Borrowed { computer: Some(computer), home: self.clone() })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Computer>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that goes back when it is dropped, unless it failed.
pub(super) struct Borrowed {
    computer: Option<Computer>,
    home: Arc<Computers>,
}

impl Deref for Borrowed {
    type Target = Computer;

    fn deref(&self) -> &Computer {
        self.computer.as_ref().expect("it is here until this is dropped")
    }
}

impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Computer {
        self.computer.as_mut().expect("it is here until this is dropped")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let sound = self.computer.take().filter(|computer| computer.is_sound);
        self.home.idle().extend(sound);
    }
}
