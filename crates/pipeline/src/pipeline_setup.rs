//! What all peers share that hold a network in pipelines: the plan, the parts, and how replicas of each part train together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::job::{PipelineSpec, Stages};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::measure::Measure;
use nettorrent_engine::model::{Layout, ModelSpec, Part};
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::partition::block;
use nettorrent_engine::rng::Rng;
use nettorrent_engine::task::{Task, Worker};
use nettorrent_engine::train_error::TrainError;

use nettorrent_swarm::{Place, ReplicaSetup, State, StateVersion};

use crate::origin::Origin;
use crate::plan::{Coordinates, PipelinePlan, PlanError};

/// What all peers share that hold a network in pipelines. It never changes.
pub struct PipelineSetup {
    /// Who does what in a pipeline.
    pub plan: PipelinePlan,
    /// The network with its data.
    pub learning: Arc<Learning>,
    /// How many batches may be on their way at a time.
    pub in_flight: u32,
    /// After how many rounds snapshots are taken.
    pub snapshot_every: u32,
    /// Whether neighbours keep copies of blocks that nobody else has.
    pub copies: bool,
    /// After how many epochs the whole network is saved; 0 for only at the end.
    pub save_every: u64,
    epochs: u64,
    slots: Vec<Slot>,
    n_multiplications: usize,
}

/// What is known of a slot.
struct Slot {
    at: Coordinates,
    part: Arc<Part>,
    replica: Arc<ReplicaSetup>,
}

impl PipelineSetup {
    pub(crate) fn new(
        whole: &ReplicaSetup,
        pipeline: &PipelineSpec,
        learning: Arc<Learning>,
        spec: &ModelSpec,
        save_every: u64,
    ) -> Result<Self, PlanError> {
        let Stages::Given(stages) = &pipeline.stages else { return Err(PlanError::Unplanned) };
        let plan = PipelinePlan::new(spec, stages)?;
        let labels: Arc<[u32]> = learning.labels().into();
        let mut slots: Vec<Slot> = Vec::with_capacity(plan.n_slots());
        for slot in 0..plan.n_slots() {
            let at = plan.coordinates(slot);
            // Batch shards of the same tensor shard hold the same part.
            if let Some(Slot { part, replica, .. }) = slots.get(plan.slot(Coordinates { batch_shard: 0, ..at })) {
                let (part, replica) = (part.clone(), replica.clone());
                slots.push(Slot { at, part, replica });
                continue;
            }
            let part = Arc::new(Part::new(spec, &plan.part(slot))?);
            let (layout, labels, n_test) = (part.layout(), labels.clone(), learning.n_test());
            let (measure, metrics) = (learning.measure(), learning.metrics().to_vec());
            let task = PartTask { part: part.clone(), layout, labels, n_test, measure, metrics };
            let replica = whole.for_part(Arc::new(task));
            slots.push(Slot { at, part, replica: Arc::new(replica) });
        }
        let n_multiplications = learning.network().summary().iter().map(|layer| layer.n_multiplications).sum();
        // Where there is one stage, a batch begun early would only be trained with older parameters.
        let in_flight = if plan.stages.len() > 1 { pipeline.in_flight.max(1) as u32 } else { 1 };
        Ok(Self {
            plan,
            learning,
            in_flight,
            snapshot_every: pipeline.snapshot_every,
            copies: pipeline.copies,
            save_every,
            epochs: whole.training.epochs,
            slots,
            n_multiplications,
        })
    }

    /// How many slots a pipeline has.
    pub fn n_slots(&self) -> usize {
        self.slots.len()
    }

    /// How many pipelines so many peers make. If they are fewer than a pipeline has slots, some have several.
    pub fn n_pipelines(&self, n_peers: usize) -> usize {
        (n_peers / self.n_slots()).max(1)
    }

    /// How many epochs the run has.
    pub(crate) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// The part of the network that a slot holds.
    pub fn part(&self, slot: usize) -> &Arc<Part> {
        &self.slots[slot].part
    }

    /// What a slot's replicas begin with.
    pub(crate) fn replica(&self, slot: usize) -> &Arc<ReplicaSetup> {
        &self.slots[slot].replica
    }

    pub(crate) fn at(&self, slot: usize) -> Coordinates {
        self.slots[slot].at
    }

