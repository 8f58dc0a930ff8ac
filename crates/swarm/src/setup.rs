//! What all peers of a swarm share: the task, the curriculum, and how steps are taken.

use std::sync::{Arc, OnceLock};

use nettorrent_engine::collapse::{Collapse, size};
use nettorrent_engine::data::curriculum::{Curriculum, CurriculumError, Rules, Warmup};
use nettorrent_engine::data::rounds::RoundRule;
use nettorrent_engine::guessing::Guessing;
use nettorrent_engine::job::{EvaluateSpec, Job, SwarmSpec, Work};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::ModelSpec;
use nettorrent_engine::optimizer::OptimizerSpec;
use nettorrent_engine::schedule::ScheduleSpec;
use nettorrent_engine::task::Task;
use toml::Table;

use crate::layers::LayerNetwork;
use crate::layers::plan::PlanError;
use crate::strategy::{OnePeer, OptionError, Spec, Strategy, find};

/// What all peers of a swarm share. It never changes, so those in one process hold the same one.
pub struct Setup {
    /// What is learnt.
    pub task: Arc<dyn Task>,
    /// Who trains which samples.
    pub curriculum: Arc<Curriculum>,
    /// Where all randomness comes from.
    pub seed: u64,
    /// How often to go through the data.
    pub epochs: u64,
    /// How gradients become steps.
    pub optimizer: OptimizerSpec,
    /// The learning rate's course.
    pub schedule: ScheduleSpec,
    /// How often to test within epochs.
    pub evaluate: EvaluateSpec,
    /// How peers train together.
    pub swarm: SwarmSpec,
    /// Who holds which part of the network, if nobody holds it whole.
    pub layers: Option<Arc<LayerNetwork>>,
    strategy: &'static Spec,
    guessing: Guessing,
    /// Known once somebody has asked.
    collapse: OnceLock<Collapse>,
}

/// After how many rounds work is dealt out anew, where peers exchange after every batch: often enough to follow a peer that turns
/// slow, seldom enough not to hold up those who are a few rounds ahead of others.
const REDEAL: u32 = 4;

/// Why a job cannot be done by a swarm.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The strategy or its options.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The split or the batches.
    #[error(transparent)]
    Curriculum(#[from] CurriculumError),
    /// The plan of the layers.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// When to test, where blocks cannot agree on it.
    #[error(
        "evaluate.every_seconds cannot be combined with layers: clocks differ from block to block; set evaluate.every_batches"
    )]
    Seconds,
    /// A strategy that cannot be combined with layers.
    #[error(
        "{strategy} cannot be combined with layers: it counts who answered in time, and that may differ from block to block; \
         choose another strategy"
    )]
    Strategy {
        /// Its name.
        strategy: String,
    },
}

impl Setup {
    /// The setup of a job.
    pub fn new(job: &Job, task: Arc<dyn Task>) -> Result<Self, SetupError> {
        let strategy = find(&job.swarm.strategy)?;
        let built = (strategy.build)(&job.swarm.options)?;
        let curriculum = Arc::new(Curriculum::new(task.labels().into(), rules(job, &*built, task.labels().len())));
        let guessing = Guessing::new(task.labels());
        Ok(Self {
            task,
            curriculum,
            seed: job.seed,
            epochs: job.epochs,
            optimizer: job.optimizer.clone(),
            schedule: job.schedule.clone(),
            evaluate: job.evaluate.clone(),
            swarm: job.swarm.clone(),
            layers: None,
            strategy,
            guessing,
            collapse: OnceLock::new(),
        })
    }

    /// The setup of a job whose network is shared out by its layers, if the job says so.
    pub fn with_layers(job: &Job, learning: Arc<Learning>, spec: &ModelSpec) -> Result<Self, SetupError> {
        let whole = Self::new(job, learning.clone())?;
        let Some(layers) = &job.layers else { return Ok(whole) };
        if job.evaluate.interval().is_some() {
            return Err(SetupError::Seconds);
        }
        if !whole.strategy().settles_all() {
            return Err(SetupError::Strategy { strategy: whole.swarm.strategy });
        }
        let save_every = job.checkpoint.every;
        let network = LayerNetwork::new(&whole, layers, learning, spec, save_every)?;
        Ok(Self { layers: Some(Arc::new(network)), ..whole })
    }

    /// The same for those who hold a part of the network.
    pub(crate) fn for_part(&self, task: Arc<dyn Task>) -> Self {
        Self {
            task,
            curriculum: self.curriculum.clone(),
            seed: self.seed,
            epochs: self.epochs,
            optimizer: self.optimizer.clone(),
            schedule: self.schedule.clone(),
            evaluate: self.evaluate.clone(),
            swarm: self.swarm.clone(),
            layers: None,
            strategy: self.strategy,
            guessing: self.guessing,
            collapse: OnceLock::new(),
        }
    }

    /// Among how many the samples are shared out when there are so many peers: where layers are, among pipelines.
    pub fn n_replicas(&self, n_peers: usize) -> usize {
        self.layers.as_ref().map_or(n_peers, |network| network.n_pipelines(n_peers))
    }

    /// What guessing comes to.
    pub(crate) fn guessing(&self) -> Guessing {
        self.guessing
    }

    /// What tells models that are broken from those that have not begun to learn.
    pub(crate) fn collapse(&self) -> &Collapse {
        self.collapse.get_or_init(|| {
            let initial = self.task.init(self.seed);
            Collapse::new(self.guessing, size(&initial[..self.task.n_params()]))
        })
    }

    /// Whether in this epoch the job's own strategy has not taken over yet.
    pub(crate) fn is_warming_up(&self, epoch: u64) -> bool {
        matches!(self.swarm.warmup_rule().at(epoch), Some(Warmup::Dense | Warmup::OnePeer))
    }

    /// A strategy for one peer in this epoch.
    pub(crate) fn strategy_at(&self, epoch: u64) -> Box<dyn Strategy> {
        match self.swarm.warmup_rule().at(epoch) {
            Some(Warmup::Dense) => {
                let usual = find(&SwarmSpec::default().strategy).expect("the usual strategy is in the list");
                (usual.build)(&Table::new()).expect("it needs no options")
            }
            Some(Warmup::OnePeer) => Box::new(OnePeer::default()),
            Some(Warmup::AllData) | None => self.strategy(),
        }
    }

    /// The job's strategy for one peer.
    pub fn strategy(&self) -> Box<dyn Strategy> {
        (self.strategy.build)(&self.swarm.options).expect("the options were checked when the setup was made")
    }
}

/// How a job's samples are shared out and trained.
fn rules(job: &Job, strategy: &dyn Strategy, n_train: usize) -> Rules {
    // Blocks of a layer network have to agree on who trains what, without a word.
    let follows_speed = job.swarm.work == Work::Speed && job.layers.is_none() && strategy.follows_speed();
    let n_held_out = strategy.n_held_out(n_train);
    let redeal = if follows_speed { (f64::from(REDEAL) * (1.0 + strategy.delay())) as u32 } else { 0 };
    Rules {
        split: job.swarm.split,
        resplit: job.swarm.resplit,
        batches: job.batch_rule(),
        rounds: RoundRule { length: strategy.turn().length, scale: job.swarm.scale, redeal, overhead: n_held_out / 3 },
        warmup: job.swarm.warmup_rule(),
        n_held_out,
        seed: job.seed,
    }
}
