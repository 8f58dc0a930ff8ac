//! The planner of pipelines: which layers to give to which grid of peers, so that samples pass fastest.
//!
//! What is taken to be so, of a batch of `B` samples and a stage of layers with `R` batch shards and `C` tensor shards in `M` replicas:
//!
//! - *Computing.* A peer holds `B/R` samples and `1/C` of the outputs, both rounded up as blocks are. Its layers' multiplications
//!   are made three times: on the forward pass, for the gradient by the inputs and for that by the weights. All else that layers do is
//!   free.
//! - *Up and down.* A number takes four bytes. A peer sends its block of outputs to every tensor shard above it, and the gradient by all
//!   the inputs of its samples to the stage below; it receives as much. The first stage reads its samples from its own disk. The
//!   tensor shards of the last stage tell each other their scores.
//! - *Sums.* A part's gradient is summed over batch shards and averaged over replicas, each round a ring: `2(R-1)/R` and `2(M-1)/M` of the
//!   part's bytes leave each peer, and so many delays pass as a ring has steps. Sums are not hidden behind computing.
//! - *Links* send and receive at their full rate at the same time, and carry on while the peer computes.
//! - *Time.* The batch's journey is the sum over all stages of computing and of both ways' messages (the slower of sender and
//!   receiver, and the delay), and of the longest sums at its end. With `in_flight` batches on their way, a batch comes through in
//!   that part of the journey's time, but no sooner than the busiest peer has computed for one batch, and the busiest link has
//!   carried what belongs to one. So with one batch in flight it takes the journey, and with many what the busiest peer takes.
//!   Where there is one stage, nothing is on its way but the batch that is trained.
//! - *Replicas* share a batch, or train batches of their own, as `swarm.scale` says. Plans are compared by samples a second of all
//!   replicas together; that larger batches may teach less is left out.
//! - *Memory.* A part's numbers, their gradient and what the optimizer remembers; the last snapshot of the numbers and of what the
//!   optimizer remembers, and such a snapshot of a neighbour's if nobody else has that block; inputs and values of all
//!   batches in flight, and the gradients by one batch's values. The program itself, the data and messages on their way are left out.
//! - *Peers* have their places in their order: peer `k` is in replica `k / n_slots` at slot `k % n_slots`. Of peers that do the
//!   same, the slowest counts.
//!
//! The search cuts only before layers that multiply: what follows such a layer stays with it, for a cut there would be no cheaper.

mod candidate;
mod estimate;
mod profile;
mod question;
mod search;

use nettorrent_engine::job::{Job, PipelineSpec, Stages};
use nettorrent_engine::model::ModelSpec;
use serde::Serialize;

use super::plan::{PipelinePlan, PlanError};
use profile::Profile;

pub use candidate::{Candidate, PlanKind};
pub use estimate::{Estimate, StageEstimate};
pub use question::{Question, USUAL_MULTIPLICATIONS_PER_S};

/// What the planner chose, and what it chose it from.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The fastest plan that fits.
    pub best: Candidate,
    /// The best of each other kind, fastest first.
    pub runners_up: Vec<Candidate>,
}

/// The fastest plan that the search finds, and the best of each other kind.
pub fn choose(question: &Question<'_>) -> Result<Choice, PlanError> {
    question.check()?;
    let profile = Profile::new(question.spec)?;
    let mut found = search::best_of_each_kind(question, &profile);
    if found.is_empty() {
        let limit = question.memory_limit.unwrap_or(0);
        let least = search::least_memory(question, &profile);
        return Err(PlanError::Memory { n_peers: question.n_peers, limit, least });
    }
    // Stable: of equally fast ones, the simpler kind comes first.
    found.sort_by(|a, b| b.estimate.samples_per_s.total_cmp(&a.estimate.samples_per_s));
    let best = found.remove(0);
    Ok(Choice { best, runners_up: found })
}

/// What is to be expected of a plan.
pub fn estimate(question: &Question<'_>, plan: &PipelinePlan) -> Result<Candidate, PlanError> {
    question.check()?;
    let profile = Profile::new(question.spec)?;
    let (n_slots, n_peers) = (plan.n_slots(), question.n_peers);
    if n_slots > n_peers {
        return Err(PlanError::Peers { n_slots, n_peers });
    }
    if let Some((stage, one)) = plan.stages.iter().enumerate().find(|(_, stage)| stage.batch_shards > question.batch) {
        let (batch_shards, batch) = (one.batch_shards, question.batch);
        let problem = format!("batch_shards = {batch_shards}: a batch has only {batch} samples; use at most {batch}");
        return Err(PlanError::Stage { stage, problem });
    }
    Ok(Candidate {
        kind: PlanKind::of(plan),
        plan: plan.clone(),
        estimate: estimate::of_plan(question, &profile, &plan.stages),
    })
}

/// Writes the chosen stages into a job that leaves them to the planner, so that all its peers have the same; stages that the job
/// gives are checked. Nothing of a job that does not share out its layers.
pub fn resolve(job: &mut Job, spec: &ModelSpec, n_peers: usize) -> Result<Option<Choice>, PlanError> {
    let Some(pipeline) = &job.pipeline else { return Ok(None) };
    let question = Question::of(job, spec, n_peers)?;
    match &pipeline.stages {
        Stages::Auto(_) => {
            let choice = choose(&question)?;
            let stages = Stages::Given(choice.best.plan.stage_specs());
            job.pipeline = Some(PipelineSpec { stages, ..pipeline.clone() });
            Ok(Some(choice))
        }
        Stages::Given(stages) => {
            let best = estimate(&question, &PipelinePlan::new(spec, stages)?)?;
            Ok(Some(Choice { best, runners_up: Vec::new() }))
        }
    }
}

#[cfg(test)]
mod tests;
