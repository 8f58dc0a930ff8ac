//! What a session trains: a job with its data and model, or a task of the caller's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use nettorrent_engine::backend::{Opened, Opening};
use nettorrent_engine::backends;
use nettorrent_engine::data::source::DataSpec;
use nettorrent_engine::data::{Split, TextCodec, Tokens, on_all_cores};
use nettorrent_engine::job::{Job, PipelineSpec, Stages, SwarmSpec, read_toml};
use nettorrent_engine::model::{Layout, ModelSpec, NamedTensor};
use nettorrent_engine::task::Task;
use nettorrent_history::Start;
use nettorrent_net::fingerprint;
use nettorrent_net::limits::Limits;
use nettorrent_net::service::JobPackage;
use nettorrent_pipeline::{PipelineError, PipelineSetup, planner};
use nettorrent_swarm::Setup;
use nettorrent_swarm::printable::is_printable;

use crate::error::SessionError;
use crate::open::{data_spec, n_threads, open_data};
use crate::run_folder::{RunFolder, as_toml};
use crate::start_point::StartPoint;

/// The backend for models of Python.
const PYTHON: &str = "python";

/// What is trained, and how.
pub struct Training {
    /// The job as it is run here: with this machine's path to the data and its number of threads.
    pub job: Job,
    /// The model with its data.
    pub task: Arc<dyn Task>,
    /// What all peers share.
    pub setup: Arc<Setup>,
    /// Who holds which part of the network, if nobody holds it whole.
    pub pipelines: Option<Arc<PipelineSetup>>,
    /// The job as it travels.
    pub package: JobPackage,
    /// The model's description, where it is one of ours.
    spec: Option<ModelSpec>,
    codec: Option<TextCodec>,
    is_alone: bool,
}

impl Training {
    /// What a job names, for so many peers.
    pub fn from_job(job: Job, n_peers: usize) -> Result<Self, SessionError> {
        Self::open(job, None, Some(n_peers))
    }

    /// The same with a model that was described before.
    pub fn with_model(job: Job, spec: Option<ModelSpec>, n_peers: usize) -> Result<Self, SessionError> {
        Self::open(job, spec, Some(n_peers))
    }

    /// What a job names, for a process that trains by itself; with a model that was described before, if there is one. What the job says
    /// about peers is for others.
    pub fn alone(job: Job, spec: Option<ModelSpec>) -> Result<Self, SessionError> {
        Self::open(job, spec, None)
    }

    fn open(job: Job, spec: Option<ModelSpec>, n_peers: Option<usize>) -> Result<Self, SessionError> {
        let python = job.python().map(str::to_owned);
        Self::open_with(job, spec, python.as_deref(), n_peers)
    }

    /// The same with a model that Python computes here, whoever computes it elsewhere.
    fn open_with(
        mut job: Job,
        spec: Option<ModelSpec>,
        python: Option<&str>,
        n_peers: Option<usize>,
    ) -> Result<Self, SessionError> {
        let backend = backends::find(if python.is_some() { PYTHON } else { &job.backend })?;
        let train_set = open_data(&job, Split::Train)?;
        let test_set = open_data(&job, Split::Test)?;
        let spec = match spec {
            Some(spec) => Some(spec),
            None if job.python().is_some() => None,
            None => Some(job.model_spec(train_set.shape(), train_set.n_outputs())?),
        };
        if let (Some(PipelineSpec { stages: Stages::Auto(_), .. }), Some(n_peers), Some(spec)) =
            (&job.pipeline, n_peers, &spec)
        {
            planner::resolve(&mut job, spec, n_peers)?;
        }
        let [of_train, of_test] =
            on_all_cores(|| [&train_set, &test_set].map(|set| fingerprint::of_data(set.as_ref())))?;
        let data = [of_train?, of_test?];
        let codec = train_set.tokenizer().cloned();
        let opened = (backend.open)(Opening { job: &job, spec: spec.as_ref(), python, train_set, test_set })?;
        let is_alone = n_peers.is_none();
        let (setup, pipelines) = if is_alone {
            // Whatever the strategy, with one peer there is nothing to exchange; the usual one takes a step with every batch.
            let job = Job { swarm: SwarmSpec::default(), pipeline: None, ..job.clone() };
            nettorrent_pipeline::setup(&job, &opened, spec.as_ref())?
        } else {
            nettorrent_pipeline::setup(&job, &opened, spec.as_ref())?
        };
        let model = match &spec {
            Some(spec) => as_toml(spec),
            None => description(PYTHON, opened.task.layout()),
        };
        let package = JobPackage { job: as_it_travels(&job), model, data };
        Ok(Self { job, task: opened.task, setup: Arc::new(setup), pipelines, package, spec, codec, is_alone })
    }

