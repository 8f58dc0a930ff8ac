//! What a peer's numbers become: steps of its optimizer, and what a round's result replaces.

use std::ops::Range;
use std::sync::Arc;

use nettorrent_engine::kernel::{is_finite, vectorised};
use nettorrent_engine::optimizer::Optimizer;

use super::core::Core;
use crate::phase_work::LocalState;
use crate::strategy::{OptimizerState, Payload};

impl Core {
    /// The parameters that are trained.
    pub(super) fn params(&self) -> &[f32] {
        &self.values[..self.training.task.n_params()]
    }

    /// Whether all that others would get are numbers.
    pub(super) fn is_finite(&self) -> bool {
        let sends_state = self.turn.optimizer_state == OptimizerState::Average;
        is_finite(&self.values) && (!sends_state || self.optimizer.is_finite())
    }

    /// Takes a round's result over.
    pub(super) fn adopt(&mut self, result: Vec<Vec<f32>>, lr: f32) {
        match self.turn.payload {
            Payload::Gradients => self.take_step(result, lr),
            Payload::Weights | Payload::Updates => self.replace_values(result),
        }
    }

    /// What a step with a gradient in buckets would add to the parameters, times the peer's share; statistics, which nobody
    /// else hears of, in full.
    pub(super) fn changes(&mut self, gradient: Vec<Vec<f32>>, lr: f32, share: f32) -> Vec<Vec<f32>> {
        let (task, n_params) = (self.training.task.clone(), self.training.task.n_params());
        self.optimizer.count_step();
        let mut changes = Vec::with_capacity(gradient.len());
        for (place, mut gradient) in task.buckets().iter().zip(gradient) {
            let mut change = self.buffer(place.len());
            self.optimizer.change(lr, place, &self.values[place.clone()], &mut gradient, &mut change);
            let n_trained = n_params.clamp(place.start, place.end) - place.start;
            vectorised(|| change[..n_trained].iter_mut().for_each(|change| *change *= share));
            self.spare.push(gradient);
            changes.push(change);
        }
        changes
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

    /// A step of the optimizer with a gradient in buckets.
    pub(super) fn take_step(&mut self, gradient: Vec<Vec<f32>>, lr: f32) {
        let values = Arc::make_mut(&mut self.values);
        let parts = self.training.task.buckets().iter().cloned().zip(gradient.iter().map(Vec::as_slice));
        self.optimizer.step_in_parts(lr, values, parts);
        self.spare.extend(gradient);
    }

    /// Lends the parameters and the optimizer to the worker, who takes a step with them.
    pub(super) fn lend(&mut self) -> LocalState {
        self.is_lent = true;
        let optimizer = Optimizer::new(self.training.optimizer.clone(), 0);
        LocalState {
            values: std::mem::take(&mut self.values),
            optimizer: std::mem::replace(&mut self.optimizer, optimizer),
        }
    }

    /// What this peer's own steps came to. If it was not lent what they began with, that is kept until the round is over.
    pub(super) fn take_back(&mut self, LocalState { values, optimizer }: LocalState) {
        let before = (std::mem::replace(&mut self.values, values), std::mem::replace(&mut self.optimizer, optimizer));
        if !std::mem::take(&mut self.is_lent) {
            self.round_start = Some(before);
        }
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
        if self.turn.optimizer_state == OptimizerState::Reset {
            self.reset_optimizer();
        }
    }

    /// The optimizer forgets what it remembers.
    pub(crate) fn reset_optimizer(&mut self) {
        self.optimizer = Optimizer::new(self.training.optimizer.clone(), self.training.task.n_params());
    }
}
