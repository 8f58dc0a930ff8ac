//! `cpu`: networks of our own layers, computed with this machine's processor. Parts of them can be computed by themselves.

use std::sync::Arc;

use crate::backend::{Backend, BackendError, Opened, Opening};
use crate::job::build_network;
use crate::learning::Learning;

pub(super) const BACKEND: Backend = Backend { name: "cpu", about: "our own layers on this machine's processor", open };

fn open(opening: Opening<'_>) -> Result<Opened, BackendError> {
    let Opening { job, spec, train_set, test_set } = opening;
    let network = build_network(&job.model, spec)?;
    let learning = Arc::new(Learning::new(job, network, train_set, test_set)?);
    Ok(Opened { task: learning.clone(), parts: Some(learning) })
}
