//! A run with workers of Python's: its peers live on a thread of their own and never wait for Python but where they compute.

#![expect(clippy::needless_pass_by_value, reason = "Python hands over what it calls with")]

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nettorrent_engine::job::Job;
use nettorrent_engine::task::Task;
use nettorrent_net::{Load, block_on};
use nettorrent_session::peer_event::Ending;
use nettorrent_session::{Invited, Leave, Outcome, RunFolder, Session, SessionError, StartState, Training};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::SwarmError;
use crate::at_work::AtWork;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::task::PyTask;

/// How long the end of a run waits for what is still computed: a thread that comes back to a Python that is ending crashes it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often it is looked whether somebody has pressed Ctrl-C.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A run that goes on in the background. When it is dropped, its peers leave.
#[pyclass(module = "nettorrent._core")]
pub(crate) struct Run {
    told: Mutex<Receiver<Told>>,
    ready: Ready,
    failure: Failure,
}

/// What comes from the thread of the peers.
enum Told {
    Ready(Ready),
    Event(String),
    Ended(Result<Outcome, SessionError>),
}

/// A run that has begun.
struct Ready {
    training: Arc<Training>,
    folder: RunFolder,
    ticket: Option<String>,
    leave: Leave,
}

/// What a run and its workers have in common: the exception that ended it, and which of them there still are.
type Shared = (Failure, AtWork);

/// How a session comes about.
enum Beginning {
    Local(Arc<PyTask>, Job, usize),
    Start(Arc<PyTask>, Job),
    Join(String, Py<PyAny>),
}

#[pymethods]
impl Run {
    /// Trains with a peer for each worker, all in this process.
    #[staticmethod]
    fn local(py: Python<'_>, job: &str, workers: Vec<Bound<'_, PyAny>>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (job, n_peers, shared) = (read_job(job)?, workers.len(), Shared::default());
        let task = Arc::new(PyTask::new(workers, job.optimizer.lr, shared.clone())?);
        Self::begin(py, Beginning::Local(task, job, n_peers), Settings::read(options)?, shared)
    }

    /// Starts a swarm, which others join with the ticket.
    #[staticmethod]
    fn start(py: Python<'_>, job: &str, worker: Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (job, shared) = (read_job(job)?, Shared::default());
        let task = Arc::new(PyTask::new(vec![worker], job.optimizer.lr, shared.clone())?);
        Self::begin(py, Beginning::Start(task, job), Settings::read(options)?, shared)
    }

    /// Joins a swarm. `make_worker` is called with its job.
    #[staticmethod]
    fn join(py: Python<'_>, ticket: String, make_worker: Py<PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Self> {
        Self::begin(py, Beginning::Join(ticket, make_worker), Settings::read(options)?, Shared::default())
    }

    /// With what others join, if it was started here.
    #[getter]
    fn ticket(&self) -> Option<&str> {
        self.ready.ticket.as_deref()
    }

    /// Where its checkpoints and events are.
    #[getter]
    fn folder(&self) -> String {
        self.ready.folder.path().display().to_string()
    }

