//! What a rule does in one step, to some of the trained numbers.

use super::spec::{OptimizerKind, OptimizerSpec};
use crate::kernel::vectorised;

/// A part of the trained numbers, with what belongs to them.
pub(super) struct Part<'a> {
    pub(super) values: &'a mut [f32],
    pub(super) gradient: &'a [f32],
    pub(super) first: &'a mut [f32],
    pub(super) second: &'a mut [f32],
}

/// One step's numbers.
pub(super) struct Rule<'a> {
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
    pub(super) fn new(spec: &'a OptimizerSpec, lr: f32, scale: f32, n_steps: u64) -> Self {
        let correction = |beta: f32| (1.0 - f64::from(beta).powf(n_steps as f64)) as f32;
        let (correction1, correction2) = (correction(spec.beta1), correction(spec.beta2).sqrt());
        Self { spec, lr, scale, epsilon: spec.epsilon(), correction1, correction2 }
    }

    pub(super) fn apply(&self, part: Part<'_>) {
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
