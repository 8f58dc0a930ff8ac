//! The search for a plan: from the last layers down, the best ways to hold all layers above each cut.
//!
//! For every number of replicas, a table holds for each cut, each number of tensor shards just above it and each number of slots the
//! best ways found (`table.rs`). It counts a message between two stages at its sender only, so the best of the table are estimated
//! again in full, and those that come out best are improved by moving single cuts.

mod grids;
mod table;

use super::candidate::{Candidate, PlanKind};
use super::estimate::of_plan;
use super::profile::{Profile, most_batch_shards, most_tensor_shards};
use super::question::Question;
use crate::plan::{PipelinePlan, Stage};
use grids::{Grids, thinned};
use table::{Aim, Table};

/// Larger pipelines are not looked for; more peers become more replicas.
const MOST_SLOTS: usize = 128;
/// Up to so many sizes of pipelines are all tried.
const MOST_SIZES: usize = 24;
/// So often a plan is improved at most.
const MOST_MOVES: usize = 200;

/// The best plan of each kind, the simplest kind first; only plans that fit the memory.
pub(super) fn best_of_each_kind(question: &Question<'_>, profile: &Profile) -> Vec<Candidate> {
    let mut best: [Option<Candidate>; 3] = [None, None, None];
    for n_slots in pipeline_sizes(question) {
        // Grids may hide pipelines that are as fast in the same cells of the table, so these have one of their own.
        let pipelines = Table::fill(question, profile, n_slots, Aim::Time, Grids::Single).plans();
        let all = Table::fill(question, profile, n_slots, Aim::Time, Grids::All).plans();
        for stages in pipelines.into_iter().chain(all) {
            let candidate = judged(question, profile, stages);
            let place = &mut best[candidate.kind as usize];
            if place.as_ref().is_none_or(|there| is_faster(&candidate, there)) {
                *place = Some(candidate);
            }
        }
    }
    best.into_iter().flatten().map(|candidate| improved(question, profile, candidate)).collect()
}

/// What the plan needs in its largest peer that needs least.
pub(super) fn least_memory(question: &Question<'_>, profile: &Profile) -> u64 {
    let question = Question { memory_limit: None, ..question.clone() };
    let of_size = |n_slots| {
        let table = Table::fill(&question, profile, n_slots, Aim::Memory, Grids::All);
        let memory = |stages: Vec<Stage>| of_plan(&question, profile, &stages).memory_bytes;
        table.plans().into_iter().map(memory).min()
    };
    pipeline_sizes(&question).into_iter().filter_map(of_size).min().unwrap_or(0)
}

fn judged(question: &Question<'_>, profile: &Profile, stages: Vec<Stage>) -> Candidate {
    let estimate = of_plan(question, profile, &stages);
    let plan = PipelinePlan { stages };
    Candidate { kind: PlanKind::of(&plan), plan, estimate }
}

/// Faster, or as fast with fewer stages or, if that is equal too, less memory.
fn is_faster(one: &Candidate, other: &Candidate) -> bool {
    let order = other
        .estimate
        .samples_per_s
        .total_cmp(&one.estimate.samples_per_s)
        .then(one.plan.stages.len().cmp(&other.plan.stages.len()))
        .then(one.estimate.memory_bytes.cmp(&other.estimate.memory_bytes));
    order.is_lt()
}

/// The same plan with its cuts moved and its grids changed as long as that makes it faster and no other kind of plan.
fn improved(question: &Question<'_>, profile: &Profile, mut best: Candidate) -> Candidate {
    for _ in 0..MOST_MOVES {
        let moved = (1..best.plan.stages.len()).flat_map(|index| {
            let stages = &best.plan.stages;
            let place = profile.cuts.binary_search(&stages[index].layers.start).unwrap_or(0);
            let cuts = [place.checked_sub(1), Some(place + 1)].into_iter().flatten();
            cuts.filter_map(move |cut| with_cut(question, stages, index, *profile.cuts.get(cut)?))
        });
        let other_grids =
            (0..best.plan.stages.len()).flat_map(|index| with_other_grid(question, &best.plan.stages, index));
        let fits = |candidate: &Candidate| {
            let is_small = question.memory_limit.is_none_or(|limit| candidate.estimate.memory_bytes <= limit);
            is_small && candidate.kind == best.kind
        };
        let candidates = moved.chain(other_grids).map(|stages| judged(question, profile, stages)).filter(fits);
        let fastest = candidates.reduce(|best, one| if is_faster(&one, &best) { one } else { best });
        match fastest {
            Some(candidate) if candidate.estimate.samples_per_s > best.estimate.samples_per_s => best = candidate,
            _ => break,
        }
    }
    best
}