    /// A task of the caller's own, trained as a job says: its epochs, batch, optimizer, schedule, seed and swarm. The job's model is
    /// the task's name; peers train together whose tasks have the same name, layout and samples.
    pub fn custom(task: Arc<dyn Task>, job: Job) -> Result<Self, SessionError> {
        if job.pipeline.is_some() {
            return Err(PipelineError::NoParts { what: format!("the task `{}`", job.model) }.into());
        }
        Self::opened(Opened { task, parts: None }, None, job)
    }

    /// The same with a task that can also be computed in parts, of a model with this description.
    pub fn opened(opened: Opened, spec: Option<ModelSpec>, job: Job) -> Result<Self, SessionError> {
        let (setup, pipelines) = nettorrent_pipeline::setup(&job, &opened, spec.as_ref())?;
        let (setup, task) = (Arc::new(setup), opened.task);
        let (model, data) = (description(&job.model, task.layout()), [fingerprint::of_task(task.as_ref()), [0; 32]]);
        let package = JobPackage { job: as_it_travels(&job), model, data };
        let job = Job { threads: n_threads(job.threads)?, ..job };
        Ok(Self { job, task, setup, pipelines, package, spec, codec: None, is_alone: false })
    }

    /// The same with the job of a swarm that is there, by its package.
    pub fn custom_in(package: &JobPackage, task: Arc<dyn Task>) -> Result<Self, SessionError> {
        let training = Self::custom(task, received_job(package)?)?;
        if (&training.package.model, training.package.data) != (&package.model, package.data) {
            return Err(SessionError::OtherTask(difference(&training.package.model, &package.model)));
        }
        Ok(Self { package: package.clone(), ..training })
    }

    /// What came from another machine, with the data that this one has: at a path or by a name, or else by the job's name for them.
    pub fn from_package(
        package: &JobPackage,
        data: Option<&str>,
        threads: Option<usize>,
        python: Option<&str>,
    ) -> Result<Self, SessionError> {
        let mut job = received_job(package)?;
        if let (Some(theirs), None) = (job.python(), python) {
            return Err(SessionError::NoModel(format!(
                "this swarm trains `{theirs}`, a model of Python whose file does not travel; get it, look at it, and say \
                 where it is with --model FILE.py:FUNCTION"
            )));
        }
        if let Some(argument) = data {
            job.data = data_spec(argument, job.data)?;
        } else if job.data.name.is_none() {
            return Err(SessionError::NoData(
                "this swarm's data set has no name by which it could be found here; say where it is with --data PATH"
                    .into(),
            ));
        }
        own_tokenizer(&mut job.data)?;
        job.threads = n_threads(threads.unwrap_or(0))?;
        let spec = match job.python() {
            Some(_) => None,
            None => Some(read_toml::<ModelSpec>("the swarm's model", &package.model)?),
        };
        // Whoever began the swarm has planned it.
        let training = Self::open_with(job, spec, python, Some(1))?;
        if training.spec.is_none() && training.package.model != package.model {
            return Err(SessionError::OtherTask(difference(&training.package.model, &package.model)));
        }
        if training.package.data != package.data {
            return Err(SessionError::OtherTask(
                "the data here are not those of the swarm: their contents differ; get the same data set, or say with \
                 --data where it is"
                    .into(),
            ));
        }
        Ok(Self { package: package.clone(), ..training })
    }

