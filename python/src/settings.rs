//! How a run is made, as Python code says it in a dictionary.

use std::path::PathBuf;
use std::sync::Arc;

use nettorrent_engine::job::Job;
use nettorrent_net::address::Address;
use nettorrent_net::handshake::Encryption;
use nettorrent_session::{Options, RunFolder, SessionError, StartState, Training};
use nettorrent_swarm::link_spec::LinkSpecError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::task::PyTask;

/// How a run is made.
pub(crate) struct Settings {
    pub(crate) options: Options,
    /// Its folder, if it is not to be a new one under `runs/`.
    pub(crate) out: Option<PathBuf>,
    /// The folder of a run to go on with.
    resume: Option<PathBuf>,
    /// How many processes train on this machine.
    pub(crate) n_processes: usize,
}

impl Settings {
    pub(crate) fn read(given: &Bound<'_, PyDict>) -> PyResult<Self> {
        let mut settings = Self { options: Options::default(), out: None, resume: None, n_processes: 1 };
        let options = &mut settings.options;
        for (name, value) in given.iter().filter(|(_, value)| !value.is_none()) {
            match name.extract::<String>()?.as_str() {
                "out" => settings.out = Some(value.extract()?),
                "resume" => settings.resume = Some(value.extract()?),
                "processes" => settings.n_processes = value.extract()?,
                "wait_for" => options.wait_for = value.extract::<usize>()?.max(1),
                "listen" => options.listen = address(&value)?,
                "address" => options.address = Some(address(&value)?),
                "discover" => options.discover = value.extract()?,
                "encryption" => options.encryption = if value.extract()? { Encryption::On } else { Encryption::Off },
                "link" => {
                    let link: String = value.extract()?;
                    options.link =
                        Some(link.parse().map_err(|error: LinkSpecError| PyValueError::new_err(error.to_string()))?);
                }
                "tensorboard" => options.tensorboard = value.extract()?,
                other => return Err(PyValueError::new_err(format!("there is no option `{other}`"))),
            }
        }
        Ok(settings)
    }

    /// What is trained, from where on, and where its checkpoints go.
    pub(crate) fn open(
        &self,
        task: Arc<PyTask>,
        job: Job,
    ) -> Result<(Arc<Training>, StartState, RunFolder), SessionError> {
        let training = Arc::new(Training::custom(task, job)?);
        let Some(path) = &self.resume else {
            let run = RunFolder::create(self.out.as_deref(), &training.job, None)?;
            return Ok((training.clone(), StartState::fresh(&training), run));
        };
        let run = RunFolder::open(path)?;
        let start = match run.newest_whole()?.0 {
            Some(checkpoint) => StartState::from_checkpoint(&run, &checkpoint, &training)?,
            None => StartState::fresh(&training),
        };
        run.write_job(&training.job)?;
        Ok((training, start, run))
    }
}

fn address(value: &Bound<'_, PyAny>) -> PyResult<Address> {
    let text: String = value.extract()?;
    text.parse().map_err(|_| PyValueError::new_err(format!("`{text}` is no address; write it as IP:PORT")))
}