/// The stages with the beginning of one moved, if they can still be held by their grids.
fn with_cut(question: &Question<'_>, stages: &[Stage], index: usize, cut: usize) -> Option<Vec<Stage>> {
    let mut stages = stages.to_vec();
    stages[index - 1].layers.end = cut;
    stages[index].layers.start = cut;
    stages[index - 1..=index].iter().all(|stage| can_be(question, stage)).then_some(stages)
}

/// The stages with one batch shard or tensor shard of one of them more or less, if there are peers for that and its layers can be held so.
fn with_other_grid(question: &Question<'_>, stages: &[Stage], index: usize) -> Vec<Vec<Stage>> {
    let Stage { batch_shards, tensor_shards, .. } = stages[index];
    let grids = [
        (batch_shards + 1, tensor_shards),
        (batch_shards, tensor_shards + 1),
        (batch_shards - 1, tensor_shards),
        (batch_shards, tensor_shards - 1),
    ];
    let changed = grids.into_iter().filter(|(batch_shards, tensor_shards)| batch_shards * tensor_shards > 0).map(
        |(batch_shards, tensor_shards)| {
            let mut stages = stages.to_vec();
            stages[index] = Stage { batch_shards, tensor_shards, ..stages[index].clone() };
            stages
        },
    );
    let is_possible = |stages: &Vec<Stage>| {
        let n_slots: usize = stages.iter().map(|stage| stage.batch_shards * stage.tensor_shards).sum();
        n_slots <= question.n_peers && can_be(question, &stages[index])
    };
    changed.filter(is_possible).collect()
}

/// Whether a grid can hold these layers.
fn can_be(question: &Question<'_>, stage: &Stage) -> bool {
    !stage.layers.is_empty()
        && stage.batch_shards <= most_batch_shards(question.spec, &stage.layers, question.batch)
        && stage.tensor_shards <= most_tensor_shards(question.spec, &stage.layers)
}

/// How many slots a pipeline may have at most: for each number of replicas, as many as there are peers for. Where peers are not
/// alike, who has which slot follows from their number, so that each number is tried.
fn pipeline_sizes(question: &Question<'_>) -> Vec<usize> {
    let n_peers = question.n_peers;
    let is_tried = |n: &usize| !question.speeds.is_empty() || n_peers / (n_peers / n) == *n;
    let sizes: Vec<usize> = (1..=n_peers.min(MOST_SLOTS)).filter(is_tried).collect();
    if sizes.len() <= MOST_SIZES { sizes } else { thinned(sizes.into_iter()) }
}

#[cfg(test)]
mod tests {
    use nettorrent_engine::job::Job;
    use nettorrent_engine::model::zoo;

    use super::grids::block_counts;
    use super::pipeline_sizes;
    use crate::planner::Question;

    #[test]
    fn only_numbers_that_make_a_difference_are_tried() {
        assert_eq!(block_counts(4, 100), [1, 2, 4]);
        assert_eq!(block_counts(10, 4), [1, 2, 3, 4]);
        assert_eq!(block_counts(1, 9), [1]);
        assert!(block_counts(100, 100).contains(&10));
        let spec = zoo::describe("mlp", None, None).unwrap();
        let sizes = |n_peers, speeds: &[f64]| {
            let asked = Question::of(&Job::default(), &spec, n_peers).unwrap();
            pipeline_sizes(&Question { speeds: speeds.to_vec(), ..asked })
        };
        assert_eq!(sizes(12, &[]), [1, 2, 3, 4, 6, 12]);
        assert_eq!(sizes(5, &[1.0, 0.5]), [1, 2, 3, 4, 5]);
        assert!(sizes(100_000, &[]).len() <= 24);
    }
}
