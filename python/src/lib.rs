//! The extension module of the Python package: peers for workers that are written in Python. See `nettorrent/` for what users see.

mod at_work;
mod failure;
mod give;
mod memory;
mod run;
mod settings;
mod task;

use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

create_exception!(nettorrent._core, SwarmError, PyRuntimeError, "What went wrong with a swarm, and what to do next.");

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<run::Run>()?;
    module.add("SwarmError", module.py().get_type::<SwarmError>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
