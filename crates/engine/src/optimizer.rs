//! Optimizers: how a gradient changes the parameters.
//!
//! Formulas, names of settings and defaults are PyTorch's, so that what worked there works here.

mod clip;
mod exchange;

use std::ops::Range;
use std::slice::ChunksMut;
use std::sync::Arc;

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use serde::{Deserialize, Serialize};

use crate::kernel::vectorised;
use crate::model::Workspace;

use clip::clip_scale;

/// Which rule, and its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OptimizerSpec {
    /// The rule. Default: `sgd`.
    pub kind: OptimizerKind,
    /// The learning rate, before the schedule. Default: 0.01.
    pub lr: f32,
    /// For `sgd` and `rmsprop`: how much of the last change goes on. Default: 0.
    pub momentum: f32,
    /// For `sgd`: look ahead along the momentum. Default: no.
    pub nesterov: bool,
    /// How strongly parameters are pulled to zero: with the gradient, or beside it for `adamw`. Default: 0.
    pub weight_decay: f32,
    /// For `adam` and `adamw`: how slowly the mean of the gradients changes. Default: 0.9.
    pub beta1: f32,
    /// For `adam` and `adamw`: how slowly the mean of their squares changes. Default: 0.999.
    pub beta2: f32,
    /// For `rmsprop`: how slowly the mean of the squares changes. Default: 0.99.
    pub alpha: f32,
    /// What is added where a division by zero threatens. Default: 1e-10 for `adagrad`, else 1e-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f32>,
    /// The largest norm of a gradient: a longer one is shortened to it before the step (gradient clipping). Where peers exchange gradients
    /// it bounds their mean, where they exchange changes or weights it bounds each peer's own, and each stage of a pipeline bounds its
    /// own part. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f32>,
    /// For tasks whose workers have an optimizer of their own, such as one of PyTorch's: how many vectors as long as the parameters its
    /// state fills. The other settings then only say what it is like. Default: none, the steps are ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom: Option<usize>,
}

/// The names of the vectors that hold the state of a custom optimizer.
const CUSTOM: [&str; 8] = ["state.0", "state.1", "state.2", "state.3", "state.4", "state.5", "state.6", "state.7"];

/// The rules, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    /// Steps shrink with the sum of all squared gradients so far (Duchi et al. 2011).
    Adagrad,
    /// Means of gradients and of their squares (Kingma and Ba 2014).
    Adam,
    /// The same with the weight decay apart (Loshchilov and Hutter 2017).
    Adamw,
    /// Steps shrink with a running mean of squared gradients (Hinton 2012).
    Rmsprop,
    /// Plain steps against the gradient, with momentum (Nesterov's, if wanted).
    #[default]
    Sgd,
}

impl Default for OptimizerSpec {
    fn default() -> Self {
        Self {
            kind: OptimizerKind::default(),
            lr: 0.01,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
            beta1: 0.9,
            beta2: 0.999,
            alpha: 0.99,
            epsilon: None,
            clip_norm: None,
            custom: None,
        }
    }
}

/// A setting that makes no sense.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("optimizer.{setting} = {value}: {problem}")]
pub struct OptimizerError {
    setting: &'static str,
    value: f32,
    problem: &'static str,
}

