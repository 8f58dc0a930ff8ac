//! Small tasks for pipelines: a network of the zoo, and samples that are made up.

use std::sync::Arc;

use nettorrent_engine::backend::Opened;
use nettorrent_engine::job::{Job, build_network};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::ModelSpec;
use nettorrent_pipeline::{PipelineError, PipelineSetup};
use nettorrent_sim::{Outcome, Scenario, Simulation, made_up};
use nettorrent_swarm::{Setup, State};

/// A job with its network and its samples.
pub(crate) struct Pipeline {
    pub(crate) job: Job,
    pub(crate) learning: Arc<Learning>,
    pub(crate) setup: Arc<Setup>,
    pub(crate) pipelines: Arc<PipelineSetup>,
}

impl Pipeline {
    /// The job of these settings, for samples of this shape.
    pub(crate) fn new(settings: &[&str], samples: (&[usize], usize), n_train: usize) -> Self {
        Self::try_new(settings, samples, n_train).unwrap()
    }

    /// The same, if there can be such a job.
    pub(crate) fn try_new(
        settings: &[&str],
        (shape, n_classes): (&[usize], usize),
        n_train: usize,
    ) -> Result<Self, PipelineError> {
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let job = Job::parse("the test's job", "optimizer.lr = 0.05\noptimizer.momentum = 0.5\n", &settings).unwrap();
        let spec = job.model_spec(shape, n_classes).unwrap();
        Self::try_of_model(job, &spec, n_train)
    }

    pub(crate) fn of_model(job: Job, spec: &ModelSpec, n_train: usize) -> Self {
        Self::try_of_model(job, spec, n_train).unwrap()
    }

    fn try_of_model(job: Job, spec: &ModelSpec, n_train: usize) -> Result<Self, PipelineError> {
        let network = build_network(&job.model, spec).unwrap();
        let n_classes = network.n_classes();
        let set = |n, seed| Box::new(made_up(&spec.input, n_classes, n, seed));
        let learning = Arc::new(Learning::new(&job, network, set(n_train, 1), set(n_train / 2, 2)).unwrap());
        let opened = Opened { task: learning.clone(), parts: Some(learning.clone()) };
        let (setup, pipelines) = nettorrent_pipeline::setup(&job, &opened, Some(spec))?;
        let pipelines = pipelines.expect("a job with layers");
        Ok(Self { job, learning, setup: Arc::new(setup), pipelines })
    }

    /// The same task for machines that each hold the whole network.
    pub(crate) fn whole(&self) -> Arc<Setup> {
        Arc::new(Setup::new(&self.job, self.learning.clone()).unwrap())
    }

    pub(crate) fn run(&self, n_peers: usize, scenario: Scenario) -> Outcome {
        let outcome = Simulation::new(self.setup.clone(), n_peers, scenario).unwrap().run();
        outcome.unwrap_or_else(|error| panic!("{:?}: {error}", self.job.pipeline))
    }

    pub(crate) fn n_values(&self) -> usize {
        self.learning.network().n_values()
    }

    /// What so many machines learn that each hold the whole network.
    pub(crate) fn learnt_whole(&self, n_peers: usize) -> Vec<f32> {
        let outcome = Simulation::new(self.whole(), n_peers, Scenario::default()).unwrap().run().unwrap();
        outcome.peers[0].values.to_vec()
    }

    pub(crate) fn init(&self) -> Vec<f32> {
        State::fresh(self.whole().training()).values.to_vec()
    }
}

/// How far two vectors are apart, beside how far the first has come from its beginning.
pub(crate) fn difference(a: &[f32], b: &[f32], beginning: &[f32]) -> f64 {
    let distance = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum() };
    (distance(a, b) / distance(a, beginning)).sqrt()
}
