//! A compute backend: who makes a task, and with it the workers, of a job's model and data.

use std::sync::Arc;

use crate::data::Dataset;
use crate::job::{Job, JobError};
use crate::learning::Learning;
use crate::model::ModelSpec;
use crate::task::Task;
use crate::train_error::TrainError;

/// A way to compute, by name. See [`crate::backends`] for the list.
pub struct Backend {
    /// What a job calls it.
    pub name: &'static str,
    /// What it computes with, in a line.
    pub about: &'static str,
    /// Makes a task of what a job trains.
    pub open: fn(Opening<'_>) -> Result<Opened, BackendError>,
}

/// What a job trains.
pub struct Opening<'a> {
    /// The job.
    pub job: &'a Job,
    /// Its model, where that is one of ours.
    pub spec: Option<&'a ModelSpec>,
    /// The function that makes it, where it is Python's: `file.py:function`.
    pub python: Option<&'a str>,
    /// The samples that it trains.
    pub train_set: Box<dyn Dataset>,
    /// The samples that it is tested on.
    pub test_set: Box<dyn Dataset>,
}

/// What a backend makes of it.
pub struct Opened {
    /// What peers train; its workers compute.
    pub task: Arc<dyn Task>,
    /// The network with its data, if parts of it can be computed by themselves: then it can be cut into stages that no peer holds all of.
    /// The workers of the task then have a [`crate::model::Workspace`] for them.
    pub parts: Option<Arc<Learning>>,
}

/// Why a backend has no task for a job.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// There is none of this name.
    #[error("{}", unknown(name, *nearest, known))]
    Unknown {
        /// What it was called.
        name: String,
        /// The nearest that there is.
        nearest: Option<&'static str>,
        /// All that there are.
        known: Vec<&'static str>,
    },
    /// The model cannot be built.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The data do not fit the model.
    #[error(transparent)]
    Train(#[from] TrainError),
}

fn unknown(name: &str, nearest: Option<&str>, known: &[&str]) -> String {
    let hint = nearest.map_or(String::new(), |nearest| format!("; did you mean `{nearest}`?"));
    format!("there is no backend `{name}`{hint} (known: {})", known.join(", "))
}
