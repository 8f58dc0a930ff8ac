//! Optimizers: how a gradient changes the parameters.
//!
//! Formulas, names of settings and defaults are PyTorch's, so that what worked there works here.

mod clip;
mod exchange;
mod rule;
mod spec;

use std::ops::Range;
use std::slice::ChunksMut;
use std::sync::{Arc, Weak};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use rayon::slice::ParallelSlice;

use crate::kernel::{is_finite, vectorised};
use crate::model::Workspace;

use clip::clip_scale;
use rule::{Part, Rule};

pub use spec::{OptimizerError, OptimizerKind, OptimizerSpec};

/// How many changes are computed at a time: few enough to stay in the processor's cache.
const AT_ONCE: usize = 1 << 12;

/// A rule with what it remembers.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimizer {
    spec: OptimizerSpec,
    n_params: usize,
    /// Steps taken.
    n_steps: u64,
    /// Shared until they change: a state that is kept costs nothing before the next step.
    vectors: Vec<Arc<Vec<f32>>>,
}

impl Optimizer {
    /// The rule for this many trained numbers, remembering nothing yet.
    pub fn new(spec: OptimizerSpec, n_params: usize) -> Self {
        let vectors = spec.state_names().iter().map(|_| Arc::new(vec![0.0; n_params])).collect();
        Self { spec, n_params, n_steps: 0, vectors }
    }

    /// The same rule that begins anew, where its first steps are not longer than others; else a copy.
    #[must_use]
    pub fn restarted(&self) -> Self {
        match self.spec.kind {
            OptimizerKind::Sgd | OptimizerKind::Adam | OptimizerKind::Adamw if self.spec.custom.is_none() => {
                Self::new(self.spec.clone(), self.n_params)
            }
            _ => self.clone(),
        }
    }

    /// The rule and its settings.
    pub(crate) fn spec(&self) -> &OptimizerSpec {
        &self.spec
    }