impl OptimizerSpec {
    /// Refuses settings that make no sense.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let share = 0.0..1.0_f32;
        let positive = f32::MIN_POSITIVE..f32::MAX;
        let at_least_zero = 0.0..f32::MAX;
        let shares = "must be at least 0 and below 1";
        for (setting, value, range, problem) in [
            ("lr", self.lr, &at_least_zero, "must be a number from 0 up"),
            ("momentum", self.momentum, &share, shares),
            ("weight_decay", self.weight_decay, &at_least_zero, "must be a number from 0 up"),
            ("beta1", self.beta1, &share, shares),
            ("beta2", self.beta2, &share, shares),
            ("alpha", self.alpha, &share, shares),
            ("epsilon", self.epsilon(), &positive, "must be above 0"),
            ("clip_norm", self.clip_norm.unwrap_or(1.0), &positive, "must be above 0"),
        ] {
            if !range.contains(&value) {
                return Err(OptimizerError { setting, value, problem });
            }
        }
        if let (Some(most), Some(_)) = (self.clip_norm, self.custom) {
            let problem = "the task's own optimizer takes the steps; clip gradients there";
            return Err(OptimizerError { setting: "clip_norm", value: most, problem });
        }
        if let Some(n_vectors) = self.custom.filter(|&n_vectors| n_vectors > CUSTOM.len()) {
            let problem = "the state of an optimizer fills at most 8 vectors as long as the parameters";
            return Err(OptimizerError { setting: "custom", value: n_vectors as f32, problem });
        }
        let uses_momentum = matches!(self.kind, OptimizerKind::Sgd | OptimizerKind::Rmsprop);
        if self.momentum != 0.0 && !uses_momentum {
            let problem = "only sgd and rmsprop have a momentum; adam and adamw have beta1 in its place";
            return Err(OptimizerError { setting: "momentum", value: self.momentum, problem });
        }
        if self.nesterov && (self.kind != OptimizerKind::Sgd || self.momentum == 0.0) {
            let problem = "Nesterov's rule is sgd's with a momentum above 0";
            return Err(OptimizerError { setting: "nesterov", value: 1.0, problem });
        }
        Ok(())
    }

    fn epsilon(&self) -> f32 {
        self.epsilon.unwrap_or(if self.kind == OptimizerKind::Adagrad { 1e-10 } else { 1e-8 })
    }

    /// The vectors that the rule remembers from step to step, by the names PyTorch gives them.
    pub(crate) fn state_names(&self) -> &'static [&'static str] {
        if let Some(n_vectors) = self.custom {
            return &CUSTOM[..n_vectors.min(CUSTOM.len())];
        }
        match self.kind {
            OptimizerKind::Adagrad => &["sum"],
            OptimizerKind::Adam | OptimizerKind::Adamw => &["exp_avg", "exp_avg_sq"],
            OptimizerKind::Rmsprop if self.momentum == 0.0 => &["square_avg"],
            OptimizerKind::Rmsprop => &["square_avg", "momentum_buffer"],
            OptimizerKind::Sgd if self.momentum == 0.0 => &[],
            OptimizerKind::Sgd => &["momentum_buffer"],
        }
    }
}

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

    /// Changes the parameters by a gradient.
    ///
    /// Both vectors may be longer than what is trained: behind it lie running statistics, and what the gradient holds for
    /// those is taken off them as it is.
    pub fn step(&mut self, lr: f32, values: &mut [f32], gradient: &[f32], workspace: &Workspace) {
        let (rule, parts) = self.begin_step(lr, values, gradient, workspace.n_threads());
        workspace.install(|| parts.into_par_iter().for_each(|part| rule.apply(part)));
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

    /// What a step would add to the values, whose gradient lies in pieces at these places: written over `changes`, while the gradient is
    /// spent. It is computed as such, not as the difference of two parameters, so it is exact however small it is beside them.
    pub fn change(
        &mut self,
        lr: f32,
        places: &[Range<usize>],
        values: &[f32],
        gradient: &mut [Vec<f32>],
        changes: &mut [Vec<f32>],
    ) {
        self.n_steps += 1;
        let scale = self.clip_scale(places, gradient);
        for ((place, gradient), change) in places.iter().zip(gradient).zip(changes) {
            self.change_at(lr, scale, place, &values[place.clone()], gradient, change);
        }
    }

    /// By what a gradient in pieces is multiplied before the step.
    fn clip_scale(&self, places: &[Range<usize>], gradient: &[Vec<f32>]) -> f32 {
        let trained = places.iter().zip(gradient).map(|(place, piece)| &piece[..n_trained(self.n_params, place)]);
        clip_scale(self.spec.clip_norm, trained)
    }

    fn change_at(
        &mut self,
        lr: f32,
        scale: f32,
        place: &Range<usize>,
        values: &[f32],
        gradient: &mut [f32],
        change: &mut [f32],
    ) {
        let decay = self.spec.weight_decay;
        let (pull, shrink) = if self.spec.kind == OptimizerKind::Adamw { (0.0, lr * decay) } else { (decay, 0.0) };
        // From here on nothing decays: a step from what the decay alone would change.
        let spec = OptimizerSpec { weight_decay: 0.0, ..self.spec.clone() };
        let (n_trained, first, second) = vectors_at(&mut self.vectors, self.n_params, place);
        let (gradient, delta) = gradient.split_at_mut(n_trained);
        let (change, moved) = change.split_at_mut(n_trained);
        moved.iter_mut().zip(delta).for_each(|(moved, delta)| *moved = -*delta);
        vectorised(|| {
            for ((gradient, change), value) in gradient.iter_mut().zip(change.iter_mut()).zip(values) {
                *gradient = scale * *gradient + pull * value;
                *change = -shrink * value;
            }
        });
        Rule::new(&spec, lr, 1.0, self.n_steps).apply(Part { values: change, gradient, first, second });
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

/// A part of the trained numbers, with what belongs to them.
struct Part<'a> {
    values: &'a mut [f32],
    gradient: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

/// One step's numbers.
struct Rule<'a> {
    spec: &'a OptimizerSpec,
    lr: f32,
    /// By what the gradient is multiplied first: below 1 where it is clipped.
    scale: f32,
    epsilon: f32,
    /// For the Adams: what makes up for the means having started at zero.
    correction1: f32,
    correction2: f32,
}

impl<'a> Rule<'a> {
    fn new(spec: &'a OptimizerSpec, lr: f32, scale: f32, n_steps: u64) -> Self {
        let correction = |beta: f32| (1.0 - f64::from(beta).powf(n_steps as f64)) as f32;
        let (correction1, correction2) = (correction(spec.beta1), correction(spec.beta2).sqrt());
        Self { spec, lr, scale, epsilon: spec.epsilon(), correction1, correction2 }
    }

    fn apply(&self, part: Part<'_>) {
        vectorised(
            #[inline(always)]
            || self.apply_to(part),
        );
    }

    #[inline(always)]
    fn apply_to(&self, Part { values, gradient, first, second }: Part<'_>) {
        let Self { lr, scale, epsilon, .. } = *self;
        let OptimizerSpec { momentum, weight_decay, alpha, beta1, beta2, .. } = *self.spec;
        let each = values.iter_mut().zip(gradient);
        match (self.spec.kind, momentum != 0.0) {
            (OptimizerKind::Sgd, false) => each.for_each(|(w, g)| *w -= lr * (scale * g + weight_decay * *w)),
            (OptimizerKind::Sgd, true) => {
                let ahead = if self.spec.nesterov { 1.0 } else { 0.0 };
                let along = if self.spec.nesterov { momentum } else { 1.0 };
                each.zip(first).for_each(|((w, g), velocity)| {
                    let g = scale * g + weight_decay * *w;
                    *velocity = momentum * *velocity + g;
                    *w -= lr * (ahead * g + along * *velocity);
                });
            }
            (OptimizerKind::Adagrad, _) => each.zip(first).for_each(|((w, g), sum)| {
                let g = scale * g + weight_decay * *w;
                *sum += g * g;
                *w -= lr * g / (sum.sqrt() + epsilon);
            }),
            (OptimizerKind::Rmsprop, false) => each.zip(first).for_each(|((w, g), square)| {
                let g = scale * g + weight_decay * *w;
                *square = alpha * *square + (1.0 - alpha) * g * g;
                *w -= lr * g / (square.sqrt() + epsilon);
            }),
            (OptimizerKind::Rmsprop, true) => {
                each.zip(first).zip(second).for_each(|(((w, g), square), velocity)| {
                    let g = scale * g + weight_decay * *w;
                    *square = alpha * *square + (1.0 - alpha) * g * g;
                    *velocity = momentum * *velocity + g / (square.sqrt() + epsilon);
                    *w -= lr * *velocity;
                });
            }
            (OptimizerKind::Adam | OptimizerKind::Adamw, _) => {
                let apart = self.spec.kind == OptimizerKind::Adamw;
                let (pull, shrink) = if apart { (0.0, 1.0 - lr * weight_decay) } else { (weight_decay, 1.0) };
                let (rate, correction2) = (lr / self.correction1, self.correction2);
                each.zip(first).zip(second).for_each(|(((w, g), mean), square)| {
                    let g = scale * g + pull * *w;
                    *mean = beta1 * *mean + (1.0 - beta1) * g;
                    *square = beta2 * *square + (1.0 - beta2) * g * g;
                    *w = *w * shrink - rate * *mean / (square.sqrt() / correction2 + epsilon);
                });
            }
        }
    }
}
