//! What all peers of a layer network share: the plan, the parts, and how replicas of each part train together.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::job::{Groups, LayersSpec};
use nettorrent_engine::learning::Learning;
use nettorrent_engine::model::{Layout, ModelSpec, Part, block};
use nettorrent_engine::optimizer::Optimizer;
use nettorrent_engine::rng::Rng;
use nettorrent_engine::task::{Task, Worker};
use nettorrent_engine::train_error::TrainError;

use super::origin::Origin;
use super::plan::{Coordinates, LayerPlan, PlanError};
use crate::place::{Place, Standing, State};
use crate::replica_setup::ReplicaSetup;

/// What all peers of a layer network share. It never changes.
pub struct LayerNetwork {
    /// Who does what in a pipeline.
    pub plan: LayerPlan,
    /// The network with its data.
    pub learning: Arc<Learning>,
    /// How many batches may be on their way at a time.
    pub in_flight: u32,
    /// After how many rounds blocks are marked.
    pub mark_every: u32,
    /// Whether neighbours keep copies of blocks that nobody else has.
    pub copies: bool,
    /// After how many epochs the whole network is saved; 0 for only at the end.
    pub save_every: u64,
    slots: Vec<Slot>,
    n_multiplications: usize,
}

/// What is known of a slot.
struct Slot {
    at: Coordinates,
    part: Arc<Part>,
    setup: Arc<ReplicaSetup>,
}

impl LayerNetwork {
    pub(crate) fn new(
        whole: &ReplicaSetup,
        layers: &LayersSpec,
        learning: Arc<Learning>,
        spec: &ModelSpec,
        save_every: u64,
    ) -> Result<Self, PlanError> {
        let Groups::Given(groups) = &layers.groups else { return Err(PlanError::Unplanned) };
        let plan = LayerPlan::new(spec, groups)?;
        let labels: Arc<[u32]> = learning.labels().into();
        let mut slots: Vec<Slot> = Vec::with_capacity(plan.n_slots());
        for slot in 0..plan.n_slots() {
            let at = plan.coordinates(slot);
            // Rows of the same column hold the same part.
            if let Some(Slot { part, setup, .. }) = slots.get(plan.slot(Coordinates { row: 0, ..at })) {
                let (part, setup) = (part.clone(), setup.clone());
                slots.push(Slot { at, part, setup });
                continue;
            }
            let part = Arc::new(Part::new(spec, &plan.part(slot))?);
            let (layout, labels, n_test) = (part.layout(), labels.clone(), learning.n_test());
            let setup = whole.for_part(Arc::new(PartTask { part: part.clone(), layout, labels, n_test }));
            slots.push(Slot { at, part, setup: Arc::new(setup) });
        }
        let n_multiplications = learning.network().summary().iter().map(|layer| layer.n_multiplications).sum();
        // Where there is one group, a batch begun early would only be trained with older parameters.
        let in_flight = if plan.groups.len() > 1 { layers.in_flight.max(1) as u32 } else { 1 };
        Ok(Self {
            plan,
            learning,
            in_flight,
            mark_every: layers.mark_every,
            copies: layers.copies,
            save_every,
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

    /// The part of the network that a slot holds.
    pub fn part(&self, slot: usize) -> &Arc<Part> {
        &self.slots[slot].part
    }

    pub(super) fn setup(&self, slot: usize) -> &Arc<ReplicaSetup> {
        &self.slots[slot].setup
    }

    pub(super) fn at(&self, slot: usize) -> Coordinates {
        self.slots[slot].at
    }

    /// Which block a slot holds: those of the rows of a column are the same, and named by the first row's slot.
    pub(super) fn block(&self, slot: usize) -> usize {
        self.plan.slot(Coordinates { row: 0, ..self.at(slot) })
    }

    /// The block of each slot.
    pub(super) fn blocks(&self) -> Vec<usize> {
        (0..self.n_slots()).map(|slot| self.block(slot)).collect()
    }

    /// The slots of a group, row by row.
    pub(super) fn group(&self, group: usize) -> Range<usize> {
        let first = self.plan.slot(Coordinates { group, row: 0, column: 0 });
        let grid = &self.plan.groups[group];
        first..first + grid.rows * grid.columns
    }

    /// Which samples of a batch of `n` a slot handles.
    pub(super) fn rows(&self, slot: usize, n: usize) -> Range<usize> {
        let Coordinates { group, row, .. } = self.at(slot);
        block(row, self.plan.groups[group].rows, n)
    }

    pub(super) fn is_last(&self, group: usize) -> bool {
        group + 1 == self.plan.groups.len()
    }

    /// The slots whose blocks make up the network: of each part the first row's.
    pub(super) fn whole(&self) -> impl Iterator<Item = usize> {
        (0..self.n_slots()).filter(|&slot| self.block(slot) == slot)
    }

    /// What share of a sample's computation a slot has.
    pub(super) fn share(&self, slot: usize) -> f64 {
        self.part(slot).n_multiplications() as f64 / self.n_multiplications.max(1) as f64
    }

    /// Whether a block that is lost is nowhere else but in copies.
    pub(super) fn needs_copies(&self, slot: usize, n_pipelines: usize) -> bool {
        self.copies && n_pipelines == 1 && self.plan.groups[self.at(slot).group].rows == 1
    }

    /// Blocks that go on from a whole state.
    pub fn origin(self: &Arc<Self>, whole: State) -> Origin {
        let (network, standing) = (self.clone(), whole.place.standing);
        Origin { standing, block: Arc::new(move |slot, _| Ok(network.share_of(slot, &whole))) }
    }

    /// Blocks as the job's seed gives them: nobody ever holds the whole.
    pub fn fresh(self: &Arc<Self>) -> Origin {
        let network = self.clone();
        let block = move |slot: usize, _: &Part| {
            let mut state = State::fresh(&network.setup(slot).training);
            // How far they are is the same for all blocks, whatever their numbers.
            state.place = Place::default();
            Ok(state)
        };
        Origin { standing: Standing::default(), block: Arc::new(block) }
    }

    fn share_of(&self, slot: usize, whole: &State) -> State {
        let (part, setup) = (self.part(slot), self.setup(slot));
        let mut optimizer = Optimizer::new(setup.training.optimizer.clone(), part.n_params());
        let (n_steps, memories) = whole.optimizer.state();
        let memories: BTreeMap<&str, &[f32]> = memories.collect();
        let share = |name: &str| memories.get(name).map(|memory| part.take_params(memory));
        assert!(optimizer.restore(n_steps, share), "both optimizers are the job's");
        let values = Arc::new(part.take(&whole.values));
        let memories = whole.memories.iter().map(|memory| part.take(memory)).collect();
        State { values, optimizer, place: whole.place.clone(), memories }
    }
}

/// A part of the network as its replicas see it. What they want computed is computed by the pipeline.
struct PartTask {
    part: Arc<Part>,
    layout: Layout,
    labels: Arc<[u32]>,
    n_test: usize,
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

    fn worker(self: Arc<Self>, _: usize) -> Result<Box<dyn Worker>, TrainError> {
        Err(TrainError::Mismatch("a part of a network is computed by the worker of the whole".into()))
    }
}