    /// What it remembers, by name, and how many steps it has taken.
    pub fn state(&self) -> (u64, impl Iterator<Item = (&'static str, &[f32])>) {
        (self.n_steps, self.spec.state_names().iter().copied().zip(self.vectors.iter().map(|vector| vector.as_slice())))
    }

    /// Puts back what another optimizer of the same kind remembered; `false` if it does not fit.
    #[must_use]
    pub fn restore(&mut self, n_steps: u64, mut vector: impl FnMut(&str) -> Option<Vec<f32>>) -> bool {
        let restored: Option<Vec<Vec<f32>>> = self.spec.state_names().iter().map(|name| vector(name)).collect();
        match restored {
            Some(vectors) if vectors.iter().zip(&self.vectors).all(|(new, old)| new.len() == old.len()) => {
                self.vectors = vectors.into_iter().map(Arc::new).collect();
                self.n_steps = n_steps;
                true
            }
            _ => false,
        }
    }

    /// Whether only a worker with an optimizer of its own can take its steps.
    pub fn is_custom(&self) -> bool {
        self.spec.custom.is_some()
    }

    /// How many steps it has taken, and what it remembers, for a worker that takes steps with an optimizer of its own.
    pub fn state_mut(&mut self) -> (&mut u64, Vec<&mut [f32]>) {
        (&mut self.n_steps, self.vectors.iter_mut().map(|vector| Arc::make_mut(vector).as_mut_slice()).collect())
    }

    /// By what the state is recognised for as long as it does not change.
    pub(crate) fn marks(&self) -> (u64, Vec<Weak<Vec<f32>>>) {
        (self.n_steps, self.vectors.iter().map(Arc::downgrade).collect())
    }

    /// Changes the parameters by a gradient.
    ///
    /// Both vectors may be longer than what is trained: behind it lie running statistics, and what the gradient holds for
    /// those is taken off them as it is. A gradient that is not finite changes nothing; returns whether it is.
    pub fn step(&mut self, lr: f32, values: &mut [f32], gradient: &[f32], workspace: &Workspace) -> bool {
        let n_threads = workspace.n_threads();
        let len = gradient.len().div_ceil(n_threads).max(1);
        workspace.install(|| {
            let is_sound = gradient.par_chunks(len).all(is_finite);
            if is_sound {
                let (rule, parts) = self.begin_step(lr, values, gradient, n_threads);
                parts.into_par_iter().for_each(|part| rule.apply(part));
            }
            is_sound
        })
    }

    /// The same step with the same bits, taken by the calling thread alone: for those who have no [`Workspace`] at hand.
    pub fn step_alone(&mut self, lr: f32, values: &mut [f32], gradient: &[f32]) {
        let (rule, parts) = self.begin_step(lr, values, gradient, 1);
        parts.into_iter().for_each(|part| rule.apply(part));
    }

    /// The same step with a gradient that lies in pieces at these places, which together are all of it.
    pub fn apply(&mut self, lr: f32, places: &[Range<usize>], values: &mut [f32], gradient: &[Vec<f32>]) {
        self.n_steps += 1;
        let scale = self.clip_scale(places, gradient);
        let rule = Rule::new(&self.spec, lr, scale, self.n_steps);
        for (place, piece) in places.iter().zip(gradient) {
            let (n_trained, first, second) = vectors_at(&mut self.vectors, self.n_params, place);
            let (gradient, delta) = piece.split_at(n_trained);
            let (values, statistics) = values[place.clone()].split_at_mut(n_trained);
            statistics.iter_mut().zip(delta).for_each(|(value, delta)| *value -= delta);
            rule.apply(Part { values, gradient, first, second });
        }
    }

    /// What a step would add to the values, whose gradient lies in pieces at these places: written over the gradient. It is computed as
    /// such, not as the difference of two parameters, so it is exact however small it is beside them.
    pub fn change(&mut self, lr: f32, places: &[Range<usize>], values: &[f32], gradient: &mut [Vec<f32>]) {
        self.n_steps += 1;
        let scale = self.clip_scale(places, gradient);
        for (place, gradient) in places.iter().zip(gradient) {
            self.change_at(lr, scale, place, &values[place.clone()], gradient);
        }
    }

    /// By what a gradient in pieces is multiplied before the step.
    fn clip_scale(&self, places: &[Range<usize>], gradient: &[Vec<f32>]) -> f32 {
        let trained = places.iter().zip(gradient).map(|(place, piece)| &piece[..n_trained(self.n_params, place)]);
        clip_scale(self.spec.clip_norm, trained)
    }

    fn change_at(&mut self, lr: f32, scale: f32, place: &Range<usize>, values: &[f32], gradient: &mut [f32]) {
        let decay = self.spec.weight_decay;
        let (pull, shrink) = if self.spec.kind == OptimizerKind::Adamw { (0.0, lr * decay) } else { (decay, 0.0) };
        // From here on nothing decays: a step from what the decay alone would change.
        let spec = OptimizerSpec { weight_decay: 0.0, ..self.spec.clone() };
        let rule = Rule::new(&spec, lr, 1.0, self.n_steps);
        let (n_trained, first, second) = vectors_at(&mut self.vectors, self.n_params, place);
        let (gradient, statistics) = gradient.split_at_mut(n_trained);
        statistics.iter_mut().for_each(|delta| *delta = -*delta);
        // A few numbers at a time, so that nobody has to hold both the gradient and what becomes of it.
        let (mut firsts, mut seconds) = (first.chunks_mut(AT_ONCE), second.chunks_mut(AT_ONCE));
        let mut change = vec![0.0; n_trained.min(AT_ONCE)];
        for (gradient, values) in gradient.chunks_mut(AT_ONCE).zip(values[..n_trained].chunks(AT_ONCE)) {
            let change = &mut change[..gradient.len()];
            vectorised(|| {
                for ((gradient, change), value) in gradient.iter_mut().zip(change.iter_mut()).zip(values) {
                    *gradient = scale * *gradient + pull * value;
                    *change = -shrink * value;
                }
            });
            let (first, second) = (firsts.next().unwrap_or_default(), seconds.next().unwrap_or_default());
            rule.apply(Part { values: change, gradient, first, second });
            gradient.copy_from_slice(change);
        }
    }

    /// Moves the statistics, counts the step, and cuts what is left to do into (at most) this many parts.
    fn begin_step<'a>(
        &'a mut self,
        lr: f32,
        values: &'a mut [f32],
        gradient: &'a [f32],
        n_parts: usize,
    ) -> (Rule<'a>, Vec<Part<'a>>) {
        let (trained, statistics) = values.split_at_mut(self.n_params);
        let (gradient, delta) = gradient.split_at(self.n_params);
        statistics.iter_mut().zip(delta).for_each(|(value, delta)| *value -= delta);
        self.n_steps += 1;
        let len = self.n_params.div_ceil(n_parts).max(1);
        // A vector that the rule has no use for is empty, and so are its parts.
        let mut vectors = self.vectors.iter_mut().map(|vector| Arc::make_mut(vector).chunks_mut(len));
        let (mut firsts, mut seconds) = (vectors.next(), vectors.next());
        let next =
            |vector: &mut Option<ChunksMut<'a, f32>>| vector.as_mut().and_then(Iterator::next).unwrap_or_default();
        let parts = trained.chunks_mut(len).zip(gradient.chunks(len)).map(|(values, gradient)| Part {
            values,
            gradient,
            first: next(&mut firsts),
            second: next(&mut seconds),
        });
        let parts = parts.collect();
        let scale = clip_scale(self.spec.clip_norm, std::iter::once(gradient));
        (Rule::new(&self.spec, lr, scale, self.n_steps), parts)
    }
}

/// How many of the numbers at a place are trained. Behind them lie statistics.
fn n_trained(n_params: usize, place: &Range<usize>) -> usize {
    n_params.clamp(place.start, place.end) - place.start
}

/// How many of the numbers at a place are trained, and what is remembered of those.
fn vectors_at<'a>(
    vectors: &'a mut [Arc<Vec<f32>>],
    n_params: usize,
    place: &Range<usize>,
) -> (usize, &'a mut [f32], &'a mut [f32]) {
    let n_trained = n_trained(n_params, place);
    let trained = place.start..place.start + n_trained;
    // A vector that the rule has no use for is empty.
    let mut of = vectors.iter_mut().map(|vector| Arc::make_mut(vector).get_mut(trained.clone()).unwrap_or_default());
    let (first, second) = (of.next().unwrap_or_default(), of.next().unwrap_or_default());
    (n_trained, first, second)
}
