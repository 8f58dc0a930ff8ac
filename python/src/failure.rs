//! The exception that ended a run, to be raised where the run was asked for.

use std::sync::{Arc, Mutex, PoisonError};

use nettorrent_engine::train_error::TrainError;
use pyo3::prelude::*;

/// Where a worker leaves the exception of user code.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    /// Keeps an exception, unless another came before it; and says it in the words of peers.
    pub(crate) fn keep(&self, py: Python<'_>, error: PyErr) -> TrainError {
        if is_left(py, &error) {
            return TrainError::Cancelled;
        }
        let problem = format!("the model's Python code failed: {error}{}", place(py, &error).unwrap_or_default());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        TrainError::Worker(problem)
    }

    /// The exception, if there was one.
    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether it only says that the user has left the loop in which batches are trained.
fn is_left(py: Python<'_>, error: &PyErr) -> bool {
    let of_type = |name| error.get_type(py).getattr(name).and_then(|name| name.extract::<String>());
    of_type("__name__").is_ok_and(|name| name == "Left")
        && of_type("__module__").is_ok_and(|name| name.starts_with("nettorrent"))
}

/// Where an exception was raised: file and line of the innermost frame.
fn place(py: Python<'_>, error: &PyErr) -> Option<String> {
    let mut frame = error.traceback(py)?.into_any();
    while let Some(next) = frame.getattr("tb_next").ok().filter(|next| !next.is_none()) {
        frame = next;
    }
    let line: u32 = frame.getattr("tb_lineno").ok()?.extract().ok()?;
    let file: String =
        frame.getattr("tb_frame").ok()?.getattr("f_code").ok()?.getattr("co_filename").ok()?.extract().ok()?;
    Some(format!(" ({file}, line {line})"))
}
