//! How long a plan takes and how much memory; what is taken to be so stands at the head of the planner.

use serde::Serialize;

use super::profile::{Profile, Weight};
use super::question::Question;
use crate::plan::Stage;

/// A number takes so many bytes.
const NUMBER: f64 = 4.0;
/// The forward pass, and both gradients on the backward pass.
const PASSES: f64 = 3.0;

/// What is expected of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// How many pipelines there are side by side.
    pub n_replicas: usize,
    /// How many peers have no place.
    pub n_spare: usize,
    /// From one batch's end to the next one's, in a replica.
    pub batch_s: f64,
    /// How long one batch is on its way.
    pub journey_s: f64,
    /// Samples a second, all replicas together.
    pub samples_per_s: f64,
    /// What the peer takes that takes most.
    pub memory_bytes: u64,
    /// Of each stage, from the first layers to the last.
    pub stages: Vec<StageEstimate>,
}

/// What is expected of the busiest peer of a stage, for each batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageEstimate {
    /// Trained numbers that it holds.
    pub n_params: u64,
    /// What it takes of its memory.
    pub memory_bytes: u64,
    /// What it sends to the stages above; of the last stage, to its other tensor shards.
    pub up_bytes: u64,
    /// What it sends to the stage below.
    pub down_bytes: u64,
    /// What it sends to be summed over batch shards and replicas.
    pub sum_bytes: u64,
    /// How long it computes.
    pub compute_s: f64,
    /// How long its link is busy.
    pub exchange_s: f64,
}

/// What a peer of a stage has to do for a batch, whatever its neighbours are but for the tensor shards above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    n_params: f64,
    pub(super) memory: f64,
    pub(super) up: f64,
    pub(super) down: f64,
    sums: f64,
    /// What it receives from below.
    inflow: f64,
    multiplications: f64,
    n_ring_steps: f64,
}

/// What surrounds a stage.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings {
    /// Whether it has the first layers.
    pub(super) is_first: bool,
    /// Columns of the stage above, if there is one.
    pub(super) tensor_shards_above: Option<usize>,
    pub(super) n_replicas: usize,
}

impl Surroundings {
    /// Whether all layers are in this one stage.
    fn is_only(self) -> bool {
        self.is_first && self.tensor_shards_above.is_none()
    }
}

impl Load {
    pub(super) fn new(question: &Question<'_>, weight: &Weight, stage: &Stage, around: Surroundings) -> Self {
        let Surroundings { is_first, tensor_shards_above, n_replicas } = around;
        let Stage { batch_shards, tensor_shards, .. } = stage;
        let samples = question.replica_batch(n_replicas).div_ceil(*batch_shards) as f64;
        let share = tensor_share(question, stage);
        let n_values = weight.n_values as f64 * share;
        let output = samples * share * weight.output_len as f64;
        let input = samples * weight.input_len as f64;
        let inflow = if is_first { 0.0 } else { NUMBER * input };
        let ring = |n: usize| 2.0 * (n - 1) as f64 / n as f64;
        let remembered = 1.0 + question.n_state_vectors as f64;
        let is_alone = *batch_shards == 1 && n_replicas == 1;
        let n_marks = if question.copies && is_alone { 2.0 } else { 1.0 };
        let kept = samples * weight.n_kept as f64 * share;
        let in_flight = question.in_flight(if around.is_only() { 1 } else { 2 }) as f64;
        Self {
            n_params: (weight.n_params as f64 * share).ceil(),
            memory: NUMBER * (n_values * (1.0 + remembered * (1.0 + n_marks)) + in_flight * (input + kept) + kept),
            up: NUMBER * output * tensor_shards_above.unwrap_or(tensor_shards - 1) as f64,
            down: inflow,
            sums: NUMBER * n_values * (ring(*batch_shards) + ring(n_replicas)),
            inflow,
            multiplications: PASSES * samples * share * weight.n_multiplications as f64,
            n_ring_steps: 2.0 * (batch_shards - 1 + n_replicas - 1) as f64,
        }
    }

    pub(super) fn compute_s(&self, question: &Question<'_>, speed: f64) -> f64 {
        self.multiplications / (speed * question.multiplications_per_s)
    }

