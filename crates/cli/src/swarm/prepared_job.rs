//! What a peer needs to take part: the job, its data, its model.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use nettorrent_engine::data::Part;
use nettorrent_engine::job::{Groups, Job, LayersSpec, build_network, read_toml};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::ModelSpec;
use nettorrent_engine::task::Task;
use nettorrent_net::fingerprint;
use nettorrent_net::limits::Limits;
use nettorrent_net::service::JobPackage;
use nettorrent_swarm::Setup;
use nettorrent_swarm::layers::planner;

use crate::open::{data_spec, n_threads, open_data};

/// A job with all that it names.
pub(crate) struct PreparedJob {
    /// As it is run here: with this machine's path to the data and its number of threads.
    pub job: Job,
    pub spec: ModelSpec,
    pub learning: Arc<Learning>,
    pub setup: Arc<Setup>,
    /// As it travels.
    pub package: JobPackage,
}

impl PreparedJob {
    /// What a job names, for so many peers; the model is the job's, or one that was described before.
    pub(crate) fn open(mut job: Job, spec: Option<ModelSpec>, n_peers: usize) -> anyhow::Result<Self> {
        let train_set = open_data(&job, Part::Train)?;
        let test_set = open_data(&job, Part::Test)?;
        let spec = match spec {
            Some(spec) => spec,
            None => job.model_spec(train_set.shape(), train_set.classes().len())?,
        };
        if let Some(LayersSpec { groups: Groups::Auto(_), .. }) = job.layers {
            planner::resolve(&mut job, &spec, n_peers)?;
        }
        let data = [fingerprint::of_data(train_set.as_ref())?, fingerprint::of_data(test_set.as_ref())?];
        let network = build_network(&job.model, &spec)?;
        let learning = Arc::new(Learning::new(&job, network, train_set, test_set)?);
        let setup = Arc::new(Setup::with_layers(&job, learning.clone(), &spec)?);
        let package = JobPackage { job: toml::to_string(&as_it_travels(&job))?, model: toml::to_string(&spec)?, data };
        Ok(Self { job, spec, learning, setup, package })
    }

    /// Whether so many peers can do the job.
    pub(crate) fn check(&self, n_peers: usize) -> anyhow::Result<()> {
        self.setup.training().sampler.check(self.setup.n_replicas(n_peers))?;
        Ok(())
    }

    /// What others may cost a peer of this job.
    pub(crate) fn limits(&self) -> Limits {
        Limits::for_vectors(self.n_bytes())
    }

    /// How long the vectors are that peers exchange.
    pub(crate) fn n_bytes(&self) -> usize {
        4 * self.learning.n_values()
    }

    /// What came from another machine, with the data that this one has.
    pub(crate) fn from_package(
        package: &JobPackage,
        data: Option<&str>,
        threads: Option<usize>,
    ) -> anyhow::Result<Self> {
        let mut job = Job::parse("the swarm's job", &package.job, &[])?;
        if let Some(argument) = data {
            job.data = data_spec(argument, job.data)?;
        } else if job.data.name.is_none() {
            bail!(
                "this swarm's data set has no name by which it could be found here; say where it is with --data PATH"
            );
        }
        job.threads = n_threads(threads.unwrap_or(0));
        let spec: ModelSpec = read_toml("the swarm's model", &package.model)?;
        // Whoever began the swarm has planned it.
        let prepared = Self::open(job, Some(spec), 1)?;
        if prepared.package.data != package.data {
            bail!(
                "the data here are not those of the swarm: their contents differ; get the same data set, or say with \
                 --data where it is"
            );
        }
        Ok(Self { package: package.clone(), ..prepared })
    }
}

/// The job without what is only this machine's.
fn as_it_travels(job: &Job) -> Job {
    let mut job = job.clone();
    job.threads = 0;
    job.data.path = None::<PathBuf>;
    job
}
