//! `cpu`: networks of our own layers, computed with this machine's processor. Parts of them can be computed by themselves.

use std::sync::Arc;

use crate::backend::{Backend, BackendError, Opened, Opening};
use crate::job::build_network;
use crate::learning::Learning;
use crate::train_error::TrainError;

pub(super) const BACKEND: Backend = Backend { name: "cpu", about: "our own layers on this machine's processor", open };

fn open(opening: Opening<'_>) -> Result<Opened, BackendError> {
    let Opening { job, spec, python: _, train_set, test_set } = opening;
    let spec = spec.ok_or_else(|| {
        TrainError::Mismatch(format!("`{}` is a model of Python: set backend = \"python\"", job.model))
    })?;
    let network = build_network(&job.model, spec)?;
    let learning = Arc::new(Learning::new(job, network, train_set, test_set)?);
    Ok(Opened { task: learning.clone(), parts: Some(learning) })
}