    pub(super) fn exchange_s(&self, question: &Question<'_>) -> f64 {
        seconds(question, self.up + self.down + self.sums)
    }

    pub(super) fn sums_s(&self, question: &Question<'_>) -> f64 {
        seconds(question, self.sums) + self.n_ring_steps * question.link.delay.as_secs_f64()
    }
}

/// The largest tensor shard's share of the outputs.
fn tensor_share(question: &Question<'_>, stage: &Stage) -> f64 {
    if stage.tensor_shards == 1 {
        return 1.0;
    }
    let n_outputs = super::profile::most_tensor_shards(question.spec, &stage.layers).max(1);
    n_outputs.div_ceil(stage.tensor_shards) as f64 / n_outputs as f64
}

/// How long so many bytes take to leave.
pub(super) fn seconds(question: &Question<'_>, n_bytes: f64) -> f64 {
    question.link.bits_per_second.map_or(0.0, |rate| 8.0 * n_bytes / rate as f64)
}

/// How fast the slowest of those is who hold these slots in all replicas.
pub(super) fn slowest(question: &Question<'_>, slots: std::ops::Range<usize>, n_slots: usize) -> f64 {
    if question.speeds.is_empty() {
        return 1.0;
    }
    let n_replicas = question.n_peers / n_slots.max(1);
    let peers = (0..n_replicas).flat_map(|replica| slots.clone().map(move |slot| replica * n_slots + slot));
    peers.map(|peer| question.speed(peer)).fold(f64::INFINITY, f64::min)
}

/// What is expected of a plan whose slots are at most as many as peers.
pub(super) fn of_plan(question: &Question<'_>, profile: &Profile, stages: &[Stage]) -> Estimate {
    let n_slots: usize = stages.iter().map(|stage| stage.batch_shards * stage.tensor_shards).sum();
    let n_replicas = question.n_peers / n_slots;
    let delay = question.link.delay.as_secs_f64();
    let (mut journey_s, mut sums_s, mut batch_s, mut first_slot) = (0.0, 0.0_f64, 0.0_f64, 0);
    let mut estimates = Vec::with_capacity(stages.len());
    let mut sent_up = 0.0;
    for (index, stage) in stages.iter().enumerate() {
        let tensor_shards_above = stages.get(index + 1).map(|above| above.tensor_shards);
        let around = Surroundings { is_first: index == 0, tensor_shards_above, n_replicas };
        let load = Load::new(question, &profile.weight(&stage.layers), stage, around);
        let slots = first_slot..first_slot + stage.batch_shards * stage.tensor_shards;
        first_slot = slots.end;
        let compute_s = load.compute_s(question, slowest(question, slots, n_slots));
        let exchange_s = load.exchange_s(question);
        if index > 0 {
            // What goes up comes down again, and both ways the busier end counts.
            journey_s += 2.0 * (seconds(question, load.inflow.max(sent_up)) + delay);
        }
        if tensor_shards_above.is_none() && stage.tensor_shards > 1 {
            journey_s += seconds(question, load.up) + delay;
        }
        sent_up = load.up;
        journey_s += compute_s;
        sums_s = sums_s.max(load.sums_s(question));
        batch_s = batch_s.max(compute_s).max(exchange_s);
        estimates.push(StageEstimate {
            n_params: load.n_params as u64,
            memory_bytes: load.memory.ceil() as u64,
            up_bytes: load.up.ceil() as u64,
            down_bytes: load.down.ceil() as u64,
            sum_bytes: load.sums.ceil() as u64,
            compute_s,
            exchange_s,
        });
    }
    journey_s += sums_s;
    let batch_s = batch_s.max(journey_s / question.in_flight(stages.len()) as f64);
    Estimate {
        n_replicas,
        n_spare: question.n_peers - n_replicas * n_slots,
        batch_s,
        journey_s,
        samples_per_s: question.scale.step_samples(question.batch, n_replicas) as f64 / batch_s.max(1e-12),
        memory_bytes: estimates.iter().map(|stage| stage.memory_bytes).max().unwrap_or(0),
        stages: estimates,
    }
}
