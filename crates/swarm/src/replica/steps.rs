//! What a peer's numbers become: steps of its optimizer, and what a round's result replaces.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::kernel::is_finite;
use nettorrent_engine::optimizer::Optimizer;

use super::core::Core;
use crate::effects::Outbox;
use crate::local_state::LocalState;
use crate::step_work::{StepResult, StepTaken, StepWork};
use crate::strategy::OptimizerState;
use crate::work::{What, Work};

/// Steps with so many numbers are the worker's: others would have to wait for an answer meanwhile.
const LARGE: usize = 1 << 18;

impl Core {
    /// The parameters that are trained.
    pub(super) fn params(&self) -> &[f32] {
        &self.values[..self.training.task.n_params()]
    }

    /// Whether all that others would get are numbers.
    pub(super) fn is_finite(&self) -> bool {
        let sends_state = self.round_plan.optimizer_state == OptimizerState::Average;
        is_finite(&self.values) && (!sends_state || self.optimizer.is_finite())
    }

    /// A step of the optimizer with a gradient in buckets, or what it would change. A small one is taken here and now; for a large one the
    /// worker is lent the parameters, and nothing is returned yet.
    pub(super) fn step(
        &mut self,
        gradient: Vec<Vec<f32>>,
        lr: f32,
        result: StepResult,
        out: &mut Outbox,
    ) -> Option<StepTaken> {
        let id = self.next_work_id();
        let step = StepWork { state: self.lend(id), gradient, lr, result };
        let is_large = self.lends && self.training.task.n_values() >= LARGE;
        if is_large || self.training.optimizer.custom.is_some() {
            out.work.push(Work { id, what: What::Step(Box::new(step)) });
            return None;
        }
        Some(step.run_here(self.training.task.layout()))
    }

    /// The changes of a round in which this peer trains nothing.
    pub(super) fn no_changes(&mut self) -> Vec<Vec<f32>> {
        let task = self.training.task.clone();
        let nothing = |place: &Range<usize>| {
            let mut change = self.buffer(place.len());
            change.fill(0.0);
            change
        };
        task.buckets().iter().map(nothing).collect()
    }

    /// Lends the parameters and the optimizer to the worker, who takes a step with them.
    pub(super) fn lend(&mut self, work: u64) -> LocalState {
        self.lent_for = Some(work);
        let optimizer = Optimizer::new(self.training.optimizer.clone(), 0);
        LocalState {
            values: std::mem::take(&mut self.values),
            optimizer: std::mem::replace(&mut self.optimizer, optimizer),
        }
    }

    /// What this peer's own steps came to. If it was not lent what they began with, that is kept until the round is over.
    pub(super) fn take_back(&mut self, LocalState { values, optimizer }: LocalState) {
        let before = (std::mem::replace(&mut self.values, values), std::mem::replace(&mut self.optimizer, optimizer));
        if self.lent_for.take().is_none() {
            self.round_start = Some(before);
        }
    }

    /// What was lent for a step is back. Returns what it would change, if that was wanted.
    pub(super) fn take_back_step(&mut self, StepTaken { state, changes, spare }: StepTaken) -> Vec<Vec<f32>> {
        self.take_back(state);
        self.spare.extend(spare);
        changes
    }

    /// Replaces what is exchanged; the optimizer's state is treated as the strategy has it.
    pub(crate) fn replace_values(&mut self, parts: Vec<Vec<f32>>) {
        let values = Arc::make_mut(&mut self.values);
        let n_values = values.len();
        for (range, part) in self.buckets.iter().zip(&parts) {
            match values.get_mut(range.clone()) {
                Some(values) => values.copy_from_slice(part),
                None => self.optimizer.set_numbers(range.start - n_values..range.end - n_values, part),
            }
        }
        self.spare.extend(parts);
        if self.round_plan.optimizer_state == OptimizerState::Reset {
            self.reset_optimizer();
        }
    }

    /// The optimizer forgets what it remembers.
    pub(crate) fn reset_optimizer(&mut self) {
        self.optimizer = Optimizer::new(self.training.optimizer.clone(), self.training.task.n_params());
    }
}
