//! A step of the optimizer as a piece of work.
//!
//! Whoever answers other peers has no time for what grows with the model, so large steps are left to the worker. It is lent the
//! parameters and the optimizer for as long as that takes.

use std::sync::Arc;

use nettorrent_engine::kernel::vectorised;
use nettorrent_engine::model::Layout;
use nettorrent_engine::task::Worker;
use nettorrent_engine::train_error::TrainError;

use crate::local_state::LocalState;

/// A step with a gradient that is there.
pub struct StepWork {
    pub(crate) state: LocalState,
    /// By the layout's buckets.
    pub(crate) gradient: Vec<Vec<f32>>,
    pub(crate) lr: f32,
    pub(crate) result: StepResult,
}

/// What is wanted of it.
pub(crate) enum StepResult {
    /// The parameters after the step.
    Values,
    /// What it would add to the parameters, in the gradient's vectors: times the peer's share where they are trained, in full where they
    /// are statistics, of which nobody else hears.
    Changes { share: f32 },
}

/// What came of it.
pub struct StepTaken {
    /// What was lent.
    pub(crate) state: LocalState,
    /// The changes, if these were wanted; else there are none.
    pub(crate) changes: Vec<Vec<f32>>,
    /// Vectors to be used again.
    pub(crate) spare: Vec<Vec<f32>>,
}

impl std::fmt::Debug for StepWork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepWork").field("lr", &self.lr).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for StepTaken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepTaken").finish_non_exhaustive()
    }
}

impl StepWork {
    /// Has a worker take the step.
    pub(crate) fn run(self, worker: &mut dyn Worker) -> Result<StepTaken, TrainError> {
        let layout = worker.layout().clone();
        worker.begin(&self.state.values, Some(&self.state.optimizer));
        let taken = self.take(&layout, &mut |lr, LocalState { values, optimizer }, gradient, result| match result {
            StepResult::Values => worker.apply(lr, Arc::make_mut(values).as_mut_slice(), optimizer, gradient),
            StepResult::Changes { .. } => worker.change(lr, values, optimizer, gradient),
        })?;
        worker.end(&taken.state.values, &taken.state.optimizer);
        Ok(taken)
    }

    /// Takes it here, where the optimizer is ours.
    pub(crate) fn run_here(self, layout: &Layout) -> StepTaken {
        let taken = self.take(layout, &mut |lr, LocalState { values, optimizer }, gradient, result| {
            match result {
                StepResult::Values => {
                    optimizer.apply(lr, layout.buckets(), Arc::make_mut(values).as_mut_slice(), gradient);
                }
                StepResult::Changes { .. } => optimizer.change(lr, layout.buckets(), values, gradient),
            }
            Ok(())
        });
        taken.expect("a step of our own cannot fail")
    }

    fn take(self, layout: &Layout, step: &mut TakeStep<'_>) -> Result<StepTaken, TrainError> {
        let Self { mut state, mut gradient, lr, result } = self;
        step(lr, &mut state, &mut gradient, &result)?;
        let StepResult::Changes { share } = result else {
            return Ok(StepTaken { state, changes: Vec::new(), spare: gradient });
        };
        for (place, change) in layout.buckets().iter().zip(&mut gradient) {
            let n_trained = layout.n_params().clamp(place.start, place.end) - place.start;
            vectorised(|| change[..n_trained].iter_mut().for_each(|change| *change *= share));
        }
        Ok(StepTaken { state, changes: gradient, spare: Vec::new() })
    }
}

/// Takes a step with a gradient, at a rate; or says what it would change.
type TakeStep<'a> = dyn FnMut(f32, &mut LocalState, &mut [Vec<f32>], &StepResult) -> Result<(), TrainError> + 'a;
