//! Which rule, and with which settings.

use serde::{Deserialize, Serialize};

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

    pub(crate) fn epsilon(&self) -> f32 {
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
