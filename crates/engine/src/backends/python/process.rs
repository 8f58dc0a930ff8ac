//! A Python process that computes, and the file through which numbers go to it and back.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::train_error::TrainError;

/// What the process runs.
const WORKER: &str = include_str!("worker.py");
/// Names another Python than `python3`.
const PYTHON: &str = "NETTORRENT_PYTHON";

/// A Python process with a model.
pub(super) struct Process {
    child: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// What it says of itself.
#[derive(Deserialize)]
pub(super) struct Described {
    /// Name, shape and kind of its tensors: trained parameters first.
    pub(super) tensors: Vec<(String, Vec<usize>, String)>,
}

/// What is to be loaded.
pub(super) struct ModelSource<'a> {
    /// `file.py:function`.
    pub(super) model: &'a str,
    pub(super) input_shape: &'a [usize],
    pub(super) n_classes: usize,
    pub(super) seed: u64,
    pub(super) threads: usize,
}

impl Process {
    /// Starts a process and has it load the model.
    pub(super) fn start(source: &ModelSource<'_>) -> Result<(Self, Described), TrainError> {
        let python = std::env::var(PYTHON).unwrap_or_else(|_| "python3".into());
        let mut command = Command::new(&python);
        command.args(["-c", WORKER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C goes to all processes of a terminal; this one ends when its peer does.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let missing = |error: io::Error| {
            TrainError::Worker(format!(
                "cannot start `{python}` for the model {}: {error}; set {PYTHON} to a Python that has PyTorch",
                source.model
            ))
        };
        let mut child = command.spawn().map_err(missing)?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(missing(io::Error::other("it has no pipes")));
        };
        let mut process = Self { child, requests: Some(requests), answers: BufReader::new(answers) };
        let ModelSource { model, input_shape, n_classes, seed, threads } = source;
        let described = process.ask(&json!({
            "do": "begin", "model": model, "input_shape": input_shape, "n_classes": n_classes, "seed": seed, "threads": threads,
        }))?;
        Ok((process, described))
    }

    /// Asks for something and waits for the answer.
    pub(super) fn ask<A: DeserializeOwned>(&mut self, request: &Value) -> Result<A, TrainError> {
        let mut line = String::new();
        let asked = self.requests.as_mut().ok_or_else(|| io::Error::other("it has ended")).and_then(|requests| {
            requests.write_all(format!("{request}\n").as_bytes())?;
            requests.flush()?;
            self.answers.read_line(&mut line)
        });
        if asked.is_err() || line.is_empty() {
            let status = self.child.try_wait().ok().flatten().map_or(String::new(), |status| format!(" ({status})"));
            return Err(TrainError::Worker(format!(
                "the Python process that computes the model has ended{status}; what it said last is above"
            )));
        }
        let unreadable =
            |error: serde_json::Error| TrainError::Worker(format!("an answer of Python makes no sense: {error}"));
        let answer: Value = serde_json::from_str(&line).map_err(unreadable)?;
        match answer.get("error").and_then(Value::as_str) {
            Some(problem) => Err(TrainError::Worker(format!("the model's Python code failed: {problem}"))),
            None => serde_json::from_value(answer).map_err(unreadable),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when nobody asks any more.
        self.requests = None;
        let _ = self.child.wait();
    }
}

/// A file of numbers that lies in memory and that two processes have open.
pub(super) struct SharedFile {
    file: File,
    path: PathBuf,
}

impl SharedFile {
    pub(super) fn create(n_numbers: usize) -> io::Result<Self> {
        static N_MADE: AtomicU64 = AtomicU64::new(0);
        let memory = PathBuf::from("/dev/shm");
        let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
        let name = format!("nettorrent-{}-{}", std::process::id(), N_MADE.fetch_add(1, Ordering::Relaxed));
        let path = folder.join(name);
        // Nobody else on this machine is to read the model or its samples.
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        file.set_len((4 * n_numbers) as u64)?;
        Ok(Self { file, path })
    }

    pub(super) fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Takes its name away: those who have it open keep it, and nothing is left behind however they end.
    pub(super) fn unlink(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Writes numbers from this one on.
    pub(super) fn write(&self, at: usize, numbers: &[f32]) -> io::Result<()> {
        self.file.write_all_at(bytes_of(numbers), 4 * at as u64)
    }

    pub(super) fn write_integers(&self, at: usize, numbers: &[u32]) -> io::Result<()> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, 4 * at as u64)
    }

    /// Reads numbers from this one on.
    pub(super) fn read(&self, at: usize, numbers: &mut [f32]) -> io::Result<()> {
        // SAFETY: numbers are plain memory, and every pattern of bits is one.
        let bytes = unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast::<u8>(), size_of_val(numbers)) };
        self.file.read_exact_at(bytes, 4 * at as u64)
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        self.unlink();
    }
}

fn bytes_of(numbers: &[f32]) -> &[u8] {
    // SAFETY: numbers are plain memory, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}