    /// Which block a slot holds: those of the batch shards of a tensor shard are the same, and named by the first batch shard's slot.
    pub(crate) fn block(&self, slot: usize) -> usize {
        self.plan.slot(Coordinates { batch_shard: 0, ..self.at(slot) })
    }

    /// The block of each slot.
    pub(crate) fn blocks(&self) -> Vec<usize> {
        (0..self.n_slots()).map(|slot| self.block(slot)).collect()
    }

    /// The slots of a stage, batch shard by batch shard.
    pub(crate) fn stage(&self, stage: usize) -> Range<usize> {
        let first = self.plan.slot(Coordinates { stage, batch_shard: 0, tensor_shard: 0 });
        let grid = &self.plan.stages[stage];
        first..first + grid.batch_shards * grid.tensor_shards
    }

    /// Which samples of a batch of `n` a slot handles.
    pub(crate) fn samples(&self, slot: usize, n: usize) -> Range<usize> {
        let Coordinates { stage, batch_shard, .. } = self.at(slot);
        block(batch_shard, self.plan.stages[stage].batch_shards, n)
    }

    pub(crate) fn is_last(&self, stage: usize) -> bool {
        stage + 1 == self.plan.stages.len()
    }

    /// The slots whose blocks make up the network: of each part the first batch shard's.
    pub(crate) fn whole(&self) -> impl Iterator<Item = usize> {
        (0..self.n_slots()).filter(|&slot| self.block(slot) == slot)
    }

    /// What share of a sample's computation a slot has.
    pub(crate) fn share(&self, slot: usize) -> f64 {
        self.part(slot).n_multiplications() as f64 / self.n_multiplications.max(1) as f64
    }

    /// Whether a block that is lost is nowhere else but in copies.
    pub(crate) fn needs_copies(&self, slot: usize, n_pipelines: usize) -> bool {
        self.copies && n_pipelines == 1 && self.plan.stages[self.at(slot).stage].batch_shards == 1
    }

    /// Blocks that go on from a whole state.
    pub fn origin(self: &Arc<Self>, whole: State) -> Origin {
        let (setup, version) = (self.clone(), whole.place.version);
        Origin { version, block: Arc::new(move |slot, _| Ok(setup.share_of(slot, &whole))), newer: None }
    }

    /// Blocks as the job's seed gives them: nobody ever holds the whole.
    pub fn fresh(self: &Arc<Self>) -> Origin {
        let setup = self.clone();
        let block = move |slot: usize, _: &Part| {
            let mut state = State::fresh(&setup.replica(slot).training);
            // How far they are is the same for all blocks, whatever their numbers.
            state.place = Place::default();
            Ok(state)
        };
        Origin { version: StateVersion::default(), block: Arc::new(block), newer: None }
    }

    fn share_of(&self, slot: usize, whole: &State) -> State {
        let (part, replica) = (self.part(slot), self.replica(slot));
        let mut optimizer = Optimizer::new(replica.training.optimizer.clone(), part.n_params());
        let (n_steps, vectors) = whole.optimizer.state();
        let vectors: BTreeMap<&str, &[f32]> = vectors.collect();
        let share = |name: &str| vectors.get(name).map(|vector| part.take_params(vector));
        assert!(optimizer.restore(n_steps, share), "both optimizers are the job's");
        let values = Arc::new(part.take(&whole.values));
        let strategy_state = whole.strategy_state.iter().map(|vector| Arc::new(part.take(vector))).collect();
        State::new(values, optimizer, whole.place.clone(), strategy_state)
    }
}

/// A part of the network as its replicas see it. What they want computed is computed by the pipeline.
struct PartTask {
    part: Arc<Part>,
    layout: Layout,
    labels: Arc<[u32]>,
    n_test: usize,
    measure: Measure,
    metrics: Vec<String>,
}

impl Task for PartTask {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn init(&self, seed: u64) -> Vec<f32> {
        self.part.init(&mut Rng::stream(seed, "init", 0))
    }

    fn labels(&self) -> &[u32] {
        &self.labels
    }

    fn n_test(&self) -> usize {
        self.n_test
    }

    fn measure(&self) -> Measure {
        self.measure
    }

    fn metrics(&self) -> &[String] {
        &self.metrics
    }

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Err(TrainError::Mismatch("a part of a network is computed by the worker of the whole".into()))
    }
}