    /// What a swarm trains in which a run takes part again, with what the run's own job says of this machine: data, threads, Python.
    pub fn of_run(package: &JobPackage, job: &Job) -> Result<Self, SessionError> {
        let data = job.data.path.as_deref().map(|path| path.to_string_lossy());
        Self::from_package(package, data.as_deref(), Some(job.threads), job.python())
    }

    /// Whether it is for a process that trains by itself.
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Whether so many peers can do the job.
    pub fn check(&self, n_peers: usize) -> Result<(), SessionError> {
        self.setup.training().sampler.check(self.setup.n_replicas(n_peers))?;
        Ok(())
    }

    /// The model's description, where it is one of ours.
    pub fn spec(&self) -> Option<&ModelSpec> {
        self.spec.as_ref()
    }

    /// A new folder for a run of it: at this path, or under `runs/`.
    pub fn create_run(&self, path: Option<&Path>) -> Result<RunFolder, SessionError> {
        let run = RunFolder::create(path, &self.job, self.spec())?;
        if let Some(codec) = &self.codec {
            run.write_codec(codec)?;
        }
        Ok(run)
    }

    /// The event with which a run in this folder begins.
    pub fn start_event(
        &self,
        run: &Path,
        n_peers: Option<usize>,
        link: Option<String>,
        StartPoint { place, n_left_out }: &StartPoint,
    ) -> Start {
        let Self { job, task, .. } = self;
        Start {
            run: run.to_owned(),
            model: job.model.clone(),
            n_params: task.n_params(),
            n_train: task.labels().len() - n_left_out,
            n_test: task.n_test(),
            measure: task.measure(),
            threads: job.threads,
            seed: job.seed,
            strategy: (!self.is_alone).then(|| job.swarm.strategy.clone()),
            n_peers,
            link,
            epochs: job.epochs,
            epoch: place.ledger.epoch,
            step: place.step,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// What others may cost a peer of this job.
    pub fn limits(&self) -> Limits {
        Limits::for_vectors(self.n_bytes())
    }

    /// How long the vectors are that peers exchange.
    pub fn n_bytes(&self) -> usize {
        size_of::<f32>() * self.task.n_values()
    }
}

/// A task's name and tensors, a line each: what peers compare who have a task of their own.
fn description(name: &str, layout: &Layout) -> String {
    let tensors = layout.tensors().iter().map(|NamedTensor { name, tensor, range }| {
        let kind = if range.start < layout.n_params() { "parameter" } else { "buffer" };
        format!("{kind} {name} {:?}", tensor.shape)
    });
    std::iter::once(name.to_owned()).chain(tensors).collect::<Vec<_>>().join("\n")
}

/// The first thing in which a task here differs from the swarm's.
fn difference(here: &str, there: &str) -> String {
    let (mut ours, mut theirs) = (here.lines(), there.lines());
    let (name, other_name) = (ours.next().unwrap_or_default(), theirs.next().unwrap_or_default());
    if name != other_name {
        return format!("the swarm trains `{other_name}`, and the task here is `{name}`");
    }
    loop {
        return match (ours.next(), theirs.next()) {
            (Some(one), Some(other)) if one == other => continue,
            (Some(one), Some(other)) => format!("the model here has the {one} where the swarm's has the {other}"),
            (Some(one), None) => format!("the model here has the {one}, and the swarm's does not"),
            (None, Some(other)) => format!("the model here does not have the {other} of the swarm's"),
            (None, None) => {
                "the samples, labels, metrics or optimizer here are not those of the swarm: bring the same \
                             data set, with as many test samples"
                    .to_owned()
            }
        };
    }
}

/// The job as it travels.
fn as_it_travels(job: &Job) -> String {
    as_toml(&without_machine(job.clone()))
}

/// The job that a swarm sends. Honest senders leave out what is only their machine's; whatever another sends instead, no path that
/// comes from outside is opened here.
fn received_job(package: &JobPackage) -> Result<Job, SessionError> {
    check_text("job", &package.job)?;
    check_text("model", &package.model)?;
    Ok(without_machine(Job::parse("the swarm's job", &package.job, &[])?))
}

/// Where a swarm's texts become tokens by a file, it is one beside the data here: whatever name the swarm sends, no other file is opened.
fn own_tokenizer(data: &mut DataSpec) -> Result<(), SessionError> {
    let Some(Tokens::File(name)) = &data.tokens else { return Ok(()) };
    let folder = data.path.as_deref().and_then(|path| if path.is_dir() { Some(path) } else { path.parent() });
    let Some(own) = folder.map(|folder| folder.join(name)).filter(|path| path.is_file()) else {
        return Err(SessionError::NoData(format!(
            "this swarm's texts become tokens by the file `{}`, which does not travel; get it, put it beside the data, and say where \
             those are with --data PATH",
            name.display()
        )));
    };
    data.tokens = Some(Tokens::File(own));
    Ok(())
}

/// Refuses texts with control characters, written out or as escapes: their names are printed and become those of folders.
fn check_text(what: &'static str, text: &str) -> Result<(), SessionError> {
    fn is_clean(value: &toml::Value) -> bool {
        match value {
            toml::Value::String(text) => is_printable(text),
            toml::Value::Array(values) => values.iter().all(is_clean),
            toml::Value::Table(table) => table.iter().all(|(name, value)| is_printable(name) && is_clean(value)),
            _ => true,
        }
    }
    // What is no TOML is either the name of a task or refused by whoever reads it next.
    let has_clean_values = text.parse::<toml::Table>().map_or(true, |table| is_clean(&toml::Value::Table(table)));
    if has_clean_values && text.split(['\n', '\t']).all(is_printable) {
        Ok(())
    } else {
        Err(SessionError::Hostile(what))
    }
}

/// The job without what is only one machine's.
fn without_machine(mut job: Job) -> Job {
    job.threads = 0;
    job.data.path = None::<PathBuf>;
    if let Some(Tokens::File(path)) = &mut job.data.tokens {
        *path = path.file_name().unwrap_or_default().into();
    }
    if let Some(file) = job.python().and_then(|model| Path::new(model).file_name()) {
        job.model = file.to_string_lossy().into_owned();
    }
    job
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::model::Layout;

    use super::{description, difference};

    #[test]
    fn the_first_difference_between_two_tasks_is_named() {
        let tensors = |width| [("fc.weight".to_owned(), vec![width, 3]), ("fc.bias".to_owned(), vec![width])];
        let buffers = [("norm.mean".to_owned(), vec![4])];
        let of = |name: &str, width, buffers: &[(String, Vec<usize>)]| {
            description(name, &Layout::with_buffers(&tensors(width), buffers))
        };
        let here = of("net", 4, &buffers);
        for (there, expected) in [
            (of("other", 4, &buffers), "the swarm trains `other`, and the task here is `net`"),
            (
                of("net", 5, &buffers),
                "the model here has the parameter fc.weight [4, 3] where the swarm's has the parameter fc.weight [5, 3]",
            ),
            (of("net", 4, &[]), "the model here has the buffer norm.mean [4], and the swarm's does not"),
        ] {
            assert_eq!(difference(&here, &there), expected);
        }
        assert!(difference(&of("net", 4, &[]), &here).contains("does not have the buffer norm.mean [4]"));
        assert!(difference(&here, &here).contains("samples"));
    }
}
