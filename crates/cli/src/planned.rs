//! What `plan` has found out.

use nettorrent_engine::job::Job;
use nettorrent_engine::model::LayerSpec;
use nettorrent_figures::Unit;
use nettorrent_pipeline::plan::Stage;
use nettorrent_pipeline::planner::{Candidate, Choice, Question};
use serde::Serialize;

/// Where a peer's speed is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Speed {
    Given,
    Measured,
    Usual,
}

/// What was found out.
pub(crate) struct Planned<'a> {
    pub job: &'a Job,
    pub n_params: usize,
    pub question: &'a Question<'a>,
    pub choice: &'a Choice,
    /// One peer by itself, if it has the memory.
    pub alone: Option<Candidate>,
    pub speed: Speed,
    /// Whether the job gives the groups itself.
    pub is_given: bool,
    /// Why there are no data, if there are none.
    pub without_data: Option<String>,
}

impl Planned<'_> {
    /// How many batches are on their way at a time.
    pub(crate) fn in_flight(&self) -> usize {
        self.question.in_flight(self.choice.best.plan.stages.len())
    }

    /// How batches are trained: how many at a time, and whether replicas share them.
    pub(crate) fn of_batches(&self) -> String {
        let mut text = match self.in_flight() {
            1 => String::new(),
            n => format!(", {n} in flight"),
        };
        let own = self.question.replica_batch(self.choice.best.estimate.n_replicas);
        if own < self.question.batch {
            text += &format!(", of each {own} samples for a replica");
        }
        text
    }

    /// The names of a group's first and last layer.
    pub(crate) fn layers_of(&self, group: &Stage) -> String {
        let layers = &self.question.spec.layers;
        let name = |index: usize| match layers[index].name() {
            Some(name) => name.to_owned(),
            None => format!("{index} {}", LayerSpec::kind(&layers[index])),
        };
        let (first, last) = (group.layers.start, group.layers.end - 1);
        if first == last { name(first) } else { format!("{} – {}", name(first), name(last)) }
    }
}

/// Bytes in a unit that fits.
pub(crate) fn bytes(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { Unit::Bytes.format(n as f64) }
}