    /// Waits until it is over, and hands every event to `on_event` as a line of JSON. Ctrl-C has it leave, with a checkpoint.
    fn run<'py>(&self, py: Python<'py>, on_event: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyDict>> {
        // An exception in what the caller had called, or Ctrl-C: it is raised when the run has come to its end.
        let mut raised = None;
        let outcome = loop {
            match receive(py, &self.told) {
                Ok(Told::Event(line)) => {
                    let called = on_event.as_ref().filter(|_| raised.is_none()).map(|on_event| on_event.call1((line,)));
                    raised = raised.or(called.and_then(Result::err).inspect(|_| self.ready.leave.leave()));
                }
                Ok(Told::Ended(outcome)) => break outcome,
                Ok(Told::Ready(_)) => {}
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(interrupt) = py.check_signals() {
                        self.ready.leave.leave();
                        raised.get_or_insert(interrupt);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return Err(PyRuntimeError::new_err("the run is over already")),
            }
        };
        if let Some(error) = raised.or_else(|| self.failure.take()) {
            return Err(error);
        }
        let Outcome { ending, epoch, step, checkpoint, took, .. } = outcome.map_err(swarm_error)?;
        let ending = match ending {
            Ending::Finished => "finished",
            Ending::Left => "left",
            Ending::Failed(problem) => return Err(SwarmError::new_err(problem)),
        };
        let result = PyDict::new(py);
        result.set_item("ending", ending)?;
        result.set_item("epoch", epoch)?;
        result.set_item("step", step)?;
        result.set_item("seconds", took.as_secs_f64())?;
        result.set_item("checkpoint", checkpoint.map(|path| path.display().to_string()))?;
        Ok(result)
    }

    /// Has the peers leave, with a checkpoint of what they have.
    fn leave(&self) {
        self.ready.leave.leave();
    }

    /// The flat vector of a checkpoint of this run, as the worker's tensors lie in it.
    fn read_checkpoint(&self, py: Python<'_>, path: PathBuf) -> PyResult<Py<PyAny>> {
        let Ready { training, folder, .. } = &self.ready;
        let state = py.detach(|| StartState::from_checkpoint(folder, &path, training)).map_err(swarm_error)?;
        let StartState::Whole(state) = state else { return Err(PyValueError::new_err("it has no whole state")) };
        Ok(pyo3::types::PyByteArray::new(py, bytes_of(&state.values)).into_any().unbind())
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.ready.leave.leave();
    }
}

impl Run {
    fn begin(py: Python<'_>, beginning: Beginning, settings: Settings, shared: Shared) -> PyResult<Self> {
        let (sender, told) = channel();
        let told = Mutex::new(told);
        let failure = shared.0.clone();
        thread::Builder::new().name("nettorrent".into()).spawn(move || {
            let n_processes = settings.n_processes.max(1);
            let load = Load { n_processes, n_bytes: beginning.n_bytes() };
            let ended = block_on(load, train(beginning, settings, shared.clone(), &sender));
            shared.1.wait(PATIENCE);
            let ended = ended.unwrap_or_else(|error| Err(error.into()));
            // If nobody listens any more, nobody wants to know.
            let _ = sender.send(Told::Ended(ended));
        })?;
        loop {
            match receive(py, &told) {
                Ok(Told::Ready(ready)) => return Ok(Self { told, ready, failure }),
                Ok(Told::Event(_)) => {}
                Ok(Told::Ended(ended)) => {
                    return Err(failure.take().or_else(|| ended.err().map(swarm_error)).unwrap_or_else(is_over));
                }
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => return Err(is_over()),
            }
        }
    }
}

fn is_over() -> PyErr {
    SwarmError::new_err("the run ended before it began")
}

/// Waits a moment for the peers, while other Python threads go on.
fn receive(py: Python<'_>, told: &Mutex<Receiver<Told>>) -> Result<Told, RecvTimeoutError> {
    py.detach(|| told.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(LOOK_EVERY))
}

impl Beginning {
    /// How much peers exchange in a round, as far as that is known.
    fn n_bytes(&self) -> usize {
        match self {
            Self::Local(task, ..) | Self::Start(task, _) => size_of::<f32>() * task.n_values(),
            Self::Join(..) => 0,
        }
    }
}

/// Begins a session and trains until it is over.
async fn train(
    beginning: Beginning,
    settings: Settings,
    shared: Shared,
    told: &Sender<Told>,
) -> Result<Outcome, SessionError> {
    let options = settings.options.clone();
    let (mut session, ticket) = match beginning {
        Beginning::Local(task, job, n_peers) => {
            let (training, start, run) = settings.open(task, job)?;
            (Session::local(training, start, run, options, n_peers).await?, None)
        }
        Beginning::Start(task, job) => {
            let (training, start, run) = settings.open(task, job)?;
            let (session, ticket) = Session::start(training, start, run, options).await?;
            (session, Some(ticket.to_string()))
        }
        Beginning::Join(ticket, make_worker) => {
            let ticket = ticket
                .parse()
                .map_err(|error: nettorrent_net::ticket::TicketError| SessionError::OtherTask(error.to_string()))?;
            // Whoever is let in uses the ticket once.
            RunFolder::check_free(settings.out.as_deref())?;
            let invited = Invited::ask(&ticket, &options).await?;
            let task = Python::attach(|py| {
                let package = invited.package();
                let made = make_worker.bind(py).call1((&package.job,)).and_then(|worker| {
                    let lr = read_job(&package.job)?.optimizer.lr;
                    PyTask::new(vec![worker], lr, shared.clone())
                });
                made.map_err(|error| SessionError::OtherTask(shared.0.keep(py, error).to_string()))
            })?;
            let training = Training::custom_in(invited.package(), Arc::new(task))?;
            let run = RunFolder::create(settings.out.as_deref(), &training.job, None)?;
            (Session::join(invited, Arc::new(training), run, options).await?, None)
        }
    };
    let (training, folder, leave) = (session.training().clone(), session.run_folder().clone(), session.leave());
    let events = told.clone();
    session.follow(move |line, _| drop(events.send(Told::Event(line.to_json()))));
    drop(told.send(Told::Ready(Ready { training, folder, ticket, leave })));
    session.run().await
}

fn read_job(text: &str) -> PyResult<Job> {
    Job::parse("the job", text, &[]).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn swarm_error(error: SessionError) -> PyErr {
    SwarmError::new_err(error.to_string())
}

fn bytes_of(numbers: &[f32]) -> &[u8] {
    // SAFETY: numbers are plain memory, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), size_of_val(numbers)) }
}
