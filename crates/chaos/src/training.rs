//! What the peers of a world train: small tasks, one for replicas and one for pipelines.

use std::sync::Arc;
use std::time::Duration;

use nettorrent_engine::backend::Opened;
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::learning::Learning;
use nettorrent_session::Training;
use nettorrent_sim::{Toy, made_up};
use nettorrent_swarm::strategies::{STRATEGIES, find};
use toml::Table;

/// A silent peer is given up after this.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// Epochs of all jobs.
pub const EPOCHS: u64 = 6;

/// How samples and layers are shared among peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// How replicas exchange.
    pub strategy: &'static str,
    /// The job's stages, if no peer holds the network whole.
    pub stages: Option<&'static str>,
}

/// Plans for four peers: stages with a shared layer, and with shared samples.
const STAGES: [&str; 2] =
    ["[{layers=3,tensor_shards=2},{layers=2},{layers=1}]", "[{layers=5},{layers=1,batch_shards=3}]"];

impl Parallelism {
    /// One after the other of all strategies, and of those with pipelines.
    pub fn of(seed: u64) -> Self {
        let n_strategies = STRATEGIES.len() as u64;
        match seed % (n_strategies + STAGES.len() as u64) {
            k if k < n_strategies => Self { strategy: STRATEGIES[k as usize].name, stages: None },
            k => Self { strategy: "ring-all-reduce", stages: Some(STAGES[(k - n_strategies) as usize]) },
        }
    }

    /// What peers share, and how many samples they have trained when all is done.
    ///
    /// # Panics
    /// If there is no such job.
    pub fn training(&self, seed: u64) -> (Arc<Training>, u64) {
        let training = match self.stages {
            None => self.replicas(seed),
            Some(stages) => self.pipelines(seed, stages),
        };
        let n_train = training.task.labels().len();
        let strategy = find(self.strategy).and_then(|spec| (spec.build)(&Table::new())).expect("it has defaults");
        (Arc::new(training), EPOCHS * (n_train - strategy.n_held_out(n_train)) as u64)
    }

    fn replicas(&self, seed: u64) -> Training {
        Training::custom(Arc::new(Toy::new(seed)), self.job(seed, &[])).expect("strategies have defaults")
    }

    fn pipelines(&self, seed: u64, stages: &str) -> Training {
        let settings =
            ["model=mlp:12,9".to_owned(), format!("pipeline.stages={stages}"), "pipeline.snapshot_every=4".to_owned()];
        let job = self.job(seed, &settings);
        let spec = job.model_spec(&[6], 3).expect("a model of the zoo");
        let network = build_network(&job.model, &spec).expect("a model of the zoo");
        let set = |n, seed| Box::new(made_up(&[6], 3, n, seed));
        let learning = Arc::new(Learning::new(&job, network, set(120, 1), set(60, 2)).expect("samples of its shape"));
        let opened = Opened { task: learning.clone(), parts: Some(learning) };
        Training::opened(opened, Some(spec), job).expect("stages that fit the model")
    }

    fn job(&self, seed: u64, settings: &[String]) -> Job {
        let mut job = Job::parse("a world's job", "", settings).expect("settings of a job");
        (job.epochs, job.batch, job.threads, job.seed) = (EPOCHS, 8, 1, seed);
        job.swarm.strategy = self.strategy.to_owned();
        job.swarm.deadline = DEADLINE.as_secs_f64();
        job
    }
}
